//! Export of spans by OpenTelemetry's protocol (OTLP over HTTP, encoded as JSON).
//!
//! Owns the layer that records the spans marked with [`snowmelt_rpc::trace::SPANS`], their queue,
//! and the thread that sends them. Only the program `snowmelt` uses it, and only if an endpoint is
//! configured: otherwise there is no layer, no thread and no queue.
//!
//! Invariant: recording a span never waits. A span for which the queue has no room is dropped and
//! counted.

mod collector;
mod layer;
mod otlp;
mod settings;
mod span;
mod worker;

use std::time::Duration;

use snowmelt_rpc::trace::{Export, SPANS};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterFn, LevelFilter, filter_fn};
use tracing_subscriber::registry::LookupSpan;

pub use settings::{Endpoint, Settings, WrongEndpoint, pairs};
pub use worker::Running;

use collector::Collector;
use layer::Recorder;
use otlp::Resource;
use tokio::sync::mpsc;
use worker::Worker;

/// The greatest number of spans that wait to be sent; each has about 1 KiB.
const QUEUE: usize = 4096;

/// The time for which the end of the process waits for spans to be sent.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// An export that is prepared: its layer records spans, and nothing is sent yet.
#[derive(Debug)]
pub struct Prepared {
    worker: Worker,
}

/// Makes the layer that records spans, and the worker that sends them. Starts no thread.
pub fn prepare<S>(settings: Settings) -> (impl Layer<S> + Send + Sync, Prepared)
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let export = Export::install(settings.sampler, layer::current_span);
    let (sender, queue) = mpsc::channel(QUEUE);
    let resource = Resource::new(&settings);
    let collector = Collector::new(settings.endpoint, settings.headers);
    let layer = Recorder::new(sender, export).with_filter(marked());
    (layer, Prepared { worker: Worker { collector, resource, queue, export } })
}

impl Prepared {
    /// Starts the thread that sends spans. Must be called after the last fork of a process that
    /// must be forked from a process without threads.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub fn start(self) -> std::io::Result<Running> {
        self.worker.start(FLUSH_TIMEOUT)
    }
}

/// Returns the filter for marked spans. Events are the log, which is not exported.
fn marked() -> FilterFn<fn(&Metadata<'_>) -> bool> {
    let is_marked: fn(&Metadata<'_>) -> bool =
        |metadata| metadata.is_span() && metadata.target() == SPANS;
    filter_fn(is_marked).with_max_level_hint(LevelFilter::DEBUG)
}
