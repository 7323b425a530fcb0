//! The process on a host that joined a cluster: `snowmelt node`.
//!
//! Invariant: as long as the process runs it reports to control, by a thread with a higher priority
//! than all others. It retries while control is down, and joins again when control is back.

use std::net::SocketAddr;
use std::time::Instant;

use snowmelt_api::HostJoin;
use snowmelt_node::{ControlAddress, Node};
use snowmelt_rpc::trace::Context;
use snowmelt_rpc::{Credential, Meant, Token};
use snowmelt_tasks::TaskHost;
use snowmelt_tasks::agent::{self, Agent};
use snowmelt_types::{Code, ErrorReport, HostName, Report};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{ServerProcess, ServerSettings};
use crate::cluster::authority::HostIdentity;
pub use crate::cluster::authority::JoinText;
use crate::cluster::authority::member::NAME_TAKEN_TIMEOUT;
use crate::cluster::hosts::{BEAT, Remote, ReportTaken, in_time, listener};

/// The addresses and names by which a host joins its cluster.
#[derive(Clone, Debug)]
pub struct Membership {
    /// The name of the host, unique in the cluster.
    pub name: HostName,
    /// The address at which the host's agent listens, and others reach it.
    pub address: SocketAddr,
    /// The addresses at which controls listen for hosts: one of them leads.
    pub controls: Vec<SocketAddr>,
    /// The proof that the host is of the cluster.
    pub proof: MemberProof,
}

/// The proof that a host is of a cluster.
#[derive(Clone, Debug)]
pub enum MemberProof {
    /// A certificate in the state folder. Without one the host joins with this token.
    Certificate(Option<JoinText>),
    /// The secret of a cluster in a closed network, where nothing is encrypted.
    Token(Token),
}

/// A host's process whose spawner runs and whose address is bound, before any thread is started.
#[derive(Debug)]
pub struct ClusterMember {
    membership: Membership,
    started: ServerProcess,
    listener: std::net::TcpListener,
}

impl ClusterMember {
    /// Sweeps what crashed processes left, starts the spawner, binds the address. Call it before
    /// the runtime exists: the spawner must not be forked from a process with threads.
    pub fn prepare(settings: ServerSettings, membership: Membership) -> Result<Self, ErrorReport> {
        if rustix::process::geteuid().as_raw() != 0 {
            let message = "an ordinary user cannot run a host of a cluster: that needs root";
            return Err(ErrorReport::new(Code::ROOTLESS, message).hint("run `sudo snowmelt node`"));
        }
        let listener = listener::bind(membership.address)?;
        let started = ServerProcess::prepare(settings)?;
        Ok(Self { membership, started, listener })
    }

    /// Serves until the process is asked to end; `joined` is called once control knows of the host.
    pub async fn serve(
        self,
        shutdown: CancellationToken,
        joined: impl FnOnce(),
    ) -> Result<(), ErrorReport> {
        let memory = self.started.memory();
        let state = self.started.state_dir().to_owned();
        let node = self.started.node()?;
        let Membership { name, controls, .. } = &self.membership;
        let mut identity = None;
        let credential = match &self.membership.proof {
            MemberProof::Token(token) => Credential::from(token.clone()),
            MemberProof::Certificate(token) => {
                let obtaining = HostIdentity::obtain(&state, name, controls, token.as_ref());
                match shutdown.run_until_cancelled(obtaining).await {
                    Some(Ok(obtained)) => identity.insert(obtained).credential().clone(),
                    Some(Err(refused)) => {
                        shutdown.cancel();
                        stop(&node).await?;
                        return Err(refused);
                    }
                    None => return stop(&node).await,
                }
            }
        };
        node.open_networks();
        let controls = Controls::new(&self.membership, &credential)?;
        node.join_cluster(credential.clone(), Some(controls.current.clone()));
        let agent = Agent::new(node.clone(), memory);
        let host = TaskHost::new(node.clone());
        let router = agent::router(agent.clone(), host, credential.clone());
        let serving = listener::serve(self.listener, router, credential.clone(), shutdown.clone());
        let (answered, first_answer) = oneshot::channel();
        let membership = self.membership.clone();
        let asked = shutdown.clone();
        let leader = controls.current.clone();
        let proof = credential.clone();
        let beats = Beats { agent: agent.clone(), node: node.clone(), credential, identity };
        let beating = in_time("beats", move || beat(membership, controls, beats, asked, answered));
        let (served, beaten, ()) = tokio::join!(
            serving,
            async {
                let beaten = beating.await;
                shutdown.cancel();
                beaten.and_then(|beaten| beaten)
            },
            async {
                if first_answer.await.is_ok() {
                    joined();
                }
            }
        );
        // Otherwise control notices by its silence.
        let control = Remote::new(leader.get(), Meant::Control, proof);
        drop(control.leave(&self.membership.name).await);
        let stopped = stop(&node).await;
        beaten.and(served).and(stopped)
    }
}

async fn stop(node: &Node) -> Result<(), ErrorReport> {
    node.stop().await.map_err(|error| error.report())
}

/// The parts of a host that its reports concern.
struct Beats {
    agent: Agent,
    node: Node,
    credential: Credential,
    /// The certificate of the host; `None` without encryption.
    identity: Option<HostIdentity>,
}

impl Beats {
    /// Renews the certificate when it is time. What fails is tried again with the next report.
    async fn renew(&mut self, control: &Remote) {
        let Some(identity) = self.identity.as_mut().filter(|identity| identity.is_due()) else {
            return;
        };
        match identity.renew(control).await {
            Ok(()) => tracing::info!("this host has another certificate"),
            Err(error) => return tracing::warn!(%error, "a certificate cannot be renewed"),
        }
        if let Err(error) = self.node.renew_certificate().await {
            tracing::warn!(%error, "the daemon of images has an old certificate");
        }
    }
}

/// Reports to control until the host is asked to end. It retries while control does not answer, and
/// ends if control goes on refusing the host.
async fn beat(
    membership: Membership,
    mut controls: Controls,
    mut beats: Beats,
    shutdown: CancellationToken,
    joined: oneshot::Sender<()>,
) -> Result<(), ErrorReport> {
    let mut joined = Some(joined);
    let mut was_there = true;
    let mut refused_since = None;
    while !shutdown.is_cancelled() {
        let join = HostJoin {
            name: membership.name.clone(),
            address: Some(membership.address),
            facts: beats.agent.facts(),
        };
        // It is repeated every second, and is not a request of a user.
        let said = Context::unsampled().scope(controls.join(&join)).await;
        match said {
            Ok(taken) => {
                beats.credential.refuse(taken.removed);
                beats.renew(controls.leader()).await;
                if let Some(joined) = joined.take() {
                    // The host may be ending.
                    let _ = joined.send(());
                }
                (was_there, refused_since) = (true, None);
            }
            Err(error) if asks_again(&error, &mut refused_since, Instant::now()) => {
                if was_there {
                    tracing::warn!(%error, "control does not take a report; trying again");
                }
                was_there = false;
            }
            Err(error) => return Err(error),
        }
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = tokio::time::sleep(BEAT) => {}
        }
    }
    Ok(())
}

/// The controls that a host may report to, of which one leads.
struct Controls {
    remotes: Vec<Remote>,
    addresses: Vec<SocketAddr>,
    /// The place of the one that has answered last.
    at: usize,
    current: ControlAddress,
}

impl Controls {
    fn new(membership: &Membership, credential: &Credential) -> Result<Self, ErrorReport> {
        let addresses = membership.controls.clone();
        let Some(first) = addresses.first() else {
            return Err(ErrorReport::new(Code::OPTION, "a host needs the address of a control"));
        };
        let remote =
            |address: &SocketAddr| Remote::new(*address, Meant::Control, credential.clone());
        let remotes = addresses.iter().map(remote).collect();
        Ok(Self { remotes, current: ControlAddress::new(*first), addresses, at: 0 })
    }

    /// Returns the control that has answered last.
    fn leader(&self) -> &Remote {
        &self.remotes[self.at]
    }

    /// Reports to the control that leads. Each is tried once, beginning with the last one. One that
    /// does not answer delays the others for less than a beat.
    async fn join(&mut self, join: &HostJoin) -> Result<ReportTaken, ErrorReport> {
        let count = self.remotes.len();
        let mut refused = None;
        let mut unsure = None;
        for _ in 0..count {
            let joining = self.remotes[self.at].join(join);
            let said = if count == 1 {
                joining.await
            } else {
                tokio::time::timeout(BEAT, joining).await.unwrap_or_else(|_| {
                    let message = format!("{} does not answer", self.addresses[self.at]);
                    Err(ErrorReport::new(Code::SERVER_UNREACHABLE, message))
                })
            };
            match said {
                Err(error) if is_elsewhere(&error) && count > 1 => {
                    self.at = (self.at + 1) % count;
                    refused = Some(error);
                }
                // It may be cut off from the store while another one leads.
                Ok(taken) if !taken.is_sure && count > 1 => {
                    unsure = Some((self.at, taken));
                    self.at = (self.at + 1) % count;
                }
                said => {
                    self.current.set(self.addresses[self.at]);
                    return said;
                }
            }
        }
        if let Some((at, taken)) = unsure {
            self.at = at;
            return Ok(taken);
        }
        refused.map_or_else(|| Ok(ReportTaken::default()), Err)
    }
}

/// Whether another control may take a report that this one does not.
fn is_elsewhere(error: &ErrorReport) -> bool {
    error.known_code() == Code::LEADER_OTHER
        || error.retryable && error.known_code() != Code::HOST_REFUSED
}

/// Returns whether a host asks again that control does not know, or has refused only for a short
/// time.
fn asks_again(error: &ErrorReport, since: &mut Option<Instant>, now: Instant) -> bool {
    if error.known_code() != Code::HOST_REFUSED {
        return error.retryable;
    }
    error.retryable && now - *since.get_or_insert(now) < NAME_TAKEN_TIMEOUT
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_host_asks_again_while_the_one_that_it_replaces_may_have_its_name() {
        let mut since = None;
        let begun = Instant::now();
        let unreachable = ErrorReport::new(Code::SERVER_UNREACHABLE, "");
        let other_version = ErrorReport::new(Code::HOST_REFUSED, "");
        let taken = ErrorReport { retryable: true, ..other_version.clone() };
        let mut asks = |error, after| asks_again(error, &mut since, begun + after);
        assert!(!asks(&other_version, Duration::ZERO));
        assert!(asks(&taken, Duration::from_secs(5)));
        assert!(asks(&taken, NAME_TAKEN_TIMEOUT));
        assert!(!asks(&taken, NAME_TAKEN_TIMEOUT + Duration::from_secs(5)));
        // Control may be away for as long as it likes.
        assert!(asks(&unreachable, NAME_TAKEN_TIMEOUT * 100));
    }
}
