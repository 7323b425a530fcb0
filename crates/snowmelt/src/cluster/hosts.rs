//! `snowmelt hosts`: the hosts of a cluster, and whether they get new work.

use std::time::Duration;

use snowmelt_api::{HostState, HostSummary};
use snowmelt_control::client::ApiClient;
use snowmelt_types::{ByteSize, ErrorReport};

use crate::args::{DrainArgs, HostArgs, HostsArgs, HostsCommand};
use crate::config::Config;
use crate::output::list;
use crate::platform::{self, CommandPlatform};
use crate::terminal::{CommandOutcome, Printer, text};

/// Time between two looks at a host that is being drained.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Shows the hosts of the running platform, or drains or removes one of them.
///
/// # Errors
/// `SM-0503` if no platform is running, `SM-0713` if there is no such host.
pub fn run(args: &HostsArgs, config: &Config, printer: Printer) -> CommandOutcome {
    match &args.command {
        Some(HostsCommand::Drain(args)) => return drain(args, config, printer),
        Some(HostsCommand::Undrain(host)) => return undrain(host, config, printer),
        Some(HostsCommand::Rm(host)) => return remove(host, config, printer),
        None => {}
    }
    let platform = CommandPlatform::server(args.server.as_deref(), config)?;
    let hosts = platform::with(platform, printer, async |client, _| client.hosts().await)?;
    let headings = [
        "name",
        "address",
        "version",
        "state",
        ">cores",
        ">memory free",
        ">functions",
        ">last seen",
    ];
    let rows: Vec<_> = hosts.iter().map(row).collect();
    list::print(args.output, &headings, &rows, &hosts)?;
    Ok(0)
}

fn drain(args: &DrainArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let host = &args.host;
    let platform = CommandPlatform::server(host.server.as_deref(), config)?;
    platform::with(platform, printer, async |client, signals| {
        client.drain(&host.name, true).await?;
        printer.note(&format!("{} gets no new work", host.name));
        if args.wait {
            signals.waiting_for("what runs there");
            is_drained(client, host).await?;
            printer.note(&format!("nothing runs on {}", host.name));
        }
        Ok(())
    })?;
    Ok(0)
}

/// Waits until nothing runs on a host, or it has left.
async fn is_drained(client: &ApiClient, host: &HostArgs) -> Result<(), ErrorReport> {
    loop {
        let hosts = client.hosts().await?;
        let found = hosts.iter().find(|each| each.name == host.name);
        if found.is_none_or(|found| found.state == HostState::Drained) {
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn undrain(host: &HostArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let platform = CommandPlatform::server(host.server.as_deref(), config)?;
    platform::with(platform, printer, async |client, _| client.drain(&host.name, false).await)?;
    printer.note(&format!("{} gets new work again", host.name));
    Ok(0)
}

fn remove(host: &HostArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let platform = CommandPlatform::server(host.server.as_deref(), config)?;
    platform::with(platform, printer, async |client, _| client.remove_host(&host.name).await)?;
    printer.note(&format!("{} is refused from now on", host.name));
    Ok(0)
}

fn row(host: &HostSummary) -> Vec<String> {
    let last_seen = Duration::from_millis(host.heard_ms);
    vec![
        host.name.to_string(),
        host.address.map_or_else(|| "local".to_owned(), |address| address.to_string()),
        host.facts.version.clone(),
        match host.state {
            HostState::Active => "active".to_owned(),
            HostState::Free => "free".to_owned(),
            HostState::Draining => "draining".to_owned(),
            HostState::Drained => "drained".to_owned(),
        },
        host.facts.cores.to_string(),
        ByteSize(host.facts.memory).to_string(),
        host.facts.ranks.saturating_add(host.calls).to_string(),
        match host.address {
            Some(_) => format!("{} ago", text::setting(last_seen)),
            None => "-".to_owned(),
        },
    ]
}
