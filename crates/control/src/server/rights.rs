//! How a server of root gives up its rights: a broker keeps what is needed of them (decision 083).

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::fs::{Access, Mode, OFlags};
use rustix::io::Errno;
use snowmelt_broker::{BrokerProcess, BrokerSetup};
use snowmelt_kernel::landlock;
use snowmelt_sandbox::PlatformProcess;
use snowmelt_tasks::serve_files;
use snowmelt_types::{Code, ErrorReport};
use tokio::io::unix::AsyncFd;
use tokio_util::sync::CancellationToken;

use super::server_user::FileLinks;
use super::{ServerProcess, ServerSettings, ServerUser};
use crate::access::permissions::{self, failure};

/// Runs a broker. Must be called before the process has a second thread and before it opens any file.
pub fn broker_main() -> ExitCode {
    snowmelt_broker::broker_main(serve_files)
}

/// Returns the user that a server becomes; `None` if it stays who it is.
pub(super) fn becoming(settings: &ServerSettings) -> Result<Option<ServerUser>, ErrorReport> {
    let user = settings.user.as_ref().map(ServerUser::to_become).transpose()?;
    Ok(user.flatten().cloned())
}

/// Keeps the user that a server becomes away from the state folder until the server has become it, and
/// returns what is then done with the folder's files of several names.
///
/// # Errors
/// `SM-0110` if the run folder is in the state folder: the first stays root's, and the second does not.
pub(super) fn close_state(settings: &ServerSettings) -> Result<FileLinks, ErrorReport> {
    let Some(user) = becoming(settings)? else { return Ok(FileLinks::Kept) };
    let state = settings.state_dir.canonicalize();
    let mut run = settings.run_base.as_path();
    // The folder may be made later.
    while !run.exists() {
        let Some(parent) = run.parent() else { break };
        run = parent;
    }
    if let (Ok(state), Ok(run)) = (&state, run.canonicalize())
        && run.starts_with(state)
    {
        let message = "with `server.user` the run folder may not be in the state folder";
        return Err(ErrorReport::new(Code::OPTION, message)
            .hint("name another one with SNOWMELT_RUN, such as /run/snowmelt"));
    }
    user.take_back(&settings.state_dir)
}

impl ServerProcess {
    /// Starts the broker, hands the folders of the server over to its user, and becomes that user.
    /// Returns the pidfd of the broker; `None` if the server stays who it is.
    pub(super) fn give_up_root(
        &self,
        socket: &Path,
        links: FileLinks,
    ) -> Result<Option<OwnedFd>, ErrorReport> {
        let Some(user) = becoming(&self.settings)? else { return Ok(None) };
        let failed = |error: std::io::Error| {
            ErrorReport::new(Code::INTERNAL, format!("the broker does not start: {error}"))
        };
        let setup = BrokerSetup {
            program: self.settings.program.clone(),
            run_dir: self.run_dir.clone(),
            spawner: self.spawner.setup().map_err(failed)?,
            parent_cgroup: self.control_group.clone(),
            socket: socket.to_owned(),
            user: user.user,
            group: user.group,
        };
        let program = self.settings.program.clone();
        let command = [program.into_os_string(), "internal".into(), "broker".into()];
        let known = self.spawner.processes();
        let started = known.and_then(|known| {
            let known: Vec<_> = known.iter().map(AsFd::as_fd).collect();
            BrokerProcess::start(&command, &setup, &known)?.install()
        });
        let broker = started.map_err(failed)?;
        if let Some(audit) = &self.settings.audit {
            user.own_audit(&audit.folder)?;
        }
        user.own(&self.settings.state_dir, links)?;
        if let Some(store) = &self.settings.store {
            user.own(&store.folder, FileLinks::Kept)?;
        }
        // Last: until now only root could pass.
        permissions::open_to_group(&self.settings.state_dir, self.settings.group.as_ref())?;
        // The rest of the run directory stays root's: the lanes make the roots of sandboxes there.
        let images = self.run_dir.join("images");
        std::fs::create_dir(&images).map_err(|error| failure(&images, &error))?;
        user.own(&images, FileLinks::Kept)?;
        let writable = self.writable(&user, images);
        user.become_user()?;
        self.warn_of_unreadable(&user);
        confine(&writable)?;
        Ok(Some(broker))
    }

    /// Warns of files that the server reads again later, and that its user may not read.
    fn warn_of_unreadable(&self, user: &ServerUser) {
        let settings = &self.settings;
        let remote = settings.remote.as_ref();
        let files = remote.map(|remote| remote.certificate.files()).unwrap_or_default();
        let files = files.into_iter().chain(&settings.images.ca_file);
        for path in files.chain([&settings.secrets_dir]) {
            // With the number of the user, which is that of this process now.
            if rustix::fs::access(path, Access::READ_OK) == Err(Errno::ACCESS) {
                let path = path.display();
                let user = &user.name;
                tracing::warn!(%path, %user, "the user of the server cannot read this: chgrp and chmod g+r");
            }
        }
    }

    /// Returns the folders in which a server without the rights of root may write, besides devices.
    fn writable(&self, user: &ServerUser, images: PathBuf) -> Vec<PathBuf> {
        let settings = &self.settings;
        let audit = settings.audit.as_ref().map(|audit| audit.folder.clone());
        // Freezers of sandboxes, which the lanes give to the user.
        let groups = PathBuf::from("/sys/fs/cgroup");
        let own = [settings.state_dir.clone(), images, groups, std::env::temp_dir()];
        let shared = settings.store.as_ref().map(|store| store.folder.clone());
        own.into_iter().chain(shared).chain(audit).chain(user.own_home()).collect()
    }
}

/// Restricts this process, and all programs that it starts, to writing in these folders, to the signals
/// of its own programs, and to the system calls that they need.
fn confine(writable: &[PathBuf]) -> Result<(), ErrorReport> {
    let failed = |error: String| {
        ErrorReport::new(Code::INTERNAL, format!("the server cannot be confined: {error}"))
    };
    let open = |path: &Path| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty())
    };
    let devices = open(Path::new("/dev")).map_err(|error| failed(error.to_string()))?;
    // A folder that is not there cannot be written.
    let folders: Vec<_> = writable.iter().filter_map(|folder| open(folder).ok()).collect();
    let folders: Vec<_> = folders.iter().map(AsFd::as_fd).collect();
    landlock::confine(&folders, devices.as_fd()).map_err(|error| failed(error.to_string()))?;
    let calls = PlatformProcess::Server.restrict_system_calls();
    calls.map_err(|error| failed(error.to_string()))
}

/// Ends the server in order when its broker has ended: without it no sandbox can be killed, and lanes
/// end their own ones when the server ends.
pub(super) fn end_with_broker(
    broker: OwnedFd,
    shutdown: CancellationToken,
) -> Result<(), ErrorReport> {
    #[expect(deprecated, reason = "it is unsound for types whose descriptor may change")]
    let watched = AsyncFd::new(broker);
    let watched = watched.map_err(|error| {
        ErrorReport::new(Code::INTERNAL, format!("the broker cannot be watched: {error}"))
    })?;
    tokio::spawn(async move {
        tokio::select! {
            () = shutdown.cancelled() => {}
            _ = watched.readable() => {
                tracing::error!("the broker has ended, and the server ends with it: start it again");
                shutdown.cancel();
            }
        }
    });
    Ok(())
}
