//! `snowmelt token`: keys of clients of other hosts.

use std::path::{Path, absolute};
use std::time::Duration;

use snowmelt_api::{KeyRequest, KeyRotation, KeySummary};
use snowmelt_control::access::{permissions, tokens};
use snowmelt_types::Tenant;

use crate::args::{ListArgs, NewTokenArgs, RevokeTokenArgs, RotateTokenArgs, TokenCommand};
use crate::config::Config;
use crate::output::list;
use crate::platform::with_platform;
use crate::terminal::{CommandOutcome, Printer, printer, text};

/// Runs one of the commands.
///
/// # Errors
/// `SM-0110` for a tenant that has no keys with such a role, and for a file; `SM-0518` for a key
/// with more rights than the user has; `SM-0519` if there is no such key; those of the platform.
pub fn run(command: &TokenCommand, config: &Config, printer: Printer) -> CommandOutcome {
    match command {
        TokenCommand::New(args) => match &args.tls_tokens {
            Some(file) => new_line(args, file, config, printer),
            None => new(args, config, printer),
        },
        TokenCommand::Ls(args) => ls(args, config, printer),
        TokenCommand::Rotate(args) => rotate(args, config, printer),
        TokenCommand::Revoke(args) => revoke(args, config, printer),
    }
}

fn new(args: &NewTokenArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let request = KeyRequest {
        role: args.role,
        grants: args.grants.clone(),
        note: args.note.clone(),
        expires_ms: None,
        ttl_ms: args.expires.map(milliseconds),
    };
    let made =
        with_platform(&args.platform, config, printer, "making a key", async |client| match &args
            .holder
        {
            Some(holder) => client.clone().for_tenant(Some(holder)).make_key(&request).await,
            None => client.make_key(&request).await,
        })?;
    shown(&made.text, &made.key, printer)
}

/// Prints the text of a key that was made, this once.
fn shown(text: &str, key: &KeySummary, printer: Printer) -> CommandOutcome {
    printer::print(&format!("{text}\n"))?;
    let end = key.expires_ms.map(|expires| format!(", until {}", text::moment(expires)));
    let KeySummary { id, role, tenant, .. } = key;
    let end = end.unwrap_or_default();
    printer.note(&format!("key {id}: {role} of tenant `{tenant}`{end}; it is not shown again"));
    Ok(0)
}

/// Makes a token, prints it, and adds its digest to a file.
fn new_line(args: &NewTokenArgs, file: &Path, config: &Config, printer: Printer) -> CommandOutcome {
    let file = absolute(file).unwrap_or_else(|_| file.to_owned());
    if file.parent() == Some(&*config.state.value) {
        let group = config.group.as_ref().map(|group| &group.value);
        permissions::state_folder(&config.state.value, group)?;
    }
    let tenant = config.tenant.as_ref().map(|tenant| &tenant.value);
    let holder = args.holder.as_ref().or(tenant).cloned().unwrap_or_else(Tenant::default);
    let until = args.expires.map(|time| text::now_ms().saturating_add(milliseconds(time)));
    let server = config.user.as_ref().map(|user| user.value.user);
    let token = tokens::add(&file, &holder, args.role, until, server)?;
    printer::print(&format!("{token}\n"))?;
    printer.note(&format!("{} has its digest", file.display()));
    Ok(0)
}

fn ls(args: &ListArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let label = "listing";
    let keys =
        with_platform(&args.platform, config, printer, label, async |client| client.keys().await)?;
    let headings = ["id", "tenant", "role", "names", "note", "made", "ends", "used"];
    let rows: Vec<_> = keys.iter().map(row).collect();
    list::print(args.output, &headings, &rows, &keys)?;
    if keys.is_empty() {
        printer.note("no keys; make one with `snowmelt token new TENANT`");
    }
    Ok(0)
}

fn row(key: &KeySummary) -> Vec<String> {
    let names: Vec<_> = key.grants.iter().map(|grant| grant.as_str()).collect();
    let ends = match key.expires_ms {
        None => "-".to_owned(),
        Some(expires) if expires <= text::now_ms() => "expired".to_owned(),
        Some(expires) => text::moment(expires),
    };
    vec![
        key.id.clone(),
        key.tenant.to_string(),
        key.role.to_string(),
        if names.is_empty() { "all".to_owned() } else { names.join(" ") },
        text::visible(&key.note).into_owned(),
        text::moment(key.created_ms),
        ends,
        key.used_ms.map_or_else(|| "never".to_owned(), text::ago),
    ]
}

fn rotate(args: &RotateTokenArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let rotation = KeyRotation { overlap_ms: milliseconds(args.overlap) };
    let made = with_platform(&args.platform, config, printer, "rotating", async |client| {
        client.rotate_key(id(&args.id), &rotation).await
    })?;
    shown(&made.text, &made.key, printer)
}

fn revoke(args: &RevokeTokenArgs, config: &Config, printer: Printer) -> CommandOutcome {
    with_platform(&args.platform, config, printer, "revoking", async |client| {
        client.revoke_key(id(&args.id)).await
    })?;
    printer.note("the key is revoked");
    Ok(0)
}

/// Returns the identifier in what the user named, which may be the text of a key: the secret is not
/// sent.
fn id(named: &str) -> &str {
    let named = named.strip_prefix("snowmelt-").unwrap_or(named);
    named.split('-').next().unwrap_or_default()
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_of_a_key_is_not_sent() {
        for named in
            ["0f1e2d3c4b5a6978", "snowmelt-0f1e2d3c4b5a6978", "snowmelt-0f1e2d3c4b5a6978-secret"]
        {
            assert_eq!(id(named), "0f1e2d3c4b5a6978");
        }
    }
}
