//! The network of a job on this host, for the instances that run its ranks.
//!
//! Order of life: the network is made for the process that forks or executes the ranks, then the
//! ranks are started in it, then each rank is held to its addresses; only then does the rank load
//! any code. A program is held to its addresses before it is executed, because it may use them at
//! once. The network goes when the last of its ranks has ended.

use std::fmt::Write as _;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use snowmelt_network::{Address, Counters, JobSpec, NetworkHandle, RESERVED, Range, Unsent};
use snowmelt_sandbox::{Bind, NetworkNamespace, Sandbox};
use snowmelt_types::{Code, ErrorReport};
use tokio::io::unix::AsyncFd;

use super::{JobNetworks, blocking};
use crate::import_cache::{ImportCoverage, ZygoteMember};
use crate::namespaces::Fresh;
use crate::resources::account::ZygoteRoom;
use crate::times::{UNSENT_ASKED_EVERY, UNSENT_STANDS_STILL};
use crate::user_code::unit::WarmStart;
use crate::{Error, Result, Unit};

/// The path at which a function finds the IPv4 addresses of all ranks, one on each line, by rank.
pub const PEERS: &str = "/run/snowmelt/peers";

/// The path at which a function finds the IPv6 addresses of all ranks, one on each line, by rank.
pub const PEERS6: &str = "/run/snowmelt/peers6";

/// The ranks of one host in a job's network.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct HostRanks {
    /// The first rank on the host.
    pub first: u32,
    /// The number of ranks on the host.
    pub count: u32,
    /// The range of IPv4 addresses of the host: its ranks have the first ones after
    /// [`snowmelt_network::RESERVED`].
    pub range4: Range,
    /// The range of IPv6 addresses of the host, of which its ranks have the ones at the same
    /// places.
    pub range6: Range,
}

/// The network of a job on this host, with the zygote and the files that belong to it.
#[derive(Debug)]
pub struct RankNetwork {
    // The lock is held for as long as the kernel takes for a request, and never across a wait.
    network: Arc<Mutex<NetworkHandle>>,
    /// The network namespace in which the ranks run.
    pub namespace: NetworkNamespace,
    /// The zygote that forks the ranks; `None` for programs.
    pub(crate) zygote: Option<(Arc<ZygoteMember>, ImportCoverage)>,
    networks: Weak<JobNetworks>,
    files: JobFiles,
    /// The pidfd of the daemon that holds the ranks to their addresses; `None` if this process does.
    daemon: Option<OwnedFd>,
}

impl Drop for RankNetwork {
    /// Has a namespace made for the next job of these functions, which then need not wait for it.
    fn drop(&mut self) {
        if let Some(networks) = self.networks.upgrade() {
            networks.prepare(self.zygote.take().map(|(member, _)| member));
        }
    }
}

/// The files `hosts`, `peers` and `peers6` of a job, which all its ranks see; removed when dropped.
#[derive(Debug)]
struct JobFiles {
    folder: PathBuf,
}

impl JobNetworks {
    /// Makes the network of a job for ranks of this unit.
    pub(crate) async fn open(
        self: &Arc<Self>,
        unit: &Unit,
        spec: JobSpec,
        hosts: &[HostRanks],
        count: usize,
        room: &ZygoteRoom,
    ) -> Result<RankNetwork> {
        let zygote = match &unit.start {
            WarmStart::Zygote(forked) => {
                Some(self.imports.choose(&forked.want, &forked.source, count, room).await?)
            }
            WarmStart::Program(_) => None,
        };
        let own = Arc::clone(self);
        // Opening waits for the kernel, and for the daemon where there is one.
        let opened = blocking(move || {
            own.opened_with(|opened| (Arc::clone(&opened.networks), opened.daemon_pidfd()))
        });
        let (networks, daemon) = opened.await??;
        let member = zygote.as_ref().map(|(member, _)| &**member);
        let fresh = self.fresh(&networks, member).await.inspect_err(|error| {
            if let Some((member, _)) = zygote.as_ref().filter(|_| error.is_of_zygote()) {
                self.imports.release(member);
            }
        });
        let Fresh { namespace, furnished } = fresh?;
        let files = JobFiles::write(&self.folder.join("files").join(&spec.job), hosts)?;
        let network = blocking(move || furnished.create(spec)).await??;
        let network = Arc::new(Mutex::new(network));
        let networks = Arc::downgrade(self);
        Ok(RankNetwork { network, namespace, zygote, networks, files, daemon: daemon? })
    }
}

impl RankNetwork {
    /// Returns the counts of requests to the kernel for this job.
    pub fn counters(&self) -> Counters {
        self.lock().counters()
    }

    /// Returns the addresses of the rank at the place `slot` on this host, from 0.
    pub fn address(&self, slot: u32) -> Result<Address> {
        Ok(self.lock().spec().address(slot)?)
    }

    /// Returns the entry with the addresses of a program at the place `slot`, which is written
    /// before the program is executed; `None` where there are no control groups.
    pub(crate) fn entry(&self, slot: u32) -> Result<Option<Vec<u8>>> {
        Ok(self.lock().entry(slot)?)
    }

    /// Holds an instance to the addresses of the place `slot`, from now until the instance ends.
    pub(crate) fn attach(&self, sandbox: &mut Sandbox, slot: u32) -> Result<()> {
        if let Some(listener) = sandbox.take_listener() {
            self.lock().attach_notifier(listener, slot)?;
            return Ok(());
        }
        let group = sandbox.group().ok_or_else(|| Error::Job {
            step: "find the control group of a function".into(),
            source: io::ErrorKind::NotFound.into(),
        })?;
        self.lock().attach(group, slot)?;
        Ok(())
    }

    /// Waits until all other hosts of the job answer over its network.
    pub async fn reach(&self, within: Duration) -> Result<()> {
        self.ask(move |network| network.ready(within)).await
    }

    /// Waits until nobody holds the ranks to their addresses any more, because the daemon of networks
    /// has ended; for ever where this process does it.
    pub async fn lost(&self) -> Error {
        let watched = self.daemon.as_ref().and_then(|daemon| {
            let daemon = daemon.try_clone().ok()?;
            #[expect(deprecated, reason = "it is unsound for types whose descriptor may change")]
            AsyncFd::new(daemon).ok()
        });
        match watched {
            Some(watched) => drop(watched.readable().await),
            None => std::future::pending().await,
        }
        let message = "the daemon that holds functions to their addresses has ended";
        let report = ErrorReport::new(Code::NETWORK_MAKE, message);
        Error::Report(Box::new(report.hint("start the burst again: another daemon is started")))
    }

    /// Does work on the network that takes the kernel some time, on a thread that may block.
    pub async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut NetworkHandle) -> snowmelt_network::Result<T> + Send + 'static,
    ) -> Result<T> {
        let network = Arc::clone(&self.network);
        let locked = move || work(&mut network.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(blocking(locked).await??)
    }

    /// Waits until all that ranks sent before they ended has arrived, and their connections are
    /// closed at both ends. Gives up when nothing moves any more: the other end may be gone.
    pub async fn settle(&self) {
        let mut moved = (Unsent::default(), Instant::now());
        loop {
            let unsent = self.lock().unsent();
            let left = match unsent {
                Ok(left) if left != Unsent::default() => left,
                Ok(_) => return,
                Err(error) => return tracing::warn!(%error, "a job's network does not answer"),
            };
            if left != moved.0 {
                moved = (left, Instant::now());
            } else if moved.1.elapsed() >= UNSENT_STANDS_STILL {
                return tracing::warn!(?left, "what the ranks of a job sent last did not arrive");
            }
            tokio::time::sleep(UNSENT_ASKED_EVERY).await;
        }
    }

    /// Returns the files that ranks see beside their unit's root: the names and addresses of all
    /// ranks.
    pub(crate) fn binds(&self) -> [Bind; 3] {
        let bind = |name: &str, target: &str| Bind {
            source: self.files.folder.join(name),
            target: target.into(),
        };
        [bind("hosts", "/etc/hosts"), bind("peers", PEERS), bind("peers6", PEERS6)]
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, NetworkHandle> {
        self.network.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JobFiles {
    fn write(folder: &Path, hosts: &[HostRanks]) -> Result<Self> {
        let files = Self { folder: folder.to_owned() };
        let mut names = "127.0.0.1 localhost\n".to_owned();
        let mut peers = String::new();
        let mut peers6 = String::new();
        for host in hosts {
            for slot in 0..host.count {
                let place = u128::from(slot + RESERVED);
                let (Some(v4), Some(v6)) = (host.range4.nth(place), host.range6.nth(place)) else {
                    continue;
                };
                let rank = host.first + slot;
                for (address, list) in [(v4, &mut peers), (v6, &mut peers6)] {
                    // Writing to a text cannot fail.
                    let _ = writeln!(names, "{address} rank-{rank}.job rank-{rank}");
                    let _ = writeln!(list, "{address}");
                }
            }
        }
        let write = || {
            std::fs::create_dir_all(folder)?;
            std::fs::write(folder.join("hosts"), names)?;
            std::fs::write(folder.join("peers"), peers)?;
            std::fs::write(folder.join("peers6"), peers6)
        };
        let step = "write the names of the job".to_owned();
        write().map_err(|source| Error::Job { step, source })?;
        Ok(files)
    }
}

impl Drop for JobFiles {
    fn drop(&mut self) {
        // A folder that cannot be removed goes with the folder of the platform.
        drop(std::fs::remove_dir_all(&self.folder));
    }
}
