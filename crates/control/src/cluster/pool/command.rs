//! A provider that is a program: `PROGRAM list`, `PROGRAM start COUNT`, `PROGRAM stop NAME`.
//!
//! Invariant: a program that does not end in time, or prints too much, is killed, and counts as
//! failed.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use snowmelt_types::{Code, ErrorReport, HostName};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use super::provider::HostProvider;

/// The most time for one run of the program.
const LIMIT: Duration = Duration::from_secs(120);

/// The most bytes that are shown of the program's text about a failure.
const MAX_SHOWN: usize = 500;

/// The most bytes that the program may print: the names of some ten thousand hosts.
const MAX_PRINTED: usize = 1 << 20;

/// A program of the user that starts and ends hosts.
#[derive(Debug)]
pub(crate) struct PoolProgram {
    pub path: PathBuf,
    pub limit: Duration,
}

impl PoolProgram {
    pub fn new(path: PathBuf) -> Self {
        Self { path, limit: LIMIT }
    }

    /// Runs the program with these words, and returns its output.
    async fn run(&self, words: &[&str]) -> Result<String, ErrorReport> {
        let mut command = Command::new(&self.path);
        command.args(words).stdin(Stdio::null()).kill_on_drop(true);
        let ended = tokio::time::timeout(self.limit, output(&mut command)).await;
        let ended =
            ended.map_err(|_| self.failed(words, &format!("no end in {:?}", self.limit)))?;
        let output = ended.map_err(|error| self.failed(words, &error.to_string()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.trim();
            let from = said.len().saturating_sub(MAX_SHOWN);
            let last = said.get(said.ceil_char_boundary(from)..).unwrap_or_default();
            return Err(self.failed(words, &format!("{}: {last}", output.status)));
        }
        String::from_utf8(output.stdout).map_err(|error| self.failed(words, &error.to_string()))
    }

    fn failed(&self, words: &[&str], why: &str) -> ErrorReport {
        let message = format!("`{} {}` failed: {why}", self.path.display(), words.join(" "));
        ErrorReport::new(Code::HOST_PROVIDER, message)
            .hint("run the program by hand; it is asked again after a pause (cluster.provider)")
    }
}

/// Collects the output of a program, and how it ends.
async fn output(command: &mut Command) -> std::io::Result<Output> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    let (stdout, stderr) = tokio::try_join!(printed(stdout), last_of(stderr))?;
    let status = child.wait().await?;
    Ok(Output { status, stdout, stderr })
}

async fn printed(from: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    if let Some(from) = from {
        from.take(MAX_PRINTED as u64 + 1).read_to_end(&mut text).await?;
    }
    if text.len() > MAX_PRINTED {
        return Err(std::io::Error::other("it prints more than 1 MiB"));
    }
    Ok(text)
}

/// Reads to the end, and returns the last part.
async fn last_of(from: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let Some(mut from) = from else { return Ok(text) };
    let mut piece = vec![0; 64 << 10];
    loop {
        let length = from.read(&mut piece).await?;
        if length == 0 {
            return Ok(text);
        }
        text.extend_from_slice(&piece[..length]);
        text.drain(..text.len().saturating_sub(2 * MAX_SHOWN));
    }
}

#[async_trait]
impl HostProvider for PoolProgram {
    fn describe(&self) -> String {
        self.path.display().to_string()
    }

    async fn hosts(&self) -> Result<Vec<HostName>, ErrorReport> {
        let listed = self.run(&["list"]).await?;
        let names = listed.split_whitespace().map(|name| name.to_owned().try_into());
        let names: Result<_, String> = names.collect();
        names.map_err(|problem| self.failed(&["list"], &problem))
    }

    async fn start(&self, count: u32) -> Result<(), ErrorReport> {
        self.run(&["start", &count.to_string()]).await.map(drop)
    }

    async fn release(&self, host: &HostName) -> Result<(), ErrorReport> {
        self.run(&["stop", host.as_str()]).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn program(text: &str) -> (PoolProgram, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("provider");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        (PoolProgram::new(path), folder)
    }

    #[tokio::test]
    async fn a_program_lists_starts_and_ends_hosts() {
        let (program, folder) = program(
            "cd \"$(dirname \"$0\")\"; case $1 in list) cat up;; *) echo \"$@\" >> asked;; esac",
        );
        std::fs::write(folder.path().join("up"), "a\nb-2\n").unwrap();
        let names: Vec<_> = program.hosts().await.unwrap();
        assert_eq!(names, ["a".parse().unwrap(), "b-2".parse().unwrap()]);
        program.start(3).await.unwrap();
        program.release(&names[1]).await.unwrap();
        let asked = std::fs::read_to_string(folder.path().join("asked")).unwrap();
        assert_eq!(asked, "start 3\nstop b-2\n");
    }

    #[tokio::test]
    async fn what_a_program_says_about_a_failure_is_shown_and_one_that_hangs_is_killed() {
        let (failing, _folder) = program("echo no quota >&2; exit 7");
        let failed = failing.start(1).await.unwrap_err();
        assert_eq!(failed.known_code(), Code::HOST_PROVIDER);
        assert!(failed.message.contains("start 1") && failed.message.contains("no quota"));
        let (hanging, _folder) = program("exec sleep 3600");
        let hanging = PoolProgram { limit: Duration::from_millis(50), ..hanging };
        assert!(hanging.hosts().await.unwrap_err().message.contains("no end in 50ms"));
        let (odd, _folder) = program("echo 'not/a/name'");
        assert_eq!(odd.hosts().await.unwrap_err().known_code(), Code::HOST_PROVIDER);
        let (long, _folder) = program("exec yes");
        let failed = long.hosts().await.unwrap_err();
        assert!(failed.message.contains("more than 1 MiB"), "{}", failed.message);
        let (loud, _folder) = program("yes a | head -c 3000000 >&2; echo at last >&2; exit 1");
        let failed = loud.hosts().await.unwrap_err();
        assert!(failed.message.ends_with("at last") && failed.message.len() < 1000);
        let missing = PoolProgram::new("/nowhere/at/all".into());
        assert_eq!(missing.hosts().await.unwrap_err().known_code(), Code::HOST_PROVIDER);
    }
}
