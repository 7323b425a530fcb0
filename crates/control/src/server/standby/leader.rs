//! The control that leads, as the other ones know it: by the text at its key in the store.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use snowmelt_rpc::{Credential, HostTarget, Meant};
use snowmelt_store::etcd::OtherLead;
use tokio::sync::watch;

use super::clock::LeaderClock;
use crate::server::ServerSettings;

/// The text that a control puts to its key when it leads: its name, and the address at which hosts
/// and other controls reach it, if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ControlName {
    name: String,
    listen: Option<SocketAddr>,
}

impl ControlName {
    /// The name of this control for others; that of its machine if no hosts join.
    pub fn of(settings: &ServerSettings) -> Self {
        let machine = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        match &settings.cluster {
            Some(cluster) => Self { name: cluster.name.to_string(), listen: Some(cluster.listen) },
            None => Self { name: machine(), listen: None },
        }
    }
}

impl fmt::Display for ControlName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.listen {
            Some(listen) => write!(f, "{} at {listen}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl FromStr for ControlName {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.rsplit_once(" at ");
        let named = parts.and_then(|parts| {
            let listen = parts.1.parse().ok()?;
            Some(Self { name: parts.0.to_owned(), listen: Some(listen) })
        });
        Ok(named.unwrap_or_else(|| Self { name: text.to_owned(), listen: None }))
    }
}

/// The control that leads, which is another one after a takeover. Cheap to clone.
#[derive(Clone)]
pub(super) struct KnownLeader {
    name: watch::Sender<String>,
    target: watch::Sender<Option<HostTarget>>,
    clock: LeaderClock,
    credential: Option<Credential>,
}

impl KnownLeader {
    /// Knows no leader yet. The credential is that by which this control reaches it.
    pub fn new(credential: Option<Credential>) -> Self {
        Self {
            name: watch::Sender::default(),
            target: watch::Sender::default(),
            clock: LeaderClock::default(),
            credential,
        }
    }

    /// Learns which control leads.
    pub fn is(&self, other: &OtherLead) {
        let text = String::from_utf8_lossy(&other.says);
        let Ok(ControlName { listen, .. }) = text.parse();
        // An address of all networks is none that others reach.
        let listen = listen.filter(|listen| !listen.ip().is_unspecified());
        // What clients say has keys in it, and is carried over encrypted connections only.
        let credential = self.credential.clone().filter(Credential::is_encrypted);
        let target = listen.zip(credential).map(|reached| {
            let (address, credential) = reached;
            HostTarget { address, meant: Meant::Control, credential }
        });
        // A leader that is the same is looked at no sooner.
        if self.name() != text {
            self.target.send_replace(target);
        }
        self.name.send_replace(text.into_owned());
    }

    /// Returns the name of the control that leads.
    pub fn name(&self) -> String {
        self.name.borrow().clone()
    }

    /// Returns the knowledge of the leader's clock.
    pub fn clock(&self) -> &LeaderClock {
        &self.clock
    }

    /// Returns the place of the control that leads, while it is one that others reach.
    pub fn target(&self) -> watch::Receiver<Option<HostTarget>> {
        self.target.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use snowmelt_rpc::Token;
    use snowmelt_store::Revision;

    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_written() {
        for text in ["one at 10.0.0.1:7070", "one at [fd00::1]:7070", "machine", "a at b", ""] {
            let Ok(name) = text.parse::<ControlName>();
            assert_eq!(name.to_string(), text);
        }
        let Ok(name) = "x at y at 10.0.0.1:7070".parse::<ControlName>();
        assert_eq!((name.name.as_str(), name.listen.is_some()), ("x at y", true));
    }

    #[test]
    fn the_leader_of_now_is_known() {
        let encrypted = Credential::joining("00".repeat(32)).unwrap();
        let known = KnownLeader::new(Some(encrypted));
        let target = known.target();
        assert!(target.borrow().is_none());
        for (says, address) in [
            ("one at 10.0.0.1:7070", Some("10.0.0.1:7070")),
            ("two at 0.0.0.0:7070", None),
            ("machine", None),
            ("three at 10.0.0.3:7070", Some("10.0.0.3:7070")),
        ] {
            known.is(&OtherLead { says: Bytes::from(says), term: Revision(7) });
            let found = target.borrow().as_ref().map(|target| target.address.to_string());
            assert_eq!(found.as_deref(), address);
            assert_eq!(known.name(), says);
        }
        let token = Token::new("0123456789abcdef").unwrap();
        let plain = KnownLeader::new(Some(Credential::from(token)));
        plain.is(&OtherLead { says: Bytes::from("one at 10.0.0.1:7070"), term: Revision(7) });
        assert!(plain.target().borrow().is_none(), "keys of clients are sent over TLS only");
    }
}
