//! The shuffle of the Particle paper, 5.1 and Figure 7: every function of one host sends a short
//! message over a connection of its own to every function of another host. The clock runs from the
//! first system call for the network, so that it shows how soon the application may begin.
//!
//! Functions are sockets of this process: starting programs would cost all designs the same.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::{Args, ValueEnum};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use serde::Serialize;
use snowmelt_kernel::namespace::{flags, join};
use snowmelt_network::netlink::Batch;
use snowmelt_network::{Egress, JobPeer, JobSpec, Networks, Range, prefix_for};
use snowmelt_types::Tenant;

use super::bed::{self, Bed, Namespace, address_of};
use super::conventional;

const PATIENCE: Duration = Duration::from_secs(60);
pub const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
/// The end of the cable on either host, beside `lo`.
const CABLE: u32 = 2;
const PORT: u16 = 7000;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Design {
    /// Job networks, nothing made ahead.
    Snowmelt,
    /// A namespace and a pair for each function, made where they stay.
    PerContainerNetlink,
}

#[derive(Args)]
pub struct Options {
    /// How functions are connected.
    #[arg(long, value_enum)]
    design: Design,
    /// Functions on each of the two hosts.
    #[arg(long, default_value_t = 100)]
    functions: u32,
    /// After so many seconds no further message is sent.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
}

/// A row, printed as a line of JSON.
#[derive(Serialize)]
struct Row {
    /// From the beginning until the network of both hosts was there.
    network_seconds: f64,
    /// From the beginning until each message had arrived, every hundredth.
    arrived_seconds: Vec<f64>,
    /// How many had arrived when the time was up, and how many there were to be.
    messages: usize,
    wanted: u32,
}

/// A function: its namespace and its address.
type Place<'a> = (BorrowedFd<'a>, Ipv4Addr);

/// Runs it once.
pub fn run(options: &Options) -> Result<()> {
    let hosts = two_hosts()?;
    let row = match options.design {
        Design::Snowmelt => with_jobs(&hosts, options)?,
        Design::PerContainerNetlink => with_pairs(&hosts, options)?,
    };
    println!("{}", serde_json::to_string(&row)?);
    Ok(())
}

/// Two namespaces with a cable between them.
pub fn two_hosts() -> Result<[OwnedFd; 2]> {
    let mut one = Namespace::make()?;
    let mut other = Namespace::make()?;
    let mut batch = Batch::new();
    bed::add_pair(&mut batch, "eth0", CABLE, "eth0", Some(other.fd.as_fd()));
    one.route.run(batch)?;
    for (host, address) in [&mut one, &mut other].into_iter().zip(HOSTS) {
        let mut batch = Batch::new();
        bed::set_up(&mut batch, 1);
        bed::set_up_name(&mut batch, "eth0");
        host.route.run(batch)?;
        let index = conventional::number_of(host.fd.as_fd(), "eth0")?;
        let mut batch = Batch::new();
        bed::add_address(&mut batch, index, address);
        host.route.run(batch)?;
    }
    Ok([one.fd, other.fd])
}

/// The same on both hosts at once.
pub fn on_both<T: Send>(
    hosts: &[OwnedFd; 2],
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let work = &work;
        let start = |number: usize| {
            scope.spawn(move || {
                join(&hosts[number], flags::NETWORK)?;
                work(number)
            })
        };
        let both = [start(0), start(1)];
        both.into_iter().map(|one| one.join().map_err(|_| anyhow!("a thread panicked"))?).collect()
    })
}

fn with_jobs(hosts: &[OwnedFd; 2], options: &Options) -> Result<Row> {
    let functions = options.functions;
    let nodes = on_both(hosts, |_| {
        let state = tempfile::tempdir()?;
        let options = snowmelt_network::Options::new(state.path());
        Ok((Networks::open(options)?, state))
    })?;
    let begun = Instant::now();
    let networks = on_both(hosts, |number| {
        let mut network = nodes[number].0.create(spec(number, functions)?)?;
        network.ready(PATIENCE)?;
        Ok(network)
    })?;
    let network_seconds = begun.elapsed().as_secs_f64();
    let all = |number: usize| -> Result<Vec<Place<'_>>> {
        let network = &networks[number];
        (0..functions).map(|slot| Ok((network.namespace(), network.address(slot)?.v4))).collect()
    };
    let arrived = shuffle(&all(0)?, &all(1)?, begun, options.seconds)?;
    networks.into_iter().try_for_each(|network| network.close(PATIENCE))?;
    Ok(row(network_seconds, &arrived, functions * functions))
}

pub fn spec(number: usize, functions: u32) -> Result<JobSpec> {
    let (range4, range6): (Range, Range) = ("10.0.0.0/8".parse()?, "fd00::/64".parse()?);
    let part = |range: Range, bits, host: usize| {
        let part = range.part(prefix_for(functions, bits), host as u32);
        part.context("a job has room for its functions")
    };
    let peer = |host: usize| -> Result<JobPeer> {
        let range4 = part(range4, 32, host)?;
        let range6 = part(range6, 128, host)?;
        Ok(JobPeer { host: IpAddr::V4(HOSTS[host]), range4, range6 })
    };
    let own = peer(number)?;
    Ok(JobSpec {
        job: "shuffle".to_owned(),
        tenant: Tenant::default(),
        vni: 11,
        range4,
        range6,
        own4: own.range4,
        own6: own.range6,
        host: own.host,
        peers: vec![peer(1 - number)?],
        egress: Egress::default(),
    })
}

fn with_pairs(hosts: &[OwnedFd; 2], options: &Options) -> Result<Row> {
    let functions = options.functions;
    let beds = on_both(hosts, |number| Bed::furnish(HOSTS[number], Some(HOSTS[1 - number])))?;
    let beds: Vec<_> = beds.into_iter().map(std::sync::Mutex::new).collect();
    let begun = Instant::now();
    let guests = on_both(hosts, |number| {
        let mut bed = beds[number].lock().map_err(|_| anyhow!("a thread panicked"))?;
        let own = number as u32 * functions;
        let others = (1 - number as u32) * functions;
        let guests = (own..own + functions).map(|endpoint| {
            let mut guest = conventional::in_place(&mut bed, endpoint)?;
            conventional::introduce(&mut guest, endpoint, others..others + functions)?;
            Ok(guest)
        });
        guests.collect::<Result<Vec<_>>>()
    })?;
    let network_seconds = begun.elapsed().as_secs_f64();
    let all = |number: usize| -> Vec<Place<'_>> {
        let each = guests[number].iter().zip(number as u32 * functions..);
        each.map(|(guest, endpoint)| (guest.fd.as_fd(), address_of(endpoint))).collect()
    };
    let arrived = shuffle(&all(0), &all(1), begun, options.seconds)?;
    Ok(row(network_seconds, &arrived, functions * functions))
}

fn row(network_seconds: f64, arrived: &[f64], wanted: u32) -> Row {
    let step = arrived.len().div_ceil(100).max(1);
    let arrived_seconds = arrived.iter().copied().step_by(step).collect();
    Row { network_seconds, arrived_seconds, messages: arrived.len(), wanted }
}

/// Seconds since the beginning at which each message had arrived, until the time is up.
fn shuffle(
    senders: &[Place<'_>],
    receivers: &[Place<'_>],
    begun: Instant,
    seconds: u64,
) -> Result<Vec<f64>> {
    let listen =
        |place: &Place<'_>| bed::within(place.0, || Ok(TcpListener::bind((place.1, PORT))?));
    let listeners = receivers.iter().map(listen).collect::<Result<Vec<_>>>()?;
    let deadline = begun + Duration::from_secs(seconds);
    let mut arrived = Vec::new();
    for (namespace, address) in senders {
        arrived.extend(bed::within(*namespace, || {
            let mut sent = Vec::new();
            for (listener, receiver) in listeners.iter().zip(receivers) {
                if !send(*address, receiver.1, listener, deadline)? {
                    break;
                }
                sent.push(begun.elapsed().as_secs_f64());
            }
            Ok(sent)
        })?);
    }
    Ok(arrived)
}

/// One message over a connection of its own, until it has arrived; false if the time is up first.
/// A sender tries until it is connected, as in the paper.
fn send(from: Ipv4Addr, to: Ipv4Addr, listener: &TcpListener, deadline: Instant) -> Result<bool> {
    while Instant::now() < deadline {
        if let Ok(socket) = open(from, to) {
            TcpStream::from(socket).write_all(b"m")?;
            listener.accept()?.0.read_exact(&mut [0])?;
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(false)
}

fn open(from: Ipv4Addr, to: Ipv4Addr) -> rustix::io::Result<OwnedFd> {
    let kind = SocketType::STREAM;
    let socket = socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &SocketAddr::from((from, 0)))?;
    connect(&socket, &SocketAddr::from((to, PORT)))?;
    Ok(socket)
}
