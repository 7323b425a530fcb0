//! The layer that records spans.
//!
//! A span is recorded if the span in which it is made is recorded. Without such a span, it is
//! recorded if it is made for a request that is sampled: its parent is then the span of the
//! request, which may be in another process.

use snowmelt_rpc::trace::{Context as Request, Export, new_span_id};
use tokio::sync::mpsc;
use tracing::Subscriber;
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

use crate::span::Span;

/// A layer that records the spans that pass its filter, and puts them into the queue when they end.
#[derive(Debug)]
pub struct Recorder {
    queue: mpsc::Sender<Span>,
    export: &'static Export,
}

impl Recorder {
    pub fn new(queue: mpsc::Sender<Span>, export: &'static Export) -> Self {
        Self { queue, export }
    }
}

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let name = attributes.metadata().name();
        let Some(mut span) = begin(attributes, &context, name) else { return };
        attributes.record(&mut span);
        if span.id == 0 {
            span.id = new_span_id();
        }
        if let Some(registered) = context.span(id) {
            registered.extensions_mut().insert(span);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(registered) = context.span(id) else { return };
        if let Some(span) = registered.extensions_mut().get_mut::<Span>() {
            values.record(span);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let ended = context.span(&id).and_then(|span| span.extensions_mut().remove::<Span>());
        let Some(mut span) = ended else { return };
        span.ended = std::time::SystemTime::now();
        if self.queue.try_send(span).is_err() {
            self.export.count_dropped(1);
        }
    }
}

/// Begins a span, with its place in the trace; `None` if it is not recorded.
fn begin<S>(
    attributes: &Attributes<'_>,
    context: &Context<'_, S>,
    name: &'static str,
) -> Option<Span>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let outer = match attributes.parent() {
        Some(parent) => context.span(parent),
        None if attributes.is_contextual() => context.lookup_current(),
        None => None,
    };
    let outer = outer.and_then(|outer| {
        outer.extensions().get::<Span>().map(|outer| (outer.trace, Some(outer.id)))
    });
    let of_request = || {
        let request = Request::current().filter(|request| request.is_recorded())?;
        Some((request.id, request.span))
    };
    let (trace, parent) = outer.or_else(of_request)?;
    Some(Span::begin(trace, parent, name))
}

/// The innermost recorded span of this thread.
pub fn current_span() -> Option<u64> {
    tracing::dispatcher::get_default(|dispatch| {
        let registry = dispatch.downcast_ref::<Registry>()?;
        let innermost = registry.span(registry.current_span().id()?)?;
        innermost.scope().find_map(|span| span.extensions().get::<Span>().map(|span| span.id))
    })
}
