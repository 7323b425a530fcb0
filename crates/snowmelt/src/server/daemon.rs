//! `snowmelt up`: a server that outlives its terminal.
//!
//! `up` starts `internal daemon`, which calls setsid(2) and starts `internal serve` in the new
//! session: the server has no terminal and cannot acquire one. Both hold the pipe on which `up`
//! waits, so that `up` detects a failed start immediately and reads the error from the log.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::OFlags;
use snowmelt_types::{Code, ErrorReport};

use super::log_file;
use super::serve::refuse_second;
use crate::args::UpArgs;
use crate::config::Config;
use crate::env;
use crate::terminal::{CommandOutcome, Printer, text};

/// The number of lines of the log that are shown if a server failed to start without an error
/// report.
const TAIL: usize = 10;
/// The number of bytes at the end of the log that are searched for these lines.
const TAIL_BYTES: u64 = 64 << 10;

/// Starts a server in the background and waits until it responds.
///
/// # Errors
/// `SM-0504` if one is running, the error of a server that fails, `SM-0505` for the state folder.
pub fn up(args: &UpArgs, config: &Config, printer: Printer) -> CommandOutcome {
    if args.foreground {
        return super::foreground(config, printer);
    }
    refuse_second(config)?;
    let group = config.group.as_ref().map(|group| &group.value);
    snowmelt_control::access::permissions::state_folder(&config.state.value, group)?;
    let log = Log::open(&config.state.value)?;
    let announced = start(config, &log).map_err(|error| {
        ErrorReport::new(Code::INTERNAL, format!("the server cannot be started: {error}"))
    })?;
    let Some(socket) = announced else { return Err(log.failure().into()) };
    printer.note(&format!("the server is up at {socket} (log: {})", log.path.display()));
    Ok(0)
}

/// Starts the server; returns its socket, or `None` if it exited before it was ready.
fn start(config: &Config, log: &Log) -> io::Result<Option<String>> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["internal", "daemon"])
        // The server's working folder is `/`, and the paths must mean the same there.
        .env(env::STATE, &config.state.value)
        .env(env::SOCKET, &config.socket.value)
        .env(env::RUN, &config.run.value)
        .env(env::ERRORS, "json")
        .envs(config.tls.variables())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log.file.try_clone()?);
    if let Some(listen) = &config.listen {
        command.env(env::LISTEN, listen.value.to_string());
    }
    if let Some(file) = &config.security.token_file {
        command.env(env::TOKEN_FILE, &file.value);
    }
    command.env(env::PLAINTEXT, config.security.plaintext.value.to_string());
    if let Some(host) = &config.host {
        command.env(env::HOST, host.value.as_str());
    }
    if let Some(memory) = &config.host_memory {
        command.env(env::HOST_MEMORY, memory.value.bytes().to_string());
    }
    if let Some(share) = &config.share_link {
        command.env(env::SHARE_LINK, share.value.bytes().to_string());
    }
    if let Some(python) = &config.python {
        command.env(env::PYTHON, &python.value);
    }
    if let Some(file) = &config.ca_file {
        command.env(env::CA_FILE, &file.value);
    }
    if let Some(file) = env::path(env::CONFIG) {
        command.env(env::CONFIG, std::path::absolute(file)?);
    }
    let mut child = command.spawn()?;
    let mut line = String::new();
    if let Some(pipe) = child.stdout.take() {
        BufReader::new(pipe).read_line(&mut line)?;
    }
    child.wait()?;
    let announced: Option<serde_json::Value> = serde_json::from_str(&line).ok();
    Ok(announced.and_then(|ready| ready["socket"].as_str().map(str::to_owned)))
}

/// `internal daemon`: detaches from the terminal and starts the server. Must not be the leader of a
/// process group.
///
/// # Errors
/// `SM-0901` if a system call fails.
pub fn detach() -> CommandOutcome {
    let detached = || -> io::Result<()> {
        rustix::process::setsid()?;
        rustix::process::chdir("/")?;
        Command::new(std::env::current_exe()?).args(["internal", "serve"]).spawn()?;
        Ok(())
    };
    detached().map(|()| 0).map_err(|error| {
        ErrorReport::new(Code::INTERNAL, format!("the server cannot be detached: {error}")).into()
    })
}

/// The server's log, from the position of this start.
struct Log {
    path: PathBuf,
    file: File,
    start: u64,
}

impl Log {
    fn open(state: &Path) -> Result<Self, ErrorReport> {
        let path = log_file::path(state);
        let open = || -> io::Result<(File, u64)> {
            let file = File::options()
                .create(true)
                .append(true)
                .mode(0o600)
                // The folder may belong to the user of the server, and this process be root.
                .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
                .open(&path)?;
            let start = file.metadata()?.len();
            Ok((file, start))
        };
        match open() {
            Ok((file, start)) => Ok(Self { path, file, start }),
            Err(error) => {
                let message =
                    format!("{} cannot be written: {}", path.display(), text::reason(&error));
                Err(ErrorReport::new(Code::STATE, message)
                    .hint("choose another state folder with SNOWMELT_STATE"))
            }
        }
    }

    /// The error of the failed server: a report in its log, or the last lines of the log.
    fn failure(&self) -> ErrorReport {
        let written = self.written().unwrap_or_default();
        let report = written.lines().rev().find_map(|line| serde_json::from_str(line).ok());
        report.unwrap_or_else(|| {
            let lines: Vec<_> = written.lines().map(str::to_owned).collect();
            let tail = lines[lines.len().saturating_sub(TAIL)..].to_vec();
            ErrorReport::new(Code::INTERNAL, "the server exited before it was ready")
                .excerpt(tail)
                .hint(format!("the whole log is in {}", self.path.display()))
        })
    }

    fn written(&self) -> io::Result<String> {
        let mut file = File::open(&self.path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(self.start.max(length.saturating_sub(TAIL_BYTES))))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
