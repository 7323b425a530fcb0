//! Events of a query on their way to its client.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use snowmelt_api::{Event, Phase, Progress};
use snowmelt_rpc::trace::SPANS;
use snowmelt_tasks::{DriverReporter, QueryRunner};
use snowmelt_wire::{Frame, Kind, RunProgress};
use tokio::sync::{mpsc, oneshot};
use tracing::Span;

/// The most events that wait for a client.
const MAX_WAITING: usize = 1024;

/// Takes events from any thread without waiting, and sends them in order.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    sender: mpsc::Sender<Item>,
}

#[derive(Debug)]
enum Item {
    Event(Event),
    /// A sender that is told when all events before it were sent.
    Sent(oneshot::Sender<()>),
}

impl Events {
    /// Makes events that go to a client, until it disconnects or all senders are dropped.
    pub fn forward_to(frames: mpsc::Sender<Bytes>) -> Self {
        let (sender, mut receiver) = mpsc::channel(MAX_WAITING);
        tokio::spawn(async move {
            while let Some(item) = receiver.recv().await {
                let event = match item {
                    Item::Event(event) => event,
                    Item::Sent(told) => {
                        _ = told.send(());
                        continue;
                    }
                };
                let frame = Frame::json(Kind::Event, &event);
                let Ok(bytes) = frame.and_then(|frame| encoded(&frame)) else { continue };
                if frames.send(bytes).await.is_err() {
                    return;
                }
            }
        });
        Self { sender }
    }

    /// Makes events that nobody reads.
    pub fn ignored() -> Self {
        Self { sender: mpsc::channel(1).0 }
    }

    /// Sends an event. A client that disconnected needs none, and one that does not read misses
    /// some.
    pub fn send(&self, event: Event) {
        let _ = self.sender.try_send(Item::Event(event));
    }

    /// Waits until the client was sent the events so far, or disconnected: they are read up to the
    /// end of the answer.
    pub async fn sent(&self) {
        let (told, sent) = oneshot::channel();
        if self.sender.send(Item::Sent(told)).await.is_ok() {
            _ = sent.await;
        }
    }
}

impl snowmelt_package::Reporter for Events {
    fn step(&self, progress: &snowmelt_package::InstallProgress) {
        self.send(Event::Note { text: progress.to_string() });
    }
}

/// Turns what the driver reports into events.
#[derive(Debug)]
pub(crate) struct EventReporter {
    events: Events,
    runner: Arc<QueryRunner>,
    running: AtomicBool,
    // The span of the phase of the driver; it ends when the next one begins.
    phase: Mutex<Span>,
}

impl EventReporter {
    pub fn new(events: Events, runner: Arc<QueryRunner>) -> Self {
        let phase = Mutex::new(tracing::debug_span!(target: SPANS, "query.plan"));
        Self { events, runner, running: AtomicBool::new(false), phase }
    }

    fn begin(&self, phase: Span) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }
}

impl DriverReporter for EventReporter {
    fn planned(&self) {
        self.begin(tracing::debug_span!(target: SPANS, "query.tasks"));
        self.events.send(Event::Phase { phase: Phase::Start });
    }

    fn progress(&self, now: RunProgress) {
        if now.rows + u64::from(now.done) > 0 && !self.running.swap(true, Ordering::Relaxed) {
            self.events.send(Event::Phase { phase: Phase::Run });
        }
        let (cold, warm) = self.runner.starts();
        self.events.send(Event::Progress(Progress {
            tasks: now.tasks,
            running: now.running,
            done: now.done,
            cold,
            warm,
            rows: now.rows,
            bytes: now.bytes,
            bytes_total: now.bytes_total,
            udf_rows: now.udf_rows,
        }));
    }

    fn merging(&self) {
        self.begin(tracing::debug_span!(target: SPANS, "query.merge"));
        self.events.send(Event::Phase { phase: Phase::Merge });
    }

    fn note(&self, text: &str) {
        self.events.send(Event::Note { text: text.to_owned() });
    }
}

/// Encodes header and payload in one piece.
pub(crate) fn encoded(frame: &Frame) -> snowmelt_wire::Result<Bytes> {
    let header = frame.header()?;
    let mut bytes = BytesMut::with_capacity(header.len() + frame.payload.len());
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(&frame.payload);
    Ok(bytes.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_said_before_the_end_of_an_answer_is_sent_before_it() {
        let (frames, mut client) = mpsc::channel(8);
        let events = Events::forward_to(frames.clone());
        events.send(Event::Note { text: "said".to_owned() });
        events.sent().await;
        frames.send(Bytes::from_static(b"end")).await.unwrap();
        let first = client.recv().await.unwrap();
        assert!(first.windows(4).any(|bytes| bytes == b"said"), "{first:?}");
        assert_eq!(client.recv().await.unwrap(), b"end".as_slice());
    }

    #[tokio::test]
    async fn nobody_waits_for_a_client_that_is_gone() {
        let (frames, client) = mpsc::channel(8);
        let events = Events::forward_to(frames);
        drop(client);
        events.send(Event::Note { text: "said".to_owned() });
        events.sent().await;
        events.sent().await;
        Events::ignored().sent().await;
    }
}
