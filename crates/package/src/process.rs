//! Runs a tool: text in, text out, a limit of time, and no process left behind.
//!
//! The tool leads a process group of its own, which is killed when the limit is over or the future
//! is dropped, so that its helpers go with it.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use crate::{Error, Result};

/// More output than any tool here gives; what is beyond is left unread.
const MOST_OUTPUT: u64 = 32 << 20;

/// What a tool said.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs the command with `input` on its stdin; `doing` names it where it is too slow.
pub(crate) async fn run(
    command: &mut Command,
    input: &str,
    doing: &'static str,
    limit: Duration,
) -> Result<Answer> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let tool = command.as_std().get_program().to_string_lossy().into_owned();
    let failed = |source| Error::Tool { tool: tool.clone(), source };
    let mut group = Group::new(command.spawn().map_err(failed)?);
    let talk = talk(&mut group.child, input);
    match tokio::time::timeout(limit, talk).await {
        Ok(answer) => answer.map_err(failed),
        Err(_) => Err(Error::Slow { tool: doing, seconds: limit.as_secs() }),
    }
}

async fn talk(child: &mut Child, input: &str) -> std::io::Result<Answer> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A tool that ends without reading its input says why on stderr.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    };
    let ((), stdout, stderr) = tokio::join!(write, read(stdout), read(stderr));
    Ok(Answer { stdout: stdout?, stderr: stderr?, status: child.wait().await? })
}

async fn read(from: Option<impl tokio::io::AsyncRead + Unpin>) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(MOST_OUTPUT).read_to_end(&mut bytes).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Kills the whole group of a child that has not ended.
struct Group {
    child: Child,
}

impl Group {
    fn new(child: Child) -> Self {
        Self { child }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // `id` is none once the child was waited for: its number may be another's by then.
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
    async fn gives_both_streams_and_the_status() {
        let answer =
            run(&mut shell("cat; echo bad >&2; exit 3"), "in", "testing", LONG).await.unwrap();
        assert_eq!((answer.stdout.as_str(), answer.stderr.as_str()), ("in", "bad\n"));
        assert_eq!(answer.status.code(), Some(3));
    }

    #[tokio::test]
    async fn a_slow_tool_is_named_and_ended() {
        let slow = run(&mut shell("sleep 600"), "", "testing", Duration::from_millis(20)).await;
        assert!(matches!(slow, Err(Error::Slow { tool: "testing", .. })), "{slow:?}");
    }

    #[tokio::test]
    async fn giving_up_kills_the_helpers_of_a_tool_too() {
        let folder = tempfile::tempdir().unwrap();
        let pids = folder.path().join("pids");
        let script =
            format!("sleep 600 & echo $$ $! >{0}.new; mv {0}.new {0}; wait", pids.display());
        let mut command = shell(&script);
        tokio::select! {
            answer = run(&mut command, "", "testing", LONG) => panic!("ended by itself: {answer:?}"),
            () = wait_until_there(&pids) => {}
        }
        for pid in std::fs::read_to_string(pids).unwrap().split_whitespace() {
            wait_until_dead(pid).await;
        }
    }

    async fn wait_until_there(path: &std::path::Path) {
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
