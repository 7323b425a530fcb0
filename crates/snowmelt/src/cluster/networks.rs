//! `snowmelt net`: the networks of running jobs, and the route of a packet in them.

use snowmelt_api::{
    NetworkDetail, NetworkPart, NetworkSummary, PartNetwork, Trace, TraceRequest, TraceStep,
};
use snowmelt_network::AddressEnforcement;

use crate::args::{NetCommand, NetLsArgs, NetShowArgs, NetTraceArgs, ShowFormat};
use crate::config::Config;
use crate::output::list;
use crate::platform::{self, CommandPlatform};
use crate::terminal::{CommandOutcome, Printer, printer, text};

/// Exit code of `net trace` for a packet that does not arrive.
const LOST: u8 = 1;

/// Runs one of the commands.
///
/// # Errors
/// `SM-0503` if no platform is running, `SM-0605` for an unknown job or rank.
pub fn run(command: &NetCommand, config: &Config, printer: Printer) -> CommandOutcome {
    match command {
        NetCommand::Ls(args) => ls(args, config, printer),
        NetCommand::Show(args) => show(args, config, printer),
        NetCommand::Trace(args) => trace(args, config, printer),
    }
}

fn ls(args: &NetLsArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let platform = CommandPlatform::server(args.server.as_deref(), config)?;
    let networks = platform::with(platform, printer, async |client, _| client.networks().await)?;
    let headings =
        ["job", "tenant", "function", "hosts", ">functions", "addresses", ">overlay", "since"];
    let rows: Vec<_> = networks.iter().map(row).collect();
    list::print(args.output, &headings, &rows, &networks)?;
    if networks.is_empty() {
        printer.note("no job with a network is running");
    }
    Ok(0)
}

fn row(network: &NetworkSummary) -> Vec<String> {
    let hosts: Vec<_> = network.hosts.iter().map(|host| host.as_str()).collect();
    vec![
        network.job.to_string(),
        network.tenant.to_string(),
        network.function.to_string(),
        hosts.join(" "),
        network.functions.to_string(),
        network.range4.to_string(),
        network.overlay.to_string(),
        text::moment(network.since_ms),
    ]
}

fn show(args: &NetShowArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let platform = CommandPlatform::server(args.server.as_deref(), config)?;
    let detail =
        platform::with(platform, printer, async |client, _| client.network(&args.job).await)?;
    printer::print(&match args.output {
        ShowFormat::Json => list::json(&detail)?,
        ShowFormat::Table => lines(&detail),
    })?;
    Ok(0)
}

fn lines(detail: &NetworkDetail) -> String {
    let summary = &detail.summary;
    let whole = [
        ("job", summary.job.to_string()),
        ("tenant", summary.tenant.to_string()),
        ("function", summary.function.to_string()),
        ("since", text::moment(summary.since_ms)),
        ("functions", summary.functions.to_string()),
        ("overlay", summary.overlay.to_string()),
        ("addresses", format!("{} and {}", summary.range4, summary.range6)),
    ];
    let parts = detail.parts.iter().map(|part| {
        let title = format!("\nhost {} with ranks {}\n", part.host, ranks(part));
        title + &block(&of_part(part))
    });
    block(&whole) + &parts.collect::<String>()
}

fn ranks(part: &NetworkPart) -> String {
    match part.count {
        1 => part.first.to_string(),
        count => format!("{} to {}", part.first, part.first + count - 1),
    }
}

fn of_part(part: &NetworkPart) -> Vec<(&'static str, String)> {
    match (&part.network, &part.error) {
        (Some(network), _) => of_network(network),
        (None, Some(error)) => vec![("unknown", error.message.clone())],
        (None, None) => Vec::new(),
    }
}

fn of_network(network: &PartNetwork) -> Vec<(&'static str, String)> {
    let spec = &network.spec;
    let counters = &network.counters;
    let objects = &network.contents;
    let enforcement = match network.enforcement {
        AddressEnforcement::Cgroup => "BPF programs on the cgroups",
        AddressEnforcement::Notifier => "the node, by seccomp notification",
    };
    let netlink = format!(
        "{} messages in {} calls, {} crossings, {} devices moved",
        counters.messages, counters.batches, counters.crossings, counters.moves
    );
    let contents = format!(
        "{} sockets, {} routes, {} neighbours and forwarding entries",
        objects.sockets, objects.routes, objects.neighbours
    );
    let mut rows = vec![
        ("host", spec.host.to_string()),
        ("addresses", format!("{} and {}", spec.own4, spec.own6)),
        ("namespace", format!("net:[{}]", network.namespace)),
        ("device", network.device.clone()),
        ("packets", format!("{} bytes to other hosts", network.mtu)),
        ("enforced", format!("by {enforcement}")),
        ("netlink", netlink),
        ("contains", contents),
    ];
    rows.extend(
        spec.peers.iter().map(|peer| {
            ("route", format!("{} and {} via {}", peer.range4, peer.range6, peer.host))
        }),
    );
    rows
}

fn block(rows: &[(&str, String)]) -> String {
    rows.iter().map(|(name, value)| format!("{name:<10} {}\n", text::visible(value))).collect()
}

fn trace(args: &NetTraceArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let platform = CommandPlatform::server(args.server.as_deref(), config)?;
    let request =
        TraceRequest { from: args.from, to: args.to.to, port: args.to.port, ipv6: args.ipv6 };
    let trace = platform::with(platform, printer, async |client, _| {
        client.trace(&args.job, &request).await
    })?;
    let headings = ["", "host", "step", "found"];
    let rows: Vec<_> = trace.steps.iter().map(step).collect();
    list::print(args.output, &headings, &rows, &trace)?;
    printer.note(&summary(&trace));
    Ok(if trace.arrives { 0 } else { LOST })
}

fn step(step: &TraceStep) -> Vec<String> {
    let word = if step.ok { "ok" } else { "fail" };
    vec![word.to_owned(), step.host.to_string(), step.check.clone(), step.found.clone()]
}

fn summary(trace: &Trace) -> String {
    let end = |rank: Option<u32>| rank.map(|rank| format!("rank {rank}, "));
    let failed = trace.steps.iter().find(|step| !step.ok);
    let how = match failed {
        None => "arrives".to_owned(),
        Some(step) => format!("does not arrive: {} on {}", step.check, step.host),
    };
    format!(
        "a packet from {}{} to {}{} {how}",
        end(trace.from.rank).unwrap_or_default(),
        trace.from.address,
        end(trace.to.rank).unwrap_or_default(),
        trace.to.address,
    )
}
