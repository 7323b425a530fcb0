//! Events of a query on their way to its client.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use snowmelt_api::{Event, Phase, Progress};
use snowmelt_node::{DriverReporter, QueryRunner};
use snowmelt_rpc::trace::SPANS;
use snowmelt_wire::{Frame, Kind, RunProgress};
use tokio::sync::mpsc;
use tracing::Span;

/// The most events that wait for a client.
const MOST_WAITING: usize = 1024;

/// Takes events from any thread without waiting, and sends them in order.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    sender: mpsc::Sender<Event>,
}

impl Events {
    /// Forwards to a client until it disconnects or all senders are dropped.
    pub fn forward_to(frames: mpsc::Sender<Bytes>) -> Self {
        let (sender, mut receiver) = mpsc::channel(MOST_WAITING);
        tokio::spawn(async move {
            while let Some(event) = receiver.recv().await {
                let frame = Frame::json(Kind::Event, &event);
                let Ok(bytes) = frame.and_then(|frame| encoded(&frame)) else { continue };
                if frames.send(bytes).await.is_err() {
                    return;
                }
            }
        });
        Self { sender }
    }

    /// Events that nobody reads.
    pub fn ignored() -> Self {
        Self { sender: mpsc::channel(1).0 }
    }

    /// Sends an event. A client that disconnected needs none, and one that does not read misses
    /// some.
    pub fn send(&self, event: Event) {
        let _ = self.sender.try_send(event);
    }
}

impl snowmelt_package::Reporter for Events {
    fn step(&self, progress: &snowmelt_package::Progress) {
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

/// Header and payload in one piece.
pub(crate) fn encoded(frame: &Frame) -> snowmelt_wire::Result<Bytes> {
    let header = frame.header()?;
    let mut bytes = BytesMut::with_capacity(header.len() + frame.payload.len());
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(&frame.payload);
    Ok(bytes.freeze())
}
