//! How fast one TCP connection is between two hosts over a shaped link: from host to host, and
//! between two functions of a job over the overlay.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use serde::Serialize;
use snowmelt_network::Networks;

use super::bed;
use super::shuffle::{HOSTS, on_both, spec, two_hosts};

const PATIENCE: Duration = Duration::from_secs(30);
const PORT: u16 = 7001;

#[derive(Args)]
pub struct Options {
    /// What the link carries, in megabits a second; unshaped if 0.
    #[arg(long, default_value_t = 1000)]
    mbit: u32,
    /// The most bytes of a packet on the link.
    #[arg(long, default_value_t = 1500)]
    mtu: u32,
    /// Milliseconds of each measurement.
    #[arg(long, default_value_t = 2000)]
    milliseconds: u64,
    /// How many of each, in turns.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// Megabits a second of what programs send, one for each round.
#[derive(Default, Serialize)]
struct Report {
    hosts_mbit: Vec<f64>,
    functions_mbit: Vec<f64>,
}

/// Measures both in turns.
pub fn run(options: &Options) -> Result<()> {
    let hosts = two_hosts()?;
    on_both(&hosts, |_| shape(options))?;
    let nodes = on_both(&hosts, |_| {
        let state = tempfile::tempdir()?;
        let options = snowmelt_network::Options::new(state.path());
        Ok((Networks::open(options)?, state))
    })?;
    let mut jobs = on_both(&hosts, |number| {
        let mut job = nodes[number].0.create(spec(number, 10)?)?;
        job.ready(PATIENCE)?;
        Ok(job)
    })?;
    let time = Duration::from_millis(options.milliseconds);
    let mut report = Report::default();
    for _ in 0..options.rounds {
        let [one, other] = [(hosts[0].as_fd(), HOSTS[0]), (hosts[1].as_fd(), HOSTS[1])];
        report.hosts_mbit.push(rate(one, other, time)?);
        let one = jobs[0].address(0)?.v4;
        let other = jobs[1].address(0)?.v4;
        let ends = ((jobs[0].namespace(), one), (jobs[1].namespace(), other));
        report.functions_mbit.push(rate(ends.0, ends.1, time)?);
    }
    println!("{}", serde_json::to_string(&report)?);
    jobs.drain(..).try_for_each(|job| Ok(job.close(PATIENCE)?))
}

/// Shapes the cable's end in the calling thread's namespace.
fn shape(options: &Options) -> Result<()> {
    let mtu = options.mtu.to_string();
    tool(&["ip", "link", "set", "eth0", "mtu", &mtu])?;
    if options.mbit > 0 {
        let rate = format!("{}mbit", options.mbit);
        let bucket = ["burst", "256kb", "latency", "50ms"];
        tool(
            &[&["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", &rate][..], &bucket]
                .concat(),
        )?;
    }
    Ok(())
}

fn tool(words: &[&str]) -> Result<()> {
    let status = Command::new(words[0]).args(&words[1..]).status()?;
    ensure!(status.success(), "{} failed", words.join(" "));
    Ok(())
}

/// What arrives in a time, of a connection that sends as fast as it may.
fn rate(
    from: (BorrowedFd<'_>, Ipv4Addr),
    to: (BorrowedFd<'_>, Ipv4Addr),
    time: Duration,
) -> Result<f64> {
    let listener = bed::within(to.0, || Ok(TcpListener::bind((to.1, PORT))?))?;
    let client = bed::within(from.0, || {
        let kind = SocketType::STREAM;
        let socket = socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None)?;
        rustix::net::bind(&socket, &SocketAddr::new(IpAddr::V4(from.1), 0))?;
        connect(&socket, &SocketAddr::from((to.1, PORT)))?;
        Ok(TcpStream::from(socket))
    })?;
    let (server, _) = listener.accept()?;
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || receive(server));
        send(client, time)?;
        receiver.join().map_err(|_| anyhow!("a thread panicked"))?
    })
}

fn send(mut client: TcpStream, time: Duration) -> Result<()> {
    let data = vec![0; 256 << 10];
    let begun = Instant::now();
    while begun.elapsed() < time {
        client.write_all(&data)?;
    }
    Ok(())
}

/// Megabits a second until the other side ends.
fn receive(mut server: TcpStream) -> Result<f64> {
    let mut buffer = vec![0; 256 << 10];
    let mut bytes = 0usize;
    let begun = Instant::now();
    loop {
        match server.read(&mut buffer)? {
            0 => return Ok(bytes as f64 * 8e-6 / begun.elapsed().as_secs_f64()),
            length => bytes += length,
        }
    }
}
