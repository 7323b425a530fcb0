//! A control among several that share a store: it leads, or stands by until it does.
//!
//! | part | file |
//! |---|---|
//! | the wait for the lead | here |
//! | its clock beside that of the leader | `clock` |
//! | the listeners of a control that stands by | `doors` |
//! | the control that leads, as others know it | `leader` |
//!
//! Invariants: only a control that leads makes a platform, reads records and gives orders. One that
//! stands by carries the connections of clients of other hosts to the one that leads; hosts and
//! processes of its machine are told that another one leads. A control that knows that it no longer
//! leads ends: what it has in memory is no longer true. Its process then begins again, to stand by.

mod clock;
mod doors;
mod leader;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use snowmelt_node::Node;
use snowmelt_rpc::server::Ending;
use snowmelt_store::etcd::{Etcd, Lead, LeadWatch};
use snowmelt_store::{Error, LongValues};
use snowmelt_types::{Code, ErrorReport, Report};
use tokio_util::sync::CancellationToken;

use super::own_cluster::standby_credential;
use super::{ServerSettings, StoreSettings};
use crate::platform::PlatformLead;
use crate::state::records::Records;
use doors::{Doors, StandbyStatus};
use leader::{ControlName, KnownLeader};

/// The name of the lead of all functions of a platform.
const LEAD: &str = "control";
/// The most bytes of a record in etcd; longer ones are files of the shared folder.
const LONGEST: usize = 64 << 10;
/// The folder of long records in the shared folder.
const RECORDS: &str = "records";
/// Time between two removals of files that no record names.
const SWEEP_EVERY: std::time::Duration = std::time::Duration::from_secs(3600);
/// The pause after a store that does not answer.
const AGAIN_AFTER: std::time::Duration = std::time::Duration::from_millis(500);

/// The lead of this control, and its records.
#[derive(Debug)]
pub(super) struct Leading {
    lead: Lead,
    records: LongValues,
    place: String,
}

impl Leading {
    /// Opens the records.
    pub async fn records(&self) -> Result<Records, ErrorReport> {
        Records::over(Arc::new(self.records.clone())).await
    }

    /// The knowledge whether this control leads.
    pub fn watch(&self) -> LeadWatch {
        self.lead.watch()
    }

    /// The lead as the platform shows and checks it.
    pub fn of_platform(&self) -> PlatformLead {
        let term = self.lead.term();
        let store = format!("{}; this control leads since revision {term}", self.place);
        PlatformLead { store, watch: self.watch() }
    }

    /// The term of this leader, which grows with each.
    pub fn term(&self) -> u64 {
        self.lead.term().0
    }

    /// Ends the server at once when this control no longer leads, if it does among others.
    pub async fn end_when_lost(leading: Option<&Self>, ending: &Ending) -> Result<(), ErrorReport> {
        let Some(leading) = leading else { return Ok(()) };
        tokio::select! {
            () = leading.lead.lost() => {
                tracing::error!("this control no longer leads, and ends");
                ending.asked.cancel();
                ending.over.cancel();
                Err(Error::Deposed.report())
            }
            () = ending.over.cancelled() => Ok(()),
        }
    }

    /// Removes files that no record names, until the server ends.
    pub async fn sweep(records: LongValues, over: CancellationToken) {
        let mut tick = tokio::time::interval(SWEEP_EVERY);
        while over.run_until_cancelled(tick.tick()).await.is_some() {
            if let Err(error) = records.sweep().await {
                tracing::warn!(%error, "files of the shared folder that no record names are kept");
            }
        }
    }

    /// The store of the records.
    pub fn store(&self) -> LongValues {
        self.records.clone()
    }

    /// Lets another control lead at once.
    pub async fn resign(self) {
        drop(self.lead.resign().await);
    }
}

/// The listeners of a server, which are shared while it stands by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listeners<'a> {
    pub local: &'a std::os::unix::net::UnixListener,
    pub hosts: Option<&'a std::net::TcpListener>,
    pub remote: Option<&'a std::net::TcpListener>,
    pub leases: &'a std::os::unix::net::UnixListener,
    pub socket: &'a Path,
}

/// The next step of a server that has stood by.
pub(super) enum Turn {
    /// Serves: as the leader, or as the only control of its store.
    Serve(Option<Leading>),
    /// Ends, because it was asked to.
    End,
}

/// Waits until this server is to serve.
pub(super) async fn turn(
    settings: &ServerSettings,
    listeners: Listeners<'_>,
    node: &Node,
    ending: &Ending,
) -> Result<Turn, ErrorReport> {
    let Some(store) = &settings.store else { return Ok(Turn::Serve(None)) };
    let led = lead(settings, store, listeners, node, ending).await?;
    Ok(led.map_or(Turn::End, |leading| Turn::Serve(Some(leading))))
}

/// Leads, if need be after standing by. `None` if the server is asked to end before.
async fn lead(
    settings: &ServerSettings,
    store: &StoreSettings,
    listeners: Listeners<'_>,
    node: &Node,
    ending: &Ending,
) -> Result<Option<Leading>, ErrorReport> {
    let failed = |error: Error| error.report();
    let etcd = Etcd::new(store.etcd.clone()).map_err(failed)?;
    let says = Bytes::from(ControlName::of(settings).to_string());
    // An etcd that is not there is an error of who starts the server.
    let other = match etcd.try_lead(LEAD, &says).await.map_err(failed)? {
        Ok(lead) => return leading(lead, store, etcd.place()).map(Some),
        Err(other) => other,
    };
    let answering = CancellationToken::new();
    let credential = standby_credential(settings, &answering)?;
    let known = KnownLeader::new(credential.clone());
    known.is(&other);
    tracing::info!(leader = %known.name(), "another control leads, and this one stands by");
    let looking = known.clock().clone().follow(known.target());
    tokio::spawn(answering.clone().run_until_cancelled_owned(looking));
    let status = StandbyStatus::of(settings, node, listeners.socket, etcd.place(), &known);
    let asked = ending.asked.clone();
    let doors = Doors::open(settings, listeners, status, credential, asked, &answering)?;
    let doors = tokio::spawn(doors.serve());
    let led = loop {
        let tried = async {
            etcd.await_no_leader(LEAD).await?;
            tokio::time::sleep(known.clock().reprieve()).await;
            etcd.try_lead(LEAD, &says).await
        };
        let Some(tried) = ending.asked.run_until_cancelled(tried).await else { break Ok(None) };
        match tried {
            Ok(Ok(lead)) => break leading(lead, store, etcd.place()).map(Some),
            Ok(Err(next)) => known.is(&next),
            Err(error) => {
                tracing::warn!(%error, leader = %known.name(), "the store does not answer");
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        }
    };
    answering.cancel();
    drop(doors.await);
    led
}

/// Leads without serving, so that no control of the store does meanwhile.
pub(super) async fn lead_alone(store: &StoreSettings, says: &str) -> Result<Leading, ErrorReport> {
    let failed = |error: Error| error.report();
    let etcd = Etcd::new(store.etcd.clone()).map_err(failed)?;
    let says = Bytes::from(says.to_owned());
    if let Ok(lead) = etcd.try_lead(LEAD, &says).await.map_err(failed)? {
        return leading(lead, store, etcd.place());
    }
    // The lead of a process that was killed ends by itself.
    etcd.await_no_leader(LEAD).await.map_err(failed)?;
    match etcd.try_lead(LEAD, &says).await.map_err(failed)? {
        Ok(lead) => leading(lead, store, etcd.place()),
        Err(other) => {
            let leader = String::from_utf8_lossy(&other.says);
            let message = format!("`{leader}` leads with the records in {}", etcd.place());
            Err(ErrorReport::new(Code::LEADER_OTHER, message)
                .hint("stop all controls of the store first: `snowmelt down`"))
        }
    }
}

fn leading(lead: Lead, store: &StoreSettings, place: String) -> Result<Leading, ErrorReport> {
    let folder = store.folder.join(RECORDS);
    let records = LongValues::new(Arc::new(lead.store()), &folder, LONGEST);
    let records = records.map_err(|error| error.report())?;
    Ok(Leading { lead, records, place })
}

/// The state of a store, for `snowmelt doctor`.
#[derive(Clone, Debug)]
pub struct StoreState {
    /// The store in words.
    pub place: String,
    /// The version of etcd.
    pub version: String,
    /// The size of its database in bytes.
    pub bytes: u64,
    /// Alarms of etcd, and what is wrong with the shared folder.
    pub errors: Vec<String>,
    /// Whether records cross the network without encryption.
    pub sends_in_clear: bool,
}

/// Asks a store for its state.
///
/// # Errors
/// `SM-0526` if it does not answer, `SM-0110` for settings that are wrong.
pub async fn check_store(settings: &StoreSettings) -> Result<StoreState, ErrorReport> {
    let etcd = Etcd::new(settings.etcd.clone()).map_err(|error| error.report())?;
    let status = etcd.status().await.map_err(|error| error.report())?;
    let mut errors = status.errors;
    if !settings.folder.is_dir() {
        errors.push(format!("there is no folder {}", settings.folder.display()));
    }
    Ok(StoreState {
        place: etcd.place(),
        version: status.version,
        bytes: status.bytes,
        errors,
        sends_in_clear: settings.etcd.sends_in_clear(),
    })
}
