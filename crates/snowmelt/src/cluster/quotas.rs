//! `snowmelt quota`: what tenants use, and their limits.

use snowmelt_api::{QuotaRequest, QuotaSummary, QuotaUse};

use crate::args::{ListArgs, QuotaCommand, ResetQuotaArgs, SetQuotaArgs};
use crate::config::Config;
use crate::output::list;
use crate::platform::with_platform;
use crate::terminal::{CommandOutcome, Printer};

/// The most users of a quota that a row names.
const MAX_NAMED: usize = 3;

/// Runs one of the commands.
///
/// # Errors
/// `SM-0518` where only operators may; those of the platform.
pub fn run(command: &QuotaCommand, config: &Config, printer: Printer) -> CommandOutcome {
    match command {
        QuotaCommand::Ls(args) => ls(args, config, printer),
        QuotaCommand::Set(args) => set(args, config, printer),
        QuotaCommand::Reset(args) => reset(args, config, printer),
    }
}

fn ls(args: &ListArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let label = "listing";
    let quotas = with_platform(&args.platform, config, printer, label, async |client| {
        client.quotas().await
    })?;
    let headings = ["tenant", "quota", "used", "limit", "by"];
    let rows: Vec<_> = quotas.iter().flat_map(rows).collect();
    list::print(args.output, &headings, &rows, &quotas)?;
    if quotas.is_empty() {
        printer.note("no tenant uses anything, and none has limits of its own");
    }
    Ok(0)
}

fn rows(of: &QuotaSummary) -> impl Iterator<Item = Vec<String>> {
    of.quotas.iter().map(|quota| row(of, quota))
}

fn row(of: &QuotaSummary, quota: &QuotaUse) -> Vec<String> {
    let QuotaUse { kind, used, limit, own, by } = quota;
    let origin = if *own { "" } else { " (default)" };
    let limit = match limit {
        Some(limit) => format!("{}{origin}", kind.shown(*limit)),
        None if *own => "none".to_owned(),
        None => "-".to_owned(),
    };
    let some = by.iter().take(MAX_NAMED);
    let mut some: Vec<_> =
        some.map(|one| format!("{} {}", kind.shown(one.used), one.name)).collect();
    if by.len() > MAX_NAMED {
        some.push("…".to_owned());
    }
    vec![of.tenant.to_string(), kind.to_string(), kind.shown(*used), limit, some.join(", ")]
}

fn set(args: &SetQuotaArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let limits = args.limits.iter().map(|named| (named.kind, named.limit)).collect();
    let request = QuotaRequest { limits };
    with_platform(&args.platform, config, printer, "setting quotas", async |client| {
        client.clone().for_tenant(Some(&args.holder)).set_quotas(&request).await
    })?;
    printer.note(&format!("the quotas of tenant `{}` are set", args.holder));
    Ok(0)
}

fn reset(args: &ResetQuotaArgs, config: &Config, printer: Printer) -> CommandOutcome {
    with_platform(&args.platform, config, printer, "resetting quotas", async |client| {
        client.clone().for_tenant(Some(&args.holder)).reset_quotas().await
    })?;
    printer.note(&format!("tenant `{}` has the default quotas", args.holder));
    Ok(0)
}
