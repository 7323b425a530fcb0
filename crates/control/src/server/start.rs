//! The records and the audit of a platform, and the work that its server goes on with.

use std::sync::Arc;

use snowmelt_rpc::server::Ending;
use snowmelt_types::ErrorReport;

use super::ServerSettings;
use super::standby::Leading;
use crate::cluster::placements::Placements;
use crate::platform::GatewayPlatform;
use crate::reports::audit::Audit;
use crate::state::backups;
use crate::state::logs::Logs;
use crate::state::records::{FunctionRecord, Records};

/// Opens the records: those of the store in which this control leads, or of the state folder.
pub(super) async fn records(
    settings: &ServerSettings,
    leading: Option<&Leading>,
    ending: &Ending,
) -> Result<Records, ErrorReport> {
    let records = match leading {
        None => Records::open(backups::state(&settings.state_dir), !settings.private).await?,
        Some(leading) => {
            tokio::spawn(Leading::sweep(leading.store(), ending.over.clone()));
            leading.records().await?
        }
    };
    if !settings.private {
        records.note_format().await?;
    }
    Ok(records)
}

/// Opens the logs of functions, which earlier versions kept under other names.
pub(super) async fn logs(
    settings: &ServerSettings,
    records: &Records,
) -> Result<Logs, ErrorReport> {
    let logs = Logs::new(settings.state_dir.join("logs"));
    if !settings.private {
        let ids: Vec<_> = records.all_functions().await?.iter().map(FunctionRecord::id).collect();
        logs.migrate(ids.iter());
    }
    Ok(logs)
}

/// Has the scheduler take what hosts of a cluster report.
pub(super) fn take_reports(settings: &ServerSettings, placements: &Placements, ending: &Ending) {
    if settings.cluster.is_some() {
        placements.take_reports();
        tokio::spawn(placements.clone().follow(ending.over.clone()));
    }
}

/// Begins the work of a server that is not private: what runs beside its requests, and what an
/// earlier server has accepted. `after_other` says that this may have been another control.
pub(super) async fn go_on(
    platform: &Arc<GatewayPlatform>,
    ending: &Ending,
    after_other: bool,
) -> Result<(), ErrorReport> {
    // What a server that was killed has left. Other platforms may be writing.
    platform.images.sweep();
    if let Err(error) = platform.images.divide(platform.functions.records()).await {
        tracing::warn!(%error, "images of earlier versions are not given to their tenants");
    }
    tokio::spawn(platform.udfs.clone().collect_files(ending.over.clone()));
    tokio::spawn(platform.keys.clone().keep(ending.over.clone()));
    tokio::spawn(platform.quotas.clone().keep(ending.over.clone()));
    tokio::spawn(platform.disk.clone().keep(ending.over.clone()));
    if let Some(file) = platform.functions.records().file() {
        tokio::spawn(backups::keep(file.clone(), ending.over.clone()));
    }
    // Before the first request is served, so that what was accepted earlier is ahead of it.
    platform.async_calls.resume(after_other).await?;
    platform.bursts.resume().await
}

/// Opens the audit, whose lines are posted until the server ends.
pub(super) fn audit(settings: &ServerSettings, ending: &Ending) -> Result<Audit, ErrorReport> {
    let Some(settings) = settings.audit.clone() else { return Ok(Audit::default()) };
    let audit = Audit::open(settings.clone())?;
    tokio::spawn(audit.clone().post(settings, ending.over.clone()));
    Ok(audit)
}
