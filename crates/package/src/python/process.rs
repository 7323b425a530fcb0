//! Runs a tool with text as input and output and a time limit; no process is left behind.
//!
//! The tool leads a process group of its own. The group, and thus the tool's helpers, is killed
//! when the time limit is exceeded or the future is dropped.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use crate::{Error, Result};

/// The maximum output that is read, in bytes; more than any of these tools writes.
const MAX_OUTPUT: u64 = 32 << 20;

/// The result of a tool.
#[derive(Debug)]
pub(crate) struct ToolOutput {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs the command with `input` on its stdin; `action` describes it in timeout errors.
pub(crate) async fn run(
    command: &mut Command,
    input: &str,
    action: &'static str,
    limit: Duration,
) -> Result<ToolOutput> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let tool = command.as_std().get_program().to_string_lossy().into_owned();
    let failed = |source| Error::Tool { tool: tool.clone(), source };
    let mut group = ProcessGroup::new(command.spawn().map_err(failed)?);
    let communication = communicate(&mut group.child, input);
    match tokio::time::timeout(limit, communication).await {
        Ok(answer) => answer.map_err(failed),
        Err(_) => Err(Error::Slow { tool: action, seconds: limit.as_secs() }),
    }
}

async fn communicate(child: &mut Child, input: &str) -> std::io::Result<ToolOutput> {
    let stdin = child.stdin.take();
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    let write = async {
        if let Some(mut stdin) = stdin {
            // A tool that exits without reading its input reports the reason on stderr.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    };
    let ((), stdout, stderr) = tokio::join!(write, read(stdout), read(stderr));
    Ok(ToolOutput { stdout: stdout?, stderr: stderr?, status: child.wait().await? })
}

async fn read(from: Option<impl tokio::io::AsyncRead + Unpin>) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(MAX_OUTPUT).read_to_end(&mut bytes).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The process group of a child. Kills the whole group if the child has not exited.
struct ProcessGroup {
    child: Child,
}

impl ProcessGroup {
    fn new(child: Child) -> Self {
        Self { child }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // `id` is `None` once the child was waited for, because its number may be reused by then.
        let id = self.child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        if let Some(id) = id {
            let _ = kill_process_group(id, Signal::KILL);
            let _ = self.child.start_kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn returns_both_streams_and_the_status() {
        let answer =
            run(&mut shell("cat; echo bad >&2; exit 3"), "in", "testing", LONG).await.unwrap();
        assert_eq!((answer.stdout.as_str(), answer.stderr.as_str()), ("in", "bad\n"));
        assert_eq!(answer.status.code(), Some(3));
    }

    #[tokio::test]
    async fn a_slow_tool_is_reported_and_killed() {
        let slow = run(&mut shell("sleep 600"), "", "testing", Duration::from_millis(20)).await;
        assert!(matches!(slow, Err(Error::Slow { tool: "testing", .. })), "{slow:?}");
    }

    #[tokio::test]
    async fn dropping_the_future_kills_the_helpers_of_a_tool() {
        let folder = tempfile::tempdir().unwrap();
        let pids = folder.path().join("pids");
        let script =
            format!("sleep 600 & echo $$ $! >{0}.new; mv {0}.new {0}; wait", pids.display());
        let mut command = shell(&script);
        tokio::select! {
            answer = run(&mut command, "", "testing", LONG) => panic!("the tool exited: {answer:?}"),
            () = wait_until_exists(&pids) => {}
        }
        for pid in std::fs::read_to_string(pids).unwrap().split_whitespace() {
            wait_until_dead(pid).await;
        }
    }

    async fn wait_until_exists(path: &std::path::Path) {
        while !path.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn wait_until_dead(pid: &str) {
        let stat = format!("/proc/{pid}/stat");
        let alive = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z"));
        for _ in 0..1000 {
            if !alive() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("process {pid} was not killed");
    }
}
