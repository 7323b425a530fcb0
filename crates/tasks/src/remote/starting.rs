//! Control's side of the start of an attempt on another host.
//!
//! The host answers twice: at once whether it has room for the attempt, and later whether it runs.
//! Invariant: a start that control does not wait for any more is ended on the host too.

use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;

use bytes::Bytes;
use snowmelt_rpc::HostStream;
use snowmelt_types::{Code, ErrorReport, Report};
use snowmelt_wire::{Frame, Kind, RequestFailure, write_frame};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::session::{Session, answer};
use crate::peers::messages::{StartTask, TASKS, TaskPlaced, TaskStarted};
use crate::peers::relay::relay;

/// The reason why a host did not take an attempt.
#[derive(Debug)]
pub(crate) enum NotPlaced {
    /// The host has no room for the attempt now.
    NoRoom,
    /// The host does not have this file.
    FileMissing(String),
    /// The host was lost, or its connection broke.
    Lost,
    /// The attempt has failed.
    Failed(RequestFailure),
}

/// The reason why an attempt that has room does not run.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// The host of the attempt was lost.
    Lost,
    /// The start of the attempt failed.
    Failed(RequestFailure),
}

/// An attempt that has room on a host and is being started there. Dropping it ends the start.
#[derive(Debug)]
pub(crate) struct PlacedAttempt {
    asked: StartRequest,
    far: HostStream,
}

/// A request to a host for an attempt, which must not run there if nobody waits for it.
#[derive(Debug)]
struct StartRequest {
    session: Arc<Session>,
    attempt: u64,
    is_settled: bool,
}

impl Drop for StartRequest {
    fn drop(&mut self) {
        if !self.is_settled {
            self.session.abandon(self.attempt);
        }
    }
}

/// The connection of a running attempt. Dropping it ends the attempt.
#[derive(Debug)]
pub(crate) struct AttemptRelay {
    end: CancellationToken,
    _relay: AbortOnDropHandle<()>,
}

impl AttemptRelay {
    /// Returns a token that ends the attempt when it is cancelled.
    pub fn end(&self) -> CancellationToken {
        self.end.clone()
    }
}

/// Asks a host for room for an attempt.
pub(crate) async fn place(
    session: &Arc<Session>,
    task: &StartTask,
    plan: &Bytes,
) -> Result<PlacedAttempt, NotPlaced> {
    let session = Arc::clone(session);
    let attempt = task.attempt;
    let mut asked = StartRequest { session: Arc::clone(&session), attempt, is_settled: false };
    let placed = tokio::select! {
        placed = ask(&session, task, plan) => placed,
        () = session.dead() => return Err(NotPlaced::Lost),
    };
    let (far, answer) = placed.map_err(|error| {
        tracing::info!(host = %session.name(), %error, "a host was not asked for room");
        NotPlaced::Lost
    })?;
    asked.is_settled = !matches!(answer, TaskPlaced::Placed);
    match answer {
        TaskPlaced::Placed => Ok(PlacedAttempt { asked, far }),
        TaskPlaced::NoRoom => Err(NotPlaced::NoRoom),
        TaskPlaced::FileMissing { path } => Err(NotPlaced::FileMissing(path)),
        TaskPlaced::Failed(failed) => Err(NotPlaced::Failed(failed)),
    }
}

async fn ask(
    session: &Session,
    task: &StartTask,
    plan: &Bytes,
) -> Result<(HostStream, TaskPlaced), ErrorReport> {
    let mut far = session.peer().connect(TASKS).await?;
    let asked = async {
        write_frame(&mut far, &Frame::json(Kind::Request, task)?).await?;
        write_frame(&mut far, &Frame::new(Kind::Plan, plan.clone())).await?;
        answer(&mut far).await
    };
    let placed = asked.await.map_err(|error| error.report())?;
    Ok((far, placed))
}

impl PlacedAttempt {
    /// Returns the session on the attempt's host.
    pub fn session(&self) -> &Arc<Session> {
        &self.asked.session
    }

    /// Waits until the attempt runs; the driver follows its worker over the socket.
    pub async fn started(mut self) -> Result<(AttemptRelay, StdStream), NotStarted> {
        let session = Arc::clone(&self.asked.session);
        let started = tokio::select! {
            started = answer(&mut self.far) => started,
            () = session.dead() => return Err(NotStarted::Lost),
        };
        match started {
            Ok(TaskStarted::Started) => {}
            Ok(TaskStarted::Failed(failed)) => {
                self.asked.is_settled = true;
                return Err(NotStarted::Failed(failed));
            }
            Err(error) => {
                let message = format!("the start of a task on {} broke: {error}", session.name());
                let report = ErrorReport::new(Code::WORKER_LOST, message);
                return Err(NotStarted::Failed(RequestFailure::lost(report)));
            }
        }
        let relayed = self.relayed().map_err(|error| {
            let message = format!("a task has no connection to its worker: {error}");
            NotStarted::Failed(RequestFailure::of(ErrorReport::new(Code::INTERNAL, message)))
        })?;
        Ok(relayed)
    }

    fn relayed(self) -> std::io::Result<(AttemptRelay, StdStream)> {
        let Self { mut asked, far } = self;
        let (near, driver) = StdStream::pair()?;
        near.set_nonblocking(true)?;
        let near = UnixStream::from_std(near)?;
        // From here on its end is reported.
        asked.is_settled = true;
        // The connection to a host that is frozen does not end by itself.
        let end = asked.session.ending();
        let ended = end.clone();
        let relaying = tokio::spawn(async move {
            tokio::select! {
                () = relay(far, near) => {}
                () = ended.cancelled() => {}
            }
        });
        Ok((AttemptRelay { end, _relay: AbortOnDropHandle::new(relaying) }, driver))
    }
}

#[cfg(test)]
pub(crate) mod tests {

    use snowmelt_wire::TaskAsk;
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::peers::messages::SessionAsk;
    use crate::remote::fake::{Connections, asked, connection, heard, opened, say};

    fn task(attempt: u64) -> StartTask {
        let ask = TaskAsk {
            task: 1,
            partitions: vec![0],
            batch_rows: 1,
            output: true,
            ..TaskAsk::default()
        };
        StartTask { query: "q".to_owned(), attempt, ask, inputs: Vec::new() }
    }

    /// Returns a task that has its place on a host, and the agent's end of its connection.
    pub(crate) async fn placed(
        session: &Arc<Session>,
        connections: &mut Connections,
        attempt: u64,
    ) -> (PlacedAttempt, HostStream) {
        let task = task(attempt);
        let plan = Bytes::from_static(b"plan");
        let agent = async {
            let mut stream = connection(connections, TASKS).await;
            assert_eq!(heard::<StartTask>(&mut stream).await.attempt, attempt);
            let mut plan = vec![0; snowmelt_wire::HEADER_BYTES + 4];
            stream.read_exact(&mut plan).await.unwrap();
            say(&mut stream, &TaskPlaced::Placed).await;
            stream
        };
        let (placed, stream) = tokio::join!(place(session, &task, &plan), agent);
        (placed.unwrap(), stream)
    }

    #[tokio::test]
    async fn a_task_has_its_place_before_it_runs() {
        let (_peer, mut connections, session, mut control) = opened("a").await;
        // Both have their places; neither runs.
        let (first, mut stream) = placed(&session, &mut connections, 1).await;
        let (second, _stream) = placed(&session, &mut connections, 2).await;
        say(&mut stream, &TaskStarted::Started).await;
        let running = first.started().await.unwrap();
        drop(second);
        // Only the one is given up for whose start nobody waits any more.
        assert!(matches!(asked(&mut control).await, SessionAsk::Abandon { attempt: 2 }));
        drop(running);
        session.release(vec![3]);
        assert!(matches!(asked(&mut control).await, SessionAsk::Release { .. }));
    }

    #[tokio::test]
    async fn a_question_for_room_that_nobody_waits_for_is_taken_back() {
        let (_peer, mut connections, session, mut control) = opened("a").await;
        let task = task(5);
        let plan = Bytes::new();
        let asks = async {
            let mut stream = connection(&mut connections, TASKS).await;
            heard::<StartTask>(&mut stream).await;
            stream
        };
        tokio::select! {
            _ = place(&session, &task, &plan) => panic!("there was no answer"),
            _stream = asks => {}
        }
        assert!(matches!(asked(&mut control).await, SessionAsk::Abandon { attempt: 5 }));
    }

    #[tokio::test]
    async fn what_is_lost_before_it_runs_is_told() {
        let (peer, mut connections, session, _control) = opened("a").await;
        let (placed, _stream) = placed(&session, &mut connections, 1).await;
        peer.lost.cancel();
        assert!(matches!(placed.started().await, Err(NotStarted::Lost)));
    }
}
