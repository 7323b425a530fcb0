//! Job networks as the product makes them.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use snowmelt_network::{Egress, JobSpec, Networks, Options, prefix_for};
use snowmelt_types::Tenant;

use super::{Made, bed, time_of};

const PATIENCE: Duration = Duration::from_secs(60);

/// What is there before the job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Nothing.
    Nothing,
    /// A namespace that was made and configured in advance, as the product has for zygotes.
    Configured,
}

/// Connects the endpoints. Where there are control groups of version 2, up to a thousand endpoints
/// are then held to their addresses, which is timed by itself.
pub fn connect(endpoints: u32, start: Start) -> Result<Made> {
    let state = tempfile::tempdir()?;
    let above = Above::make()?;
    let group = above.as_ref().map(|above| above.0.clone());
    let networks = Networks::open(Options { group, ..Options::new(state.path()) })?;
    let configured = match start {
        Start::Nothing => None,
        Start::Configured => Some(networks.configure(bed::Namespace::make()?.fd)?),
    };
    let spec = spec(endpoints)?;
    let begun = Instant::now();
    let mut network = match configured {
        None => networks.create(spec)?,
        Some(configured) => networks.create_configured(spec, configured)?,
    };
    network.ready(PATIENCE)?;
    let took = begun.elapsed();
    let counters = network.counters();
    let first = network.address(0)?.v4;
    let last = network.address(endpoints - 1)?.v4;
    // Nobody is held yet, so whoever asks would be refused in a network that holds.
    let hold_us_each = match &above {
        Some(above) => Some(above.hold(&network, endpoints.min(1000))?),
        None => {
            let inside = network.namespace();
            bed::check((inside, first), (inside, last))?;
            None
        }
    };
    let teardown = time_of(|| Ok(network.close(PATIENCE)?))?;
    Ok(Made { took, messages: counters.messages, moves: counters.moves, hold_us_each, teardown })
}

/// A job on one host with room for so many endpoints.
pub fn spec(endpoints: u32) -> Result<JobSpec> {
    let range4 = "10.0.0.0/8".parse()?;
    let range6 = "fd00::/64".parse()?;
    let part = |range: snowmelt_network::Range, bits| {
        range.part(prefix_for(endpoints, bits), 0).context("a job has room for its endpoints")
    };
    Ok(JobSpec {
        job: "bench".to_owned(),
        tenant: Tenant::default(),
        vni: 9,
        range4,
        range6,
        own4: part(range4, 32)?,
        own6: part(range6, 128)?,
        host: IpAddr::from([127, 0, 0, 1]),
        peers: Vec::new(),
        egress: Egress::default(),
    })
}

/// A control group above those of the endpoints; removed when dropped.
pub struct Above(pub PathBuf);

impl Above {
    /// None where there is no hierarchy of version 2.
    pub fn make() -> Result<Option<Self>> {
        let mounts = std::fs::read_to_string("/proc/self/mounts")?;
        let root = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let target = fields.next()?;
            let kind = fields.next()?;
            (kind == "cgroup2").then(|| PathBuf::from(target))
        });
        let Some(root) = root else { return Ok(None) };
        let folder = root.join(format!("snowmelt-bench-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        Ok(Some(Self(folder)))
    }

    /// Holds so many functions to their addresses; microseconds for each.
    fn hold(&self, network: &snowmelt_network::JobNetwork, functions: u32) -> Result<f64> {
        let groups: Vec<_> = (0..functions).map(|slot| self.0.join(slot.to_string())).collect();
        groups.iter().try_for_each(std::fs::create_dir)?;
        let begun = Instant::now();
        for (slot, group) in (0..).zip(&groups) {
            network.attach(group, slot)?;
        }
        let took = begun.elapsed();
        check_held(network, &groups)?;
        groups.iter().try_for_each(std::fs::remove_dir)?;
        Ok(took.as_secs_f64() * 1e6 / f64::from(functions))
    }
}

/// The last one listens, then the first one connects: this process plays both, one group after
/// the other.
fn check_held(network: &snowmelt_network::JobNetwork, groups: &[PathBuf]) -> Result<()> {
    let enter = |group: &PathBuf| std::fs::write(group.join("cgroup.procs"), "0");
    let own = own_group()?;
    let first = &groups[0];
    let last = groups.last().context("there are groups")?;
    let done = bed::within(network.namespace(), || {
        enter(last)?;
        let listener = std::net::TcpListener::bind("0.0.0.0:7000")?;
        let target = listener.local_addr()?;
        enter(first)?;
        let client = std::net::TcpStream::connect(target)?;
        let (_, sender) = listener.accept()?;
        anyhow::ensure!(sender == client.local_addr()?, "it comes from {sender}");
        Ok(())
    });
    std::fs::write(own.join("cgroup.procs"), "0")?;
    done
}

/// Where this process is in the hierarchy of version 2.
fn own_group() -> Result<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    let root = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
    let root = root.and_then(|line| line.split(' ').nth(1)).context("no control groups")?;
    let groups = std::fs::read_to_string("/proc/self/cgroup")?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).context("no group")?;
    Ok(PathBuf::from(root).join(own))
}

impl Drop for Above {
    fn drop(&mut self) {
        drop(std::fs::remove_dir(&self.0));
    }
}
