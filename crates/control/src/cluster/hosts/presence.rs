//! Whether a host is there: a host is if it reports, or answers when it is asked.

use std::time::Duration;

use snowmelt_api::HostJoin;
use snowmelt_types::Code;

use super::{BEAT, ClusterHost, Facts, SILENT};

/// The longest silence of a host that was late before.
const LATE: Duration = Duration::from_secs(15);

/// How long a host that is silent, or to which a connection broke, may take to answer a probe.
const ASKED: Duration = Duration::from_secs(2);

impl ClusterHost {
    /// Returns whether the host has reported lately.
    pub fn has_reported(&self) -> bool {
        if self.is_local() {
            return true;
        }
        let patience = {
            let facts = self.lock();
            (SILENT + facts.late * 2).min(LATE)
        };
        self.silence() < patience
    }

    /// Waits until the host is silent for too long, and does not answer a probe either.
    pub async fn lost(&self) {
        loop {
            while self.has_reported() {
                tokio::time::sleep(BEAT / 4).await;
            }
            match self.agent.facts(ASKED).await {
                Ok(facts) => {
                    let join = HostJoin { facts, ..self.lock().join.clone() };
                    tracing::debug!(host = %self.name, "a silent host answers");
                    self.take_report(join);
                }
                Err(error) => return tracing::info!(host = %self.name, %error, "a host is lost"),
            }
        }
    }

    /// Returns whether the host is alive, after a connection to it broke: it answers, or goes on
    /// reporting.
    pub async fn is_there(&self) -> bool {
        let last = self.lock().last_report;
        let answers = async {
            loop {
                match self.agent.facts(ASKED).await {
                    Ok(_) => return true,
                    Err(error) if error.known_code() == Code::HOST_STOPPED => return false,
                    // It may have been sent on a connection that broke together with the other one.
                    Err(_) => tokio::time::sleep(BEAT / 4).await,
                }
            }
        };
        let answered = tokio::time::timeout(ASKED, answers).await;
        answered.unwrap_or_else(|_| self.lock().last_report > last)
    }

    pub(super) fn silence(&self) -> Duration {
        self.clock.now().saturating_sub(self.lock().last_report)
    }

    pub(super) fn take_report(&self, join: HostJoin) {
        let now = self.clock.now();
        let mut facts = self.lock();
        let late = now.saturating_sub(facts.last_report + BEAT);
        *facts = Facts { join, last_report: now, late: late.max(facts.late * 7 / 8) };
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::sync::Arc;

    use snowmelt_api::HostFacts;
    use snowmelt_rpc::{HostStream, Meant, Token};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::cluster::hosts::Remote;
    use crate::cluster::hosts::clock::ProcessClock;
    use crate::cluster::hosts::drains::Drained;

    const TICK: Duration = Duration::from_millis(250);

    fn host(address: SocketAddr) -> ClusterHost {
        let clock = Arc::new(ProcessClock::default());
        let token = Token::new("sixteen-characters").unwrap();
        let agent = Arc::new(Remote::new(address, Meant::Host(joins(address).name), token));
        ClusterHost::new(agent, joins(address), &clock, &Drained::default())
    }

    fn joins(address: SocketAddr) -> HostJoin {
        let facts = HostFacts { cores: 1, overcommit: 1, ..HostFacts::default() };
        HostJoin { name: "one".to_owned().try_into().unwrap(), address: Some(address), facts }
    }

    fn pass(host: &ClusterHost, time: Duration) {
        (0..time.as_millis() / TICK.as_millis()).for_each(|_| host.clock.tick(TICK));
    }

    /// Listens, and answers nothing.
    fn mute() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || listener.incoming().collect::<Vec<_>>());
        address
    }

    /// Answers one request of each connection, as a host does.
    async fn alive() -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let body = serde_json::to_string(&joins(address).facts).unwrap();
        let length = body.len();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
        tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((tcp, _)) = listener.accept().await {
                let mut stream = HostStream::accepted(tcp);
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(answer.as_bytes()).await;
                held.push(stream);
            }
        });
        address
    }

    #[test]
    fn a_host_that_is_late_now_and_then_may_be_silent_for_longer() {
        let host = host(mute());
        pass(&host, SILENT - TICK);
        assert!(host.has_reported());
        host.take_report(joins("127.0.0.1:1".parse().unwrap()));
        pass(&host, SILENT + SILENT);
        assert!(host.has_reported(), "it was late by almost four seconds");
        pass(&host, LATE);
        assert!(!host.has_reported(), "not for ever");
        for _ in 0..100 {
            host.take_report(joins("127.0.0.1:1".parse().unwrap()));
            pass(&host, BEAT);
        }
        pass(&host, SILENT);
        assert!(!host.has_reported(), "it has been in time for long");
    }

    #[tokio::test]
    async fn a_silent_host_is_probed_before_it_is_removed() {
        let there = host(alive().await);
        let gone = host(mute());
        for host in [&there, &gone] {
            pass(host, SILENT);
            assert!(!host.has_reported());
        }
        tokio::time::timeout(Duration::from_secs(60), gone.lost()).await.unwrap();
        assert!(tokio::time::timeout(BEAT, there.lost()).await.is_err());
        assert!(there.has_reported());
    }

    #[tokio::test]
    async fn a_host_is_there_that_answers_or_goes_on_reporting() {
        assert!(host(alive().await).is_there().await);
        let ended = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(!host(ended).is_there().await);
        let silent = host(mute());
        assert!(!silent.is_there().await);
        let reporting = async {
            pass(&silent, BEAT);
            silent.take_report(joins("127.0.0.1:1".parse().unwrap()));
        };
        assert!(tokio::join!(silent.is_there(), reporting).0);
    }
}
