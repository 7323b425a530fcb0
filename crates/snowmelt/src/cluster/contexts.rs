//! `snowmelt context`: names of platforms on other hosts.

use std::path::{Path, absolute};

use serde::Serialize;
use snowmelt_control::client::login::contexts::{Contexts, LOCAL, PlatformContext, check_name};
use snowmelt_types::{Code, ErrorReport, Tenant};

use crate::args::{
    ContextCommand, ContextTokenArgs, GlobalArgs, LsContextArgs, SetContextArgs, ShowContextArgs,
    ShowFormat,
};
use crate::config::{Config, RemoteAccess, remote_server};
use crate::output::list;
use crate::platform::without_platform;
use crate::terminal::{CommandOutcome, Printer, printer, text};

/// A context as it is listed.
#[derive(Serialize)]
struct ListedContext<'c> {
    name: &'c str,
    is_current: bool,
    #[serde(flatten)]
    context: Option<&'c PlatformContext>,
    /// The end of the login's token, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_expires_ms: Option<u64>,
    #[serde(skip)]
    credential: String,
}

/// The connection to a platform, for other programs.
#[derive(Serialize)]
struct ShownConnection<'c> {
    context: Option<&'c str>,
    url: &'c str,
    ca: Option<&'c Path>,
    tenant: Option<&'c Tenant>,
    token: String,
    expires_ms: Option<u64>,
}

/// Runs one of the commands.
///
/// # Errors
/// `SM-0110` for a context that is missing, and for a name or a file that is wrong; `SM-0525` and
/// `SM-0524` for a login that is over or cannot be renewed.
pub fn run(
    command: &ContextCommand,
    global: &GlobalArgs,
    config: &Config,
    printer: Printer,
) -> CommandOutcome {
    match command {
        ContextCommand::Ls(args) => ls(args, config, printer),
        ContextCommand::Show(args) => show(args, config),
        ContextCommand::Set(args) => set(args, global, config, printer),
        ContextCommand::Use(args) => {
            change(config, printer, |contexts| {
                contexts.find(&args.name)?;
                contexts.current = Some(args.name.clone());
                Ok(())
            })?;
            printer.note(&format!("commands use the context `{}` from now on", args.name));
            Ok(0)
        }
        ContextCommand::Rm(args) => rm(&args.name, config, printer),
        ContextCommand::Token(args) => token(args, config, printer),
    }
}

fn change<T>(
    config: &Config,
    printer: Printer,
    change: impl FnOnce(&mut Contexts) -> Result<T, ErrorReport>,
) -> Result<T, crate::terminal::CommandFailure> {
    let file = config.remote.contexts_file()?;
    without_platform(printer, async || Contexts::change(file, change).await)
}

/// Returns all contexts as they are listed, after the server of this machine.
fn listed<'c>(
    contexts: &'c Contexts,
    config: &Config,
) -> Result<Vec<ListedContext<'c>>, ErrorReport> {
    let current = contexts.current.as_deref().unwrap_or(LOCAL);
    let mut listed = vec![ListedContext {
        name: LOCAL,
        is_current: current == LOCAL,
        context: None,
        token_expires_ms: None,
        credential: "the user".to_owned(),
    }];
    let store = config.remote.logins()?;
    for (name, context) in &contexts.contexts {
        let saved = store.find(name).ok().flatten().filter(|_| context.login.is_some());
        let credential = match (&context.login, &context.token_file) {
            (Some(login), _) => {
                let issuer = &login.issuer.issuer;
                let state = match &saved {
                    None => "no login",
                    Some(saved) if saved.is_renewable() || saved.expires_ms > text::now_ms() => {
                        "login"
                    }
                    Some(_) => "login over",
                };
                format!("{state} at {issuer}")
            }
            (None, Some(file)) => format!("key in {}", file.display()),
            (None, None) => "key in SNOWMELT_TOKEN".to_owned(),
        };
        listed.push(ListedContext {
            name,
            is_current: current == name,
            context: Some(context),
            token_expires_ms: saved.map(|saved| saved.expires_ms),
            credential,
        });
    }
    Ok(listed)
}

fn ls(args: &LsContextArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let contexts = Contexts::read(config.remote.contexts_file()?)?;
    let listed = listed(&contexts, config)?;
    let rows: Vec<_> = listed.iter().map(row).collect();
    list::print(args.output, &["", "name", "url", "tenant", "by"], &rows, &listed)?;
    if contexts.contexts.is_empty() {
        printer.note("no contexts of other hosts; `snowmelt login --url URL` makes one");
    }
    Ok(0)
}

fn row(listed: &ListedContext<'_>) -> Vec<String> {
    let context = listed.context;
    let tenant = context.and_then(|context| context.tenant.as_ref());
    vec![
        if listed.is_current { "*" } else { "" }.to_owned(),
        listed.name.to_owned(),
        context.map_or_else(|| "-".to_owned(), |context| text::visible(&context.url).into_owned()),
        tenant.map_or_else(|| "-".to_owned(), Tenant::to_string),
        text::visible(&listed.credential).into_owned(),
    ]
}

fn show(args: &ShowContextArgs, config: &Config) -> CommandOutcome {
    let contexts = Contexts::read(config.remote.contexts_file()?)?;
    let name = args.name.as_deref().or(contexts.current.as_deref()).unwrap_or(LOCAL);
    contexts.find(name)?;
    let listed = listed(&contexts, config)?;
    let Some(found) = listed.iter().find(|listed| listed.name == name) else { return Ok(0) };
    let shown = match args.output {
        ShowFormat::Json => list::json(found)?,
        ShowFormat::Table => {
            let headings = ["name", "url", "tenant", "by"];
            let mut values = row(found).into_iter().skip(1);
            let lines = headings
                .map(|heading| format!("{heading:<8}{}\n", values.next().unwrap_or_default()));
            lines.concat()
        }
    };
    printer::print(&shown)?;
    Ok(0)
}

fn set(
    args: &SetContextArgs,
    global: &GlobalArgs,
    config: &Config,
    printer: Printer,
) -> CommandOutcome {
    check_name(&args.name)?;
    let whole = |file: &std::path::PathBuf| absolute(file).unwrap_or_else(|_| file.clone());
    change(config, printer, |contexts| {
        let before = contexts.contexts.remove(&args.name);
        let url = global.url.clone().or_else(|| before.as_ref().map(|before| before.url.clone()));
        let url = url.ok_or_else(|| {
            let message = format!("the context `{}` needs the address of a platform", args.name);
            ErrorReport::new(Code::OPTION, message).hint("use --url https://HOST:PORT")
        })?;
        // A key and a login are for one address.
        let before = before.filter(|before| before.url == url);
        let mut context = before.unwrap_or_else(|| PlatformContext::new(&url));
        if let Some(file) = &args.ca {
            context.ca = Some(whole(file));
        }
        if let Some(file) = &args.token_file {
            context.token_file = Some(whole(file));
            context.login = None;
        }
        if global.tenant.is_some() {
            context.tenant = global.tenant.clone();
        }
        remote_server(&context.url, context.ca.as_deref())?;
        contexts.contexts.insert(args.name.clone(), context);
        contexts.current.get_or_insert_with(|| args.name.clone());
        Ok(())
    })?;
    printer.note(&format!("the context `{}` is set", args.name));
    Ok(0)
}

fn rm(name: &str, config: &Config, printer: Printer) -> CommandOutcome {
    check_name(name)?;
    let file = config.remote.contexts_file()?;
    let store = config.remote.logins()?;
    without_platform(printer, async || {
        let removed = Contexts::change(file, |contexts| {
            contexts.find(name)?;
            contexts.current = contexts.current.take().filter(|current| current != name);
            Ok(contexts.contexts.remove(name))
        });
        let login = removed.await?.and_then(|context| context.login);
        store.forget(name, login.as_ref()).await
    })?;
    printer.note(&format!("the context `{name}` is removed"));
    Ok(0)
}

fn token(args: &ContextTokenArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let remote = &config.remote;
    let shown = match (remote.server()?, &remote.url) {
        (Some(RemoteAccess { credential, .. }), Some(url)) => {
            let current = without_platform(printer, async || credential.current().await)?;
            let header = current.token.header();
            let token = header.strip_prefix("Bearer ").unwrap_or_default().to_owned();
            let shown = ShownConnection {
                context: remote.context.as_ref().map(|context| &*context.value),
                url: &url.value,
                ca: remote.ca.as_ref().map(|file| &*file.value),
                tenant: config.tenant.as_ref().map(|tenant| &tenant.value),
                token,
                expires_ms: current.expires_ms,
            };
            match args.output {
                ShowFormat::Json => list::json(&shown)?,
                ShowFormat::Table => format!("{}\n", shown.token),
            }
        }
        _ if args.output == ShowFormat::Json => "null\n".to_owned(),
        _ => {
            let message = "the server of this machine takes no token";
            return Err(ErrorReport::new(Code::OPTION, message)
                .hint("name a platform on another host: --context")
                .into());
        }
    };
    printer::print(&shown)?;
    Ok(0)
}
