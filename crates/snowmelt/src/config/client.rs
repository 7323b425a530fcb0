//! The platform on another host that commands use, with the key or the login for it.
//!
//! Invariant: the first of these that is set chooses the platform: `--context` or `--url`,
//! `SNOWMELT_CONTEXT`, `SNOWMELT_URL`, `client.context`, `client.url`, the current context. What
//! belongs to a context (address, certificates, credentials) is not mixed with settings of another
//! platform; only a context without credentials takes the key of `SNOWMELT_TOKEN`.

use std::path::{Path, PathBuf};

use snowmelt_control::client::login::LoginStore;
use snowmelt_control::client::login::contexts::{ContextLogin, Contexts, LOCAL, PlatformContext};
use snowmelt_control::client::{TlsServer, Token};
use snowmelt_types::{Code, ErrorReport, Tenant};

use super::keys::{CLIENT_CA, CLIENT_CONTEXT, CLIENT_TOKEN_FILE, TENANT, URL};
use super::{ConfigSources, ConfigValue, ValueOrigin};
use crate::args::{Cli, Command, ContextCommand};
use crate::env;
use crate::terminal::text;

/// The address of a platform on another host, and how it is used.
#[derive(Clone, Debug, Default)]
pub struct RemotePlatform {
    /// The file of contexts; `None` without a home folder.
    pub contexts: Option<PathBuf>,
    /// The name of the context; absent where a URL was named or nothing.
    pub context: Option<ConfigValue<String>>,
    /// The URL; if absent, commands use the server of this machine.
    pub url: Option<ConfigValue<String>>,
    /// PEM file with authorities of the server's certificate; those of the system if absent.
    pub ca: Option<ConfigValue<PathBuf>>,
    /// File with the token.
    pub token_file: Option<ConfigValue<PathBuf>>,
    /// The place of logins.
    pub login: Option<ContextLogin>,
    /// The tenant of the context.
    pub tenant: Option<ConfigValue<Tenant>>,
}

/// A platform on another host, and the proof of who asks.
pub struct RemoteAccess {
    /// The server.
    pub server: TlsServer,
    /// The proof.
    pub credential: Credential,
}

/// The proof of who asks.
pub enum Credential {
    /// A key.
    Key(Token),
    /// The login of a context, whose token is renewed.
    Login(Box<LoginOfContext>),
}

/// The login of a context.
pub struct LoginOfContext {
    context: String,
    login: ContextLogin,
    store: LoginStore,
}

/// A token, and its end in milliseconds since 1970.
pub struct CurrentToken {
    /// The token.
    pub token: Token,
    /// The end; `None` for a key, of which only the server knows it.
    pub expires_ms: Option<u64>,
}

impl Credential {
    /// Returns a token that is valid now.
    ///
    /// # Errors
    /// `SM-0525` if a person has to log in again, `SM-0524` for an issuer that fails.
    pub async fn current(&self) -> Result<CurrentToken, ErrorReport> {
        match self {
            Self::Key(token) => Ok(CurrentToken { token: token.clone(), expires_ms: None }),
            Self::Login(login) => {
                let LoginOfContext { context, login, store } = &**login;
                let saved = store.current(context, login).await?;
                let token = valid(saved.token())?;
                Ok(CurrentToken { token, expires_ms: Some(saved.expires_ms) })
            }
        }
    }
}

impl RemotePlatform {
    pub(super) fn load(sources: &ConfigSources, cli: &Cli) -> Result<Self, ErrorReport> {
        let contexts = env::contexts_file();
        if !uses_platform(&cli.command) {
            return Ok(Self { contexts, ..Self::default() });
        }
        let text = |text: &str| Ok(text.to_owned());
        let url = sources.maybe(&URL, cli.global.url.clone(), text)?;
        let context = sources.maybe(&CLIENT_CONTEXT, cli.global.context.clone(), text)?;
        if let (Some(_), Some(_)) = (&cli.global.url, &cli.global.context) {
            return Err(wrong("a command uses either a context or a URL".to_owned())
                .hint("omit --url or --context"));
        }
        let is_url = match (&url, &context) {
            (Some(url), Some(context)) => rank(&url.origin) < rank(&context.origin),
            (url, _) => url.is_some(),
        };
        if is_url {
            let ca = sources.file(&CLIENT_CA, None)?;
            let token_file = sources.file(&CLIENT_TOKEN_FILE, None)?;
            return Ok(Self { contexts, url, ca, token_file, ..Self::default() });
        }
        let read = contexts.as_deref().map(Contexts::read).transpose()?.unwrap_or_default();
        let current = || {
            let origin = ValueOrigin::Current(contexts.clone()?);
            Some(ConfigValue { value: read.current.clone()?, origin })
        };
        let Some(context) = context.or_else(current) else {
            return Ok(Self { contexts, ..Self::default() });
        };
        let found = read.find(&context.value)?.cloned();
        let remote = found.map(|found| Self::of(&context.value, found)).unwrap_or_default();
        Ok(Self { contexts, context: Some(context), ..remote })
    }

    /// Returns the tenant of commands: that of a context is meant for its platform, and that of a
    /// file for all.
    pub(super) fn tenant(
        &self,
        sources: &ConfigSources,
        cli: &Cli,
    ) -> Result<Option<ConfigValue<Tenant>>, ErrorReport> {
        let tenant = sources.maybe(&TENANT, cli.global.tenant.clone(), str::parse)?;
        let is_of_file =
            |value: &ConfigValue<Tenant>| matches!(value.origin, ValueOrigin::File(..));
        let first = tenant.as_ref().filter(|value| !is_of_file(value)).or(self.tenant.as_ref());
        Ok(first.cloned().or(tenant))
    }

    fn of(name: &str, context: PlatformContext) -> Self {
        let origin = ValueOrigin::Context(name.to_owned());
        let PlatformContext { url, ca, tenant, token_file, login } = context;
        Self {
            url: Some(ConfigValue { value: url, origin: origin.clone() }),
            ca: ca.map(|value| ConfigValue { value, origin: origin.clone() }),
            token_file: token_file.map(|value| ConfigValue { value, origin: origin.clone() }),
            login,
            tenant: tenant.map(|value| ConfigValue { value, origin }),
            ..Self::default()
        }
    }

    /// Returns the folder of logins.
    ///
    /// # Errors
    /// `SM-0110` without a home folder.
    pub fn logins(&self) -> Result<LoginStore, ErrorReport> {
        Ok(LoginStore::new(&self.contexts_file()?.with_file_name("logins")))
    }

    /// Returns the file of contexts.
    ///
    /// # Errors
    /// `SM-0110` without a home folder.
    pub fn contexts_file(&self) -> Result<&Path, ErrorReport> {
        self.contexts.as_deref().ok_or_else(|| {
            wrong("there is no place for contexts".to_owned())
                .hint("set HOME, or SNOWMELT_CONTEXTS to a file")
        })
    }

    /// Returns the server and the proof for it; `None` if commands use the server of this machine.
    ///
    /// # Errors
    /// `SM-0110` for a URL or file that is not valid, and without a proof.
    pub fn server(&self) -> Result<Option<RemoteAccess>, ErrorReport> {
        let Some(url) = &self.url else { return Ok(None) };
        let server = server(&url.value, self.ca.as_ref().map(|file| &*file.value))?;
        let name =
            self.context.as_ref().map(|context| &*context.value).filter(|name| *name != LOCAL);
        let credential = match (&self.login, name) {
            (Some(login), Some(name)) => Credential::Login(Box::new(LoginOfContext {
                context: name.to_owned(),
                login: login.clone(),
                store: self.logins()?,
            })),
            _ => Credential::Key(self.key(&server, name)?),
        };
        Ok(Some(RemoteAccess { server, credential }))
    }

    /// Returns the key for a platform. The file of a context comes before the variable, which may
    /// have the key for another platform.
    fn key(&self, server: &TlsServer, context: Option<&str>) -> Result<Token, ErrorReport> {
        let variable = env::client_token();
        let file = self.token_file.as_ref().filter(|_| variable.is_none() || context.is_some());
        let text = match (file, variable) {
            (Some(file), _) => String::from_utf8_lossy(&read(&file.value)?).into_owned(),
            (None, Some(token)) => token,
            (None, None) => {
                return Err(wrong(format!("there is no token for the platform at {server}")).hint(
                    match context {
                        Some(name) => format!("log in: snowmelt login --context {name}"),
                        None => "put it into SNOWMELT_TOKEN, or its file into client.token_file; \
                                 `snowmelt token new` makes one on the platform's machine"
                            .to_owned(),
                    },
                ));
            }
        };
        valid(&text)
    }
}

/// Returns the server at a URL, whose certificate leads to an authority of a file.
///
/// # Errors
/// `SM-0110` for a URL or file that is not valid.
pub fn server(url: &str, ca: Option<&Path>) -> Result<TlsServer, ErrorReport> {
    let authorities = ca.map(read).transpose()?;
    TlsServer::new(url, authorities.as_deref()).map_err(|problem| {
        let of_file = ca.filter(|_| problem.contains("certificate"));
        wrong(of_file.map_or(problem.clone(), |file| format!("{}: {problem}", file.display())))
    })
}

/// Returns whether a command uses a platform that is running somewhere. Those about contexts work
/// also where the current one is wrong, and a server is one itself.
fn uses_platform(command: &Command) -> bool {
    if let Command::Context(command) = command {
        return matches!(command, ContextCommand::Token(_));
    }
    !matches!(
        command,
        Command::Login(_)
            | Command::Logout(_)
            | Command::Up(_)
            | Command::Serve(_)
            | Command::Node(_)
            | Command::Completions { .. }
            | Command::Man { .. }
    )
}

/// Returns the place of an origin among those that choose a platform.
fn rank(origin: &ValueOrigin) -> u8 {
    match origin {
        ValueOrigin::Flag => 0,
        ValueOrigin::Variable(_) => 1,
        _ => 2,
    }
}

fn valid(token: &str) -> Result<Token, ErrorReport> {
    Token::new(token).map_err(|problem| wrong(format!("the token: {problem}")))
}

fn read(file: &Path) -> Result<Vec<u8>, ErrorReport> {
    std::fs::read(file)
        .map_err(|error| wrong(format!("{}: {}", file.display(), text::reason(&error))))
}

fn wrong(problem: String) -> ErrorReport {
    ErrorReport::new(Code::OPTION, problem)
}
