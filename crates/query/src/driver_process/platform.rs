//! The driver's connection to the platform: sends requests and receives replies with descriptors.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use snowmelt_types::{ByteSize, Code, ErrorReport, Report};
use snowmelt_wire::{
    Answered, DriverOperation, DriverRequest, Error as WireError, Frame, FrameStream, Kind,
    MAX_REQUEST_BYTES, Reply, RequestFailure, Result as WireResult,
};
use tokio::sync::{oneshot, watch};

/// Requests without a reply yet, by id.
type PendingReplies = HashMap<u64, oneshot::Sender<(Answered, Vec<OwnedFd>)>>;

/// A connection to the platform. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct PlatformClient {
    shared: Arc<ClientState>,
    closed: watch::Receiver<bool>,
}

#[derive(Debug)]
struct ClientState {
    // Locked while a frame is written.
    writer: Mutex<FrameStream>,
    waiting: Mutex<PendingReplies>,
    next: AtomicU64,
}

impl PlatformClient {
    /// Starts a thread that reads the replies until the connection ends.
    pub(super) fn new(stream: FrameStream) -> WireResult<Self> {
        let reader = stream.try_clone()?;
        let shared = Arc::new(ClientState {
            writer: Mutex::new(stream),
            waiting: Mutex::default(),
            next: AtomicU64::new(1),
        });
        let (ended, closed) = watch::channel(false);
        let receiving = Arc::clone(&shared);
        std::thread::spawn(move || {
            receive(reader, &receiving);
            // Requests that still wait for a reply fail.
            receiving.lock_waiting().clear();
            let _ = ended.send(true);
        });
        Ok(Self { shared, closed })
    }

    /// Sends a request and waits for the reply.
    ///
    /// # Errors
    /// The platform's error, or that the connection ended.
    pub(super) async fn request(
        &self,
        ask: DriverOperation,
    ) -> Result<(Answered, Vec<OwnedFd>), RequestFailure> {
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.shared.lock_waiting().insert(id, sender);
        self.send(id, ask).map_err(failed)?;
        match receiver.await {
            Ok((Answered::Failed(why), _)) => Err(why),
            Ok(answered) => Ok(answered),
            Err(_) => Err(failed(WireError::Closed)),
        }
    }

    /// Sends a message that needs no reply. A closed connection is ignored.
    pub(super) fn notify(&self, ask: DriverOperation) {
        let _ = self.send(0, ask);
    }

    /// Sends a plan, to which later requests refer by number.
    pub(super) fn send_plan(&self, plan: bytes::Bytes) -> WireResult<()> {
        self.send_frame(&Frame::new(Kind::Plan, plan))
    }

    /// Returns when the platform closes the connection.
    pub(super) async fn closed(&self) {
        let _ = self.closed.clone().wait_for(|closed| *closed).await;
    }

    /// Closes the connection, so that its reading thread ends.
    pub(super) fn close(&self) {
        let _ = self.shared.lock_writer().socket().shutdown(std::net::Shutdown::Both);
    }

    /// Ends an attempt whose result is not needed. No reply is expected.
    pub(super) fn end(&self, started: u64) {
        self.shared.end(started);
    }

    fn send(&self, id: u64, ask: DriverOperation) -> WireResult<()> {
        self.shared.send(id, ask)
    }

    fn send_frame(&self, frame: &Frame) -> WireResult<()> {
        self.shared.send_frame(frame)
    }
}

impl ClientState {
    fn end(&self, started: u64) {
        let why = ErrorReport::new(Code::CANCELLED, "another attempt of the task counts");
        let failure = Some(RequestFailure::of(why));
        // A closed connection has ended it.
        _ = self.send(0, DriverOperation::Ended { started, failure });
    }

    fn send(&self, id: u64, ask: DriverOperation) -> WireResult<()> {
        self.send_frame(&Frame::json(Kind::Request, &DriverRequest { id, ask })?)
    }

    /// Refuses a frame that is too long, for which the platform would close the connection.
    fn send_frame(&self, frame: &Frame) -> WireResult<()> {
        match frame.payload.len() {
            long if long > MAX_REQUEST_BYTES as usize => Err(WireError::TooLong(long as u64)),
            _ => self.lock_writer().send(frame),
        }
    }

    fn lock_writer(&self) -> std::sync::MutexGuard<'_, FrameStream> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_waiting(&self) -> std::sync::MutexGuard<'_, PendingReplies> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn receive(mut reader: FrameStream, shared: &ClientState) {
    while let Ok((frame, descriptors)) = reader.receive_with() {
        let Ok(Reply { id, answered }) = frame.parse() else { return };
        if let Some(waiting) = shared.lock_waiting().remove(&id) {
            // The requesting future may have been dropped: then the descriptors are closed, a worker
            // that nobody follows is ended, and room that nobody uses is free.
            match waiting.send((answered, descriptors)) {
                Err((Answered::Started { started }, _)) => shared.end(started),
                Err((Answered::Reserved(Some(gang)), _)) => {
                    // A closed connection has ended it.
                    _ = shared.send(0, DriverOperation::Disband(gang));
                }
                Ok(()) | Err(_) => (),
            }
        }
    }
}

pub(super) fn failed(error: WireError) -> RequestFailure {
    if let WireError::TooLong(bytes) = error {
        let message = format!("the plan of the query takes {} and is too long", ByteSize(bytes));
        let hint = "query fewer files or columns";
        return RequestFailure::of(ErrorReport::new(Code::PLAN_UNSUPPORTED, message).hint(hint));
    }
    RequestFailure::of(error.report())
}
