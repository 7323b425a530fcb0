//! The conventional overlay by the commands of the paper's Figure 2.

use std::os::fd::AsFd;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use snowmelt_kernel::mount;
use snowmelt_kernel::namespace::{flags, unshare};

use super::bed::{self, Bed, address_of};
use super::{Made, time_of};

const VTEP: &str = "snowmelt-bench-vtep";

/// Connects the endpoints, nine commands each. Names of namespaces are mounts: they are made where
/// nobody else sees them.
pub fn connect(bed: &mut Bed, endpoints: u32) -> Result<Made> {
    unshare(flags::MOUNT)?;
    mount::make_private()?;
    std::fs::create_dir_all("/run/netns")?;
    name_vtep(bed)?;
    let begun = Instant::now();
    let mut commands = 0;
    for endpoint in 0..endpoints {
        commands += one(endpoint)?;
    }
    let took = begun.elapsed();
    let open = |endpoint: u32| std::fs::File::open(format!("/run/netns/{}", guest(endpoint)));
    let first = open(0)?;
    let last = open(endpoints - 1)?;
    let ends = (address_of(0), address_of(endpoints - 1));
    let checked = bed::check((first.as_fd(), ends.0), (last.as_fd(), ends.1));
    drop((first, last));
    let teardown = time_of(|| {
        for endpoint in 0..endpoints {
            ip(&["netns", "del", &guest(endpoint)])?;
        }
        bed.settle()
    })?;
    ip(&["netns", "del", VTEP])?;
    checked?;
    let moves = 2 * u64::from(endpoints);
    Ok(Made { took, messages: commands, moves, hold_us_each: None, teardown })
}

fn one(endpoint: u32) -> Result<u64> {
    let space = guest(endpoint);
    let inner = format!("g{endpoint}");
    let outer = format!("v{endpoint}");
    let address = format!("{}/8", address_of(endpoint));
    let bytes = endpoint.to_be_bytes();
    let mac = format!("02:73:{:02x}:{:02x}:{:02x}:{:02x}", bytes[0], bytes[1], bytes[2], bytes[3]);
    let commands: [&[&str]; 9] = [
        &["netns", "add", &space],
        &["link", "add", &outer, "type", "veth", "peer", "name", &inner],
        &["link", "set", &outer, "netns", VTEP],
        &["link", "set", &inner, "netns", &space],
        &["-n", VTEP, "link", "set", &outer, "master", "br0"],
        &["-n", VTEP, "link", "set", &outer, "up"],
        &["-n", &space, "link", "set", &inner, "address", &mac],
        &["-n", &space, "link", "set", &inner, "up"],
        &["-n", &space, "addr", "add", &address, "dev", &inner],
    ];
    commands.iter().try_for_each(|words| ip(words))?;
    Ok(commands.len() as u64)
}

fn guest(endpoint: u32) -> String {
    format!("snowmelt-bench-{endpoint}")
}

/// Gives the namespace with the bridge a name that `ip` knows.
fn name_vtep(bed: &Bed) -> Result<()> {
    let mut holder =
        bed::within(bed.vtep.fd.as_fd(), || Ok(Command::new("sleep").arg("60").spawn()?))?;
    let named = ip(&["netns", "attach", VTEP, &holder.id().to_string()]);
    holder.kill()?;
    holder.wait()?;
    named
}

fn ip(words: &[&str]) -> Result<()> {
    let status = Command::new("ip").args(words).status()?;
    ensure!(status.success(), "ip {} failed", words.join(" "));
    Ok(())
}
