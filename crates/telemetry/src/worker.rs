//! The thread that sends spans in batches.
//!
//! Invariant: the number of waiting spans is bounded by the queue and one batch, also while no
//! collector answers.

use std::sync::mpsc as ended;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use snowmelt_rpc::trace::Export;
use tokio::sync::{mpsc, watch};

use crate::collector::{Collector, Connected};
use crate::otlp::Resource;
use crate::span::Span;

/// The greatest number of spans of a request.
const BATCH: usize = 512;
/// The time for which the first span of a batch waits for others.
const BATCH_TIMEOUT: Duration = Duration::from_secs(1);
/// The pauses before a batch is sent again.
const RETRY_AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// The state of the thread that sends spans.
#[derive(Debug)]
pub struct Worker {
    pub collector: Collector,
    pub resource: Resource,
    pub queue: mpsc::Receiver<Span>,
    pub export: &'static Export,
}

/// An export whose thread runs.
#[derive(Debug)]
pub struct Running {
    end: watch::Sender<bool>,
    ended: ended::Receiver<()>,
    within: Duration,
}

impl Worker {
    pub fn start(self, within: Duration) -> std::io::Result<Running> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (end, asked) = watch::channel(false);
        let (done, ended) = ended::channel();
        let run = move || {
            runtime.block_on(self.run(asked));
            // A name that is being resolved must not delay the end.
            runtime.shutdown_background();
            // Nobody may wait any more.
            let _ = done.send(());
        };
        thread::Builder::new().name("spans".into()).spawn(run)?;
        Ok(Running { end, ended, within })
    }

    async fn run(self, end: watch::Receiver<bool>) {
        let Self { collector, resource, mut queue, export } = self;
        let mut sending = Sending { collector: collector.connect(), export, end, is_down: false };
        loop {
            let batch = sending.batch(&mut queue).await;
            if batch.is_empty() {
                let [sent, dropped] = export.counts();
                return tracing::info!(sent, dropped, "the export of spans has ended");
            }
            sending.send(&resource, &batch).await;
        }
    }
}

impl Running {
    /// Sends the waiting spans, and returns when they are sent or the time is up.
    pub fn end(self) {
        self.end.send_replace(true);
        if self.ended.recv_timeout(self.within).is_err() {
            tracing::warn!("the last spans could not be exported in time");
        }
    }
}

struct Sending {
    collector: Connected,
    export: &'static Export,
    end: watch::Receiver<bool>,
    is_down: bool,
}

impl Sending {
    /// Returns the next spans; empty if the export has ended.
    async fn batch(&mut self, queue: &mut mpsc::Receiver<Span>) -> Vec<Span> {
        let mut batch = Vec::new();
        tokio::select! {
            _ = queue.recv_many(&mut batch, BATCH) => {}
            () = asked(&mut self.end) => queue.close(),
        }
        let more =
            async { while batch.len() < BATCH && queue.recv_many(&mut batch, BATCH).await > 0 {} };
        tokio::select! {
            () = more => {}
            () = tokio::time::sleep(BATCH_TIMEOUT) => {}
            // Without an end the queue is closed here, so that `more` would end.
            () = asked(&mut self.end) => {
                queue.close();
                while queue.recv_many(&mut batch, BATCH).await > 0 {}
            }
        }
        batch
    }

    /// Sends a batch, and sends it again after a pause while there is no answer. The end of the
    /// export waits for no pause.
    async fn send(&mut self, resource: &Resource, batch: &[Span]) {
        let body = Bytes::from(resource.request(batch));
        let mut pauses = RETRY_AFTER.into_iter();
        loop {
            let refused = match self.collector.send(body.clone()).await {
                Ok(()) => break self.sent(batch.len()),
                Err(refused) => refused,
            };
            let endpoint = self.collector.endpoint();
            if !self.is_down {
                tracing::warn!(%endpoint, reason = %refused, "spans cannot be exported");
            }
            self.is_down = true;
            let pause = pauses.next().filter(|_| refused.is_temporary() && !*self.end.borrow());
            let Some(pause) = pause else { break self.export.count_dropped(batch.len()) };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = asked(&mut self.end) => {}
            }
        }
    }

    fn sent(&mut self, spans: usize) {
        self.export.count_sent(spans);
        if self.is_down {
            tracing::info!(endpoint = %self.collector.endpoint(), "spans are exported again");
        }
        self.is_down = false;
    }
}

/// Waits until the end is asked for.
async fn asked(end: &mut watch::Receiver<bool>) {
    // A sender that was dropped asks as well: nobody else could.
    let _ = end.wait_for(|end| *end).await;
}
