//! The platform that a command uses: a running server, or one inside this process.
//!
//! Invariant: an embedded platform is prepared before any thread is started, because its spawner
//! must be forked from a single-threaded process, and has ended when [`with`] returns.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use snowmelt_control::client::ApiClient;
use snowmelt_control::server::image_server::ImageServer;
use snowmelt_control::server::{Launch, Placing, ServerSettings};
use snowmelt_types::{Code, ErrorReport, Tenant};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::args::PlatformArgs;
use crate::config::{Config, RemoteAccess, cluster, remote};
use crate::terminal::{CommandFailure, Printer, ProgressDisplay, Signals, text};

/// The file name of the program that runs queries.
const QUERY_PROGRAM: &str = "snowmelt-query";

/// The time after which a command reports that it waits for the sandboxes.
const NOTICE_AFTER: Duration = Duration::from_secs(2);
/// The further time after which a command stops waiting; the next start cleans up.
const END_TIMEOUT: Duration = Duration::from_secs(15);

/// The platform of a command.
pub struct CommandPlatform {
    place: PlatformPlace,
    /// The tenant that requests act for.
    tenant: Option<Tenant>,
}

enum PlatformPlace {
    /// A running server, at this socket.
    Server(PathBuf),
    /// A server on another host, and the proof of who asks.
    Remote(RemoteAccess),
    /// A platform that this process starts and stops.
    Embedded(Box<Launch>),
}

impl CommandPlatform {
    /// Finds the platform that the user chose, or the running server, or starts a platform.
    ///
    /// # Errors
    /// `SM-0503` if a server refuses the connection; those of [`Launch::prepare`].
    pub fn find(args: &PlatformArgs, config: &Config) -> Result<Self, ErrorReport> {
        let is_remote = config.remote.url.is_some();
        if args.server.is_some() || !args.embedded && (is_remote || answers(&config.socket.value)?)
        {
            return Self::server(args.server.as_deref(), config);
        }
        let settings = embedded_settings(config)?;
        Ok(Self::new(PlatformPlace::Embedded(Box::new(Launch::prepare(settings)?)), config))
    }

    /// A server, which must be running: at a socket, or the one that the configuration names.
    ///
    /// # Errors
    /// `SM-0110` for wrong settings of a platform on another host.
    pub fn server(server: Option<&Path>, config: &Config) -> Result<Self, ErrorReport> {
        if let Some(socket) = server {
            return Ok(Self::new(PlatformPlace::Server(socket.to_owned()), config));
        }
        let place = match config.remote.server()? {
            Some(access) => PlatformPlace::Remote(access),
            None => PlatformPlace::Server(config.socket.value.clone()),
        };
        Ok(Self::new(place, config))
    }

    fn new(place: PlatformPlace, config: &Config) -> Self {
        let tenant = config.tenant.as_ref().map(|tenant| tenant.value.clone());
        Self { place, tenant }
    }

    /// True if the platform ends with this command.
    pub fn is_embedded(&self) -> bool {
        matches!(self.place, PlatformPlace::Embedded(_))
    }
}

/// Settings of a platform that ends with this process and has a private socket.
pub fn embedded_settings(config: &Config) -> Result<ServerSettings, ErrorReport> {
    settings(config, None)
}

/// Settings of a node process, which serves no socket.
pub fn node_settings(config: &Config) -> Result<ServerSettings, ErrorReport> {
    let name = cluster::name(config)?;
    let networks_dir = Some(config.state.value.join("networks").join(name.as_str()));
    // A node of root gives up nothing yet, so it trusts nobody else's packages.
    Ok(ServerSettings { networks_dir, trusted: None, ..settings(config, None)? })
}

/// Settings of the server that commands find.
pub fn server_settings(config: &Config) -> Result<ServerSettings, ErrorReport> {
    let cluster = cluster::of_server(config)?;
    let remote = remote::of_server(config)?;
    let networks_dir = Some(config.state.value.join("networks"));
    let socket = Some(config.socket.value.clone());
    let user = config.user.as_ref().map(|user| user.value.clone());
    let audit = config.audit.settings()?;
    let store = config.store.settings()?;
    let own = settings(config, socket)?;
    Ok(ServerSettings { user, cluster, remote, networks_dir, audit, store, ..own })
}

fn settings(config: &Config, socket: Option<PathBuf>) -> Result<ServerSettings, ErrorReport> {
    let binary = std::env::current_exe().map_err(|error| {
        ErrorReport::new(Code::INTERNAL, format!("the path of this binary is unknown: {error}"))
    })?;
    Ok(ServerSettings {
        state_dir: config.state.value.clone(),
        run_base: config.run.value.clone(),
        secrets_dir: config.secrets.value.clone(),
        http_sources: config.http_sources.value.clone(),
        private: socket.is_none(),
        // Members of the group must still be able to traverse the state folder.
        group: config.group.as_ref().map(|group| group.value.clone()),
        socket,
        user: None,
        trusted: config.user.as_ref().map(|user| user.value.user),
        spawner_command: vec![binary.clone().into(), "internal".into(), "spawner".into()],
        worker_binary: query_program(&binary),
        program: binary,
        enforcement: config.enforcement.value,
        handler_cache: config.handler_cache.value,
        import_cache: config.import_cache.value,
        images: config.images(),
        memory: config.host_memory.as_ref().map(|memory| memory.value),
        total: config.total(),
        overcommit: config.sandboxes_overcommit.value,
        audit: None,
        store: None,
        quotas: config.quotas.value.clone(),
        placing: Placing {
            instances_per_host: config.instances_per_host.value,
            reclaim_after: config.reclaim_after.value,
            burst_wait: config.burst_wait.value,
            is_elastic: config.pool.provider.is_some(),
        },
        provider: config.pool.program(),
        python: config.python.clone().map(|python| python.value),
        cluster: None,
        remote: None,
        networks_dir: None,
    })
}

/// The program that runs queries: beside this one, or where packages install it.
pub fn query_program(binary: &Path) -> PathBuf {
    let beside = binary.with_file_name(QUERY_PROGRAM);
    let prefix = binary.parent().and_then(Path::parent);
    let packaged = prefix.map(|prefix| prefix.join("libexec/snowmelt").join(QUERY_PROGRAM));
    packaged.filter(|packaged| !beside.exists() && packaged.exists()).unwrap_or(beside)
}

/// True if a server listens on this socket, even if it is suspended.
pub fn answers(socket: &Path) -> Result<bool, ErrorReport> {
    match connect(socket) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
        Err(error) if absent(error.kind()) => Ok(false),
        Err(error) => {
            let reason = text::reason(&error);
            let message =
                format!("the server at {} refuses the connection: {reason}", socket.display());
            Err(ErrorReport::new(Code::SERVER_UNREACHABLE, message)
                .hint("run the command as the server's user, or use --embedded"))
        }
    }
}

// Non-blocking: a suspended server (SIGSTOP) accepts nothing, and its backlog may be full.
fn connect(socket: &Path) -> std::io::Result<()> {
    let address = SocketAddrUnix::new(socket)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let ours = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok(rustix::net::connect(&ours, &address)?)
}

// A path too long for a socket cannot belong to a server.
fn absent(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NotFound
            | ErrorKind::ConnectionRefused
            | ErrorKind::NotADirectory
            | ErrorKind::InvalidFilename
    )
}

/// Finds or starts a platform and runs `work` with its client. A terminal shows a progress line.
///
/// # Errors
/// Fails as [`CommandPlatform::find`] and [`with`].
pub fn with_platform<T>(
    platform: &PlatformArgs,
    config: &Config,
    printer: Printer,
    label: &str,
    work: impl AsyncFnOnce(&ApiClient) -> Result<T, ErrorReport>,
) -> Result<T, CommandFailure> {
    let platform = CommandPlatform::find(platform, config)?;
    with(platform, printer, async |client, _| {
        let _progress = ProgressDisplay::on_terminal(config.progress.value, printer, label);
        work(client).await
    })
}

/// Runs `work` with a platform, and stops the platform if this process started it.
///
/// # Errors
/// The errors of `work`; `SM-0113` with exit code 130 or 143 if a signal arrives first.
pub fn with<T>(
    platform: CommandPlatform,
    printer: Printer,
    work: impl AsyncFnOnce(&ApiClient, &Signals) -> Result<T, ErrorReport>,
) -> Result<T, CommandFailure> {
    let runtime = runtime(&platform)?;
    let done = runtime.block_on(async {
        let signals = Signals::listen(printer)?;
        let CommandPlatform { place, tenant } = platform;
        match place {
            PlatformPlace::Server(socket) => {
                let client = ApiClient::new(socket).for_tenant(tenant.as_ref());
                until_signal(&signals, work(&client, &signals)).await
            }
            PlatformPlace::Remote(RemoteAccess { server, credential }) => {
                let current = until_signal(&signals, credential.current()).await?;
                let client = ApiClient::remote(server, current.token).for_tenant(tenant.as_ref());
                until_signal(&signals, work(&client, &signals)).await
            }
            PlatformPlace::Embedded(launch) => {
                let embedded = Embedded::start(*launch);
                let client = ApiClient::new(&embedded.socket).for_tenant(tenant.as_ref());
                embedded.run(printer, &signals, work(&client, &signals)).await
            }
        }
    });
    // A blocking read in a library must not delay the exit.
    runtime.shutdown_background();
    done
}

/// Runs `work`, which needs no platform.
///
/// # Errors
/// The errors of `work`; `SM-0113` with exit code 130 or 143 if a signal arrives first.
pub fn without_platform<T>(
    printer: Printer,
    work: impl AsyncFnOnce() -> Result<T, ErrorReport>,
) -> Result<T, CommandFailure> {
    let runtime = plain_runtime()?;
    let done = runtime.block_on(async {
        let signals = Signals::listen(printer)?;
        until_signal(&signals, work()).await
    });
    // A name service that does not answer must not delay the exit.
    runtime.shutdown_background();
    done
}

/// Runs `work` with the server, or with the images of the state folder in this process if no server
/// runs. Images need no sandboxes, and so no root.
///
/// # Errors
/// The errors of `work`; `SM-0113` with exit code 130 or 143 if a signal arrives first.
pub fn with_images<T>(
    config: &Config,
    printer: Printer,
    work: impl AsyncFnOnce(&ApiClient) -> Result<T, ErrorReport>,
) -> Result<T, CommandFailure> {
    if config.remote.url.is_some() || answers(&config.socket.value)? {
        return with(CommandPlatform::server(None, config)?, printer, async |client, _| {
            work(client).await
        });
    }
    let runtime = server_runtime()?;
    let done = runtime.block_on(async {
        let signals = Signals::listen(printer)?;
        let images = ImageServer::start(&config.state.value, config.images())?;
        let tenant = config.tenant.as_ref().map(|tenant| &tenant.value);
        let client = images.client().clone().for_tenant(tenant);
        let done = until_signal(&signals, work(&client)).await;
        signals.waiting_for("partial files to be removed");
        images.end().await;
        done
    });
    // A blocking read of a layer must not delay the exit.
    runtime.shutdown_background();
    done
}

async fn until_signal<T>(
    signals: &Signals,
    work: impl Future<Output = Result<T, ErrorReport>>,
) -> Result<T, CommandFailure> {
    tokio::select! {
        biased;
        () = signals.token().cancelled() => Err(signals.failure()),
        done = work => done.map_err(CommandFailure::from),
    }
}

struct Embedded {
    socket: PathBuf,
    shutdown: CancellationToken,
    serving: JoinHandle<Result<(), ErrorReport>>,
}

impl Embedded {
    fn start(launch: Launch) -> Self {
        let socket = launch.socket().to_owned();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(launch.serve(shutdown.clone()));
        Self { socket, shutdown, serving }
    }

    async fn run<T>(
        mut self,
        printer: Printer,
        signals: &Signals,
        work: impl Future<Output = Result<T, ErrorReport>>,
    ) -> Result<T, CommandFailure> {
        let done = tokio::select! {
            biased;
            // The platform's own error is more precise than the client's failed connection.
            ended = &mut self.serving => return Err(joined(ended).err().unwrap_or_else(stopped).into()),
            done = until_signal(signals, work) => done,
        };
        signals.waiting_for("the sandboxes to end");
        let closed = self.close(printer).await;
        let done = done?;
        closed?;
        Ok(done)
    }

    async fn close(mut self, printer: Printer) -> Result<(), ErrorReport> {
        self.shutdown.cancel();
        if let Ok(ended) = tokio::time::timeout(NOTICE_AFTER, &mut self.serving).await {
            return joined(ended);
        }
        printer.note("waiting for the sandboxes to end");
        match tokio::time::timeout(END_TIMEOUT, &mut self.serving).await {
            Ok(ended) => joined(ended),
            Err(_) => Err(ErrorReport::new(Code::INTERNAL, "the sandboxes did not end in time")
                .hint("the next snowmelt command cleans up")),
        }
    }
}

fn joined(
    ended: Result<Result<(), ErrorReport>, tokio::task::JoinError>,
) -> Result<(), ErrorReport> {
    ended.unwrap_or_else(|error| {
        Err(ErrorReport::new(Code::INTERNAL, format!("the embedded platform failed: {error}")))
    })
}

fn stopped() -> ErrorReport {
    ErrorReport::new(Code::INTERNAL, "the embedded platform ended before its work was done")
}

// A client has one connection: more threads would only cost their start.
fn runtime(platform: &CommandPlatform) -> Result<Runtime, ErrorReport> {
    match platform.is_embedded() {
        true => server_runtime(),
        false => plain_runtime(),
    }
}

/// A runtime for a platform that serves.
pub fn server_runtime() -> Result<Runtime, ErrorReport> {
    built(tokio::runtime::Builder::new_multi_thread())
}

/// A runtime for a command that needs no platform.
pub fn plain_runtime() -> Result<Runtime, ErrorReport> {
    built(tokio::runtime::Builder::new_current_thread())
}

fn built(mut builder: tokio::runtime::Builder) -> Result<Runtime, ErrorReport> {
    builder.enable_all().build().map_err(|error| {
        ErrorReport::new(Code::INTERNAL, format!("threads cannot be started: {error}"))
    })
}
