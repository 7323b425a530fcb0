//! `snowmelt hosts`: the hosts of a cluster, and whether they get new work.

use snowmelt_api::{HostState, HostSummary};
use snowmelt_types::ByteSize;

use crate::args::{HostArgs, HostsArgs, HostsCommand};
use crate::config::Config;
use crate::output::list;
use crate::platform::{self, CommandPlatform};
use crate::terminal::{CommandOutcome, Printer, text};

/// Shows the hosts of the running platform, or drains or removes one of them.
///
/// # Errors
/// `SM-0503` if no platform is running, `SM-0713` if there is no such host.
pub fn run(args: &HostsArgs, config: &Config, printer: Printer) -> CommandOutcome {
    match &args.command {
        Some(HostsCommand::Drain(host)) => return drain(host, true, config, printer),
        Some(HostsCommand::Undrain(host)) => return drain(host, false, config, printer),
        Some(HostsCommand::Rm(host)) => return remove(host, config, printer),
        None => {}
    }
    let platform = CommandPlatform::server(args.server.as_deref(), config)?;
    let hosts = platform::with(platform, printer, async |client, _| client.hosts().await)?;
    let headings =
        ["name", "address", "state", ">cores", ">memory free", ">functions", ">last seen"];
    let rows: Vec<_> = hosts.iter().map(row).collect();
    list::print(args.output, &headings, &rows, &hosts)?;
    Ok(0)
}

fn drain(host: &HostArgs, drained: bool, config: &Config, printer: Printer) -> CommandOutcome {
    let platform = CommandPlatform::server(host.server.as_deref(), config)?;
    platform::with(platform, printer, async |client, _| client.drain(&host.name, drained).await)?;
    let new = if drained { "no new work" } else { "new work again" };
    printer.note(&format!("{} gets {new}", host.name));
    Ok(0)
}

fn remove(host: &HostArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let platform = CommandPlatform::server(host.server.as_deref(), config)?;
    platform::with(platform, printer, async |client, _| client.remove_host(&host.name).await)?;
    printer.note(&format!("{} is refused from now on", host.name));
    Ok(0)
}

fn row(host: &HostSummary) -> Vec<String> {
    let last_seen = std::time::Duration::from_millis(host.heard_ms);
    vec![
        host.name.to_string(),
        host.address.map_or_else(|| "local".to_owned(), |address| address.to_string()),
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
