//! What instances hold: the proportional set size of their processes, and what the machine has
//! less of, which counts the kernel's own memory as well.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use serde::Serialize;
use snowmelt_node::InstanceLease;

use super::host::{Asked, Host};
use super::levels::warmed;

/// How long a running handler stays where it is, in seconds.
const HOLD: f64 = 3.0;

/// How long they may take to get there, and how long they have then to come to rest.
const SETTLED: Duration = Duration::from_millis(1500);

const KEPT: Duration = Duration::from_secs(300);

/// How many are started at once where the start is not what is measured.
const AT_ONCE: usize = 20;

#[derive(Serialize)]
struct Each {
    instances: usize,
    zygote_bytes: u64,
    running_bytes: u64,
    idle_bytes: u64,
}

/// Bytes that one more instance holds, while its handler runs and when it was given back.
pub async fn each(host: &Host, count: usize) -> Result<()> {
    let unit = warmed(host).await?;
    tokio::time::sleep(SETTLED).await;
    let alone = tree(host.spawner_pid)?;
    let leases = try_join_all((0..count).map(|_| host.lease(&unit, KEPT))).await?;
    let calls: Vec<_> = leases
        .into_iter()
        .map(|mut lease| {
            tokio::spawn(async move {
                Asked::now().call(&mut lease, HOLD).await?;
                anyhow::Ok(lease)
            })
        })
        .collect();
    tokio::time::sleep(SETTLED).await;
    let running = tree(host.spawner_pid)?;
    ensure!(calls.iter().all(|call| !call.is_finished()), "a handler ended too early");
    ensure!(running.processes >= alone.processes + count, "not every instance is there");
    for call in calls {
        call.await??.give_back();
    }
    tokio::time::sleep(SETTLED).await;
    let idle = tree(host.spawner_pid)?;
    ensure!(idle.processes == running.processes, "not every instance was kept");
    let share = |with: &Tree| with.bytes.saturating_sub(alone.bytes) / count as u64;
    let each = Each {
        instances: count,
        zygote_bytes: alone.bytes,
        running_bytes: share(&running),
        idle_bytes: share(&idle),
    };
    println!("{}", serde_json::to_string(&each)?);
    Ok(())
}

#[derive(Serialize)]
struct Alive {
    instances: usize,
    processes: usize,
    pss_bytes: u64,
    machine_bytes: u64,
}

/// Bytes of so many instances that have all answered a call and live.
pub async fn alive(host: &Host, count: usize) -> Result<()> {
    let unit = warmed(host).await?;
    tokio::time::sleep(SETTLED).await;
    let available = available()?;
    let mut leases: Vec<InstanceLease> = Vec::new();
    while leases.len() < count {
        let some = AT_ONCE.min(count - leases.len());
        let started = try_join_all((0..some).map(|_| host.one(&unit, KEPT))).await?;
        leases.extend(started.into_iter().map(|(lease, _)| lease));
    }
    tokio::time::sleep(SETTLED).await;
    let machine_bytes = available.saturating_sub(self::available()?);
    let Tree { processes, bytes: pss_bytes } = tree(host.spawner_pid)?;
    ensure!(processes > count, "not every instance is alive");
    let alive = Alive { instances: leases.len(), processes, pss_bytes, machine_bytes };
    println!("{}", serde_json::to_string(&alive)?);
    Ok(())
}

/// A process and all below it.
#[derive(Default)]
struct Tree {
    processes: usize,
    bytes: u64,
}

fn tree(root: u32) -> Result<Tree> {
    let mut found = Tree::default();
    let mut left = vec![root.to_string()];
    while let Some(pid) = left.pop() {
        // What has ended since holds nothing.
        let Ok(rollup) = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) else { continue };
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        left.extend(children.unwrap_or_default().split_whitespace().map(str::to_owned));
        found.processes += 1;
        found.bytes += kilobytes(&rollup, "Pss:").context("smaps_rollup says no Pss")? * 1024;
    }
    Ok(found)
}

/// Bytes that programs could still have, in the kernel's estimate.
fn available() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    Ok(kilobytes(&text, "MemAvailable:").context("meminfo says no MemAvailable")? * 1024)
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
