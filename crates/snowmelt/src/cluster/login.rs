//! `snowmelt login` and `snowmelt logout`.

use std::path::{Path, PathBuf, absolute};

use snowmelt_api::LoginIssuer;
use snowmelt_control::client::login::contexts::{
    ContextLogin, Contexts, LOCAL, PlatformContext, check_name,
};
use snowmelt_control::client::login::{DeviceLogin, LoginStore};
use snowmelt_control::client::{ApiClient, TlsServer, Token};
use snowmelt_types::{Code, ErrorReport};

use crate::args::{GlobalArgs, LoginArgs, LogoutArgs};
use crate::config::{Config, remote_server};
use crate::env;
use crate::platform::without_platform;
use crate::terminal::{CommandOutcome, Printer, text};

/// A login to begin: the context that gets it, and its platform.
struct NewLogin {
    name: String,
    context: PlatformContext,
    server: TlsServer,
}

/// Logs in, and keeps the login for a context, which is made where it is missing.
///
/// # Errors
/// `SM-0110` for wrong options and files; `SM-0525` if the person does not approve; `SM-0524` for an
/// issuer that fails; those of the platform, if it does not accept the token.
pub fn login(
    args: &LoginArgs,
    global: &GlobalArgs,
    config: &Config,
    printer: Printer,
) -> CommandOutcome {
    let file = config.remote.contexts_file()?;
    let store = config.remote.logins()?;
    let new = new_login(args, global, &Contexts::read(file)?)?;
    without_platform(printer, async || log_in(args, new, file, &store, printer).await)?;
    Ok(0)
}

async fn log_in(
    args: &LoginArgs,
    new: NewLogin,
    file: &Path,
    store: &LoginStore,
    printer: Printer,
) -> Result<(), ErrorReport> {
    let NewLogin { name, mut context, server } = new;
    let login = place(args, &context, &server).await?;
    let issuer = login.issuer.issuer.clone();
    let begun = DeviceLogin::begin(&login).await?;
    let code = begun.code();
    let page = code.verification_uri_complete.as_ref().unwrap_or(&code.verification_uri);
    printer.line(&format!("open {page}"));
    printer.line(&format!("code {}", code.user_code));
    printer.note(&format!("waiting until {issuer} says that the login is approved"));
    let saved = begun.wait().await?;
    context.login = Some(login);
    context.token_file = None;
    let tenant = context.tenant.clone();
    store.save(&name, &saved).await?;
    Contexts::change(file, |contexts| {
        contexts.contexts.insert(name.clone(), context);
        contexts.current.get_or_insert_with(|| name.clone());
        Ok(())
    })
    .await?;
    printer.note(&format!("context `{name}`: logged in at {issuer}"));
    if !saved.is_renewable() {
        let end = text::moment(saved.expires_ms);
        printer.note(&format!("the issuer gives no refresh token: the login ends at {end}"));
    }
    // Whether the platform accepts the token, and which tenant it gives.
    let token = Token::new(saved.token()).map_err(wrong)?;
    ApiClient::remote(server, token).for_tenant(tenant.as_ref()).functions().await?;
    Ok(())
}

/// Finds the context of a login, and its platform.
fn new_login(
    args: &LoginArgs,
    global: &GlobalArgs,
    contexts: &Contexts,
) -> Result<NewLogin, ErrorReport> {
    let name = name(global, contexts)?;
    check_name(&name)?;
    let before = contexts.contexts.get(&name);
    let url = match (&global.url, before) {
        (Some(url), Some(before)) if before.url != *url => {
            let at = &before.url;
            return Err(wrong(format!("the context `{name}` is for {at}"))
                .hint("name another context, or change this one: snowmelt context set"));
        }
        (Some(url), _) => url.clone(),
        (None, Some(before)) => before.url.clone(),
        (None, None) => {
            return Err(wrong(format!("there is no context `{name}` yet"))
                .hint("name the platform: snowmelt login --url https://HOST:PORT"));
        }
    };
    let before = before.cloned();
    let context = before.unwrap_or_else(|| PlatformContext::new(&url));
    let ca = args.ca.as_ref().map(whole).or(context.ca);
    let tenant = global.tenant.clone().or(context.tenant);
    let server = remote_server(&url, ca.as_deref())?;
    Ok(NewLogin { name, context: PlatformContext { ca, tenant, ..context }, server })
}

/// Returns the name of the context: the one that is named, one for the URL, or the current one.
fn name(global: &GlobalArgs, contexts: &Contexts) -> Result<String, ErrorReport> {
    if let Some(named) = global.context.clone().or_else(|| env::text(env::CONTEXT)) {
        return Ok(named);
    }
    let Some(url) = &global.url else {
        let current = contexts.current.clone().filter(|current| current != LOCAL);
        return current.ok_or_else(|| {
            wrong("no platform is named".to_owned())
                .hint("use --url https://HOST:PORT, or --context NAME")
        });
    };
    let known = contexts.contexts.iter().find(|(_, context)| context.url == *url);
    let host = || {
        let host = url.strip_prefix("https://").unwrap_or(url);
        host.split(['/', ':']).next().unwrap_or_default().to_owned()
    };
    Ok(known.map_or_else(host, |(name, _)| name.clone()))
}

/// Returns the place of the login: what options say, and else what the platform offers.
async fn place(
    args: &LoginArgs,
    context: &PlatformContext,
    server: &TlsServer,
) -> Result<ContextLogin, ErrorReport> {
    let before = context.login.as_ref();
    let ca = args.issuer_ca.as_ref().map(whole).or_else(|| before?.ca.clone());
    if let (Some(issuer), Some(client_id)) = (&args.issuer, &args.client_id) {
        let offered = offered(server).await.unwrap_or_default();
        let known = offered.into_iter().find(|offered| offered.issuer == *issuer);
        let issuer = LoginIssuer {
            issuer: issuer.clone(),
            client_id: client_id.clone(),
            ..known.unwrap_or_else(|| LoginIssuer {
                issuer: String::new(),
                client_id: String::new(),
                scopes: ["openid", "offline_access"].map(str::to_owned).to_vec(),
                token: Default::default(),
                audience: None,
            })
        };
        return Ok(ContextLogin { issuer, ca });
    }
    let mut offered = offered(server).await?;
    // The issuer of an earlier login is meant again.
    let named = args.issuer.as_ref().or_else(|| Some(&before?.issuer.issuer));
    if let Some(named) = named {
        offered.retain(|offered| offered.issuer == *named);
    }
    let mut issuer = match offered.len() {
        1 => offered.remove(0),
        0 => {
            return Err(ErrorReport::new(Code::LOGIN, format!("{server} offers no such login"))
                .hint("use a key: snowmelt context set NAME --url URL --token-file FILE"));
        }
        _ => {
            let issuers: Vec<_> = offered.iter().map(|offered| &*offered.issuer).collect();
            let message = format!("{server} offers logins at {}", issuers.join(", "));
            return Err(ErrorReport::new(Code::LOGIN, message).hint("choose one: --issuer URL"));
        }
    };
    if let Some(client_id) = &args.client_id {
        issuer.client_id.clone_from(client_id);
    }
    Ok(ContextLogin { issuer, ca })
}

async fn offered(server: &TlsServer) -> Result<Vec<LoginIssuer>, ErrorReport> {
    Ok(ApiClient::without_token(server.clone()).login_offer().await?.issuers)
}

/// Forgets the login of a context, which stays.
///
/// # Errors
/// `SM-0110` for a context or file that is wrong; `SM-0525` if nobody has logged in.
pub fn logout(
    LogoutArgs {}: &LogoutArgs,
    global: &GlobalArgs,
    config: &Config,
    printer: Printer,
) -> CommandOutcome {
    let contexts = Contexts::read(config.remote.contexts_file()?)?;
    let name = name(global, &contexts)?;
    check_name(&name)?;
    let login = contexts.find(&name)?.and_then(|context| context.login.as_ref());
    let store = config.remote.logins()?;
    let was_there = without_platform(printer, async || store.forget(&name, login).await)?;
    if !was_there {
        let message = format!("context `{name}`: nobody has logged in");
        return Err(ErrorReport::new(Code::LOGIN, message).into());
    }
    printer.note(&format!("context `{name}`: logged out"));
    Ok(0)
}

fn whole(file: &PathBuf) -> PathBuf {
    absolute(file).unwrap_or_else(|_| file.clone())
}

fn wrong(problem: String) -> ErrorReport {
    ErrorReport::new(Code::OPTION, problem)
}
