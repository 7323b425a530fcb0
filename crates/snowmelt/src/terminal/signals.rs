//! Cancellation by Ctrl-C, SIGTERM and SIGHUP.
//!
//! Invariant: no signal that is handled here skips the clean-up. The first one starts it; each
//! further one prints what the command still waits for.

use std::sync::{Arc, Mutex, PoisonError};

use snowmelt_types::{Code, ErrorReport};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::failure::CommandFailure;
use super::printer::Printer;

#[derive(Clone, Copy, Debug)]
struct Caught {
    name: &'static str,
    number: u8,
}

/// The handled signals of this process.
#[derive(Clone)]
pub struct Signals {
    token: CancellationToken,
    shared: Arc<Mutex<SignalState>>,
}

struct SignalState {
    caught: Option<Caught>,
    waiting_for: &'static str,
}

impl Signals {
    /// Installs the handlers, which stay until the process exits.
    ///
    /// # Errors
    /// `SM-0901` if a handler cannot be installed.
    pub fn listen(printer: Printer) -> Result<Self, ErrorReport> {
        let shared = SignalState { caught: None, waiting_for: "running work to end" };
        let signals =
            Self { token: CancellationToken::new(), shared: Arc::new(Mutex::new(shared)) };
        for (kind, name) in [
            (SignalKind::interrupt(), "Ctrl-C"),
            (SignalKind::terminate(), "SIGTERM"),
            (SignalKind::hangup(), "SIGHUP"),
        ] {
            let number = kind.as_raw_value() as u8;
            let stream = signal(kind).map_err(|error| unavailable(name, &error))?;
            tokio::spawn(signals.clone().watch(stream, Caught { name, number }, printer));
        }
        Ok(signals)
    }

    /// Cancelled by the first signal.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Sets what a second Ctrl-C reports.
    pub fn waiting_for(&self, what: &'static str) {
        self.lock().waiting_for = what;
    }

    /// The failure of a command that a signal cancelled.
    pub fn failure(&self) -> CommandFailure {
        let caught = self.lock().caught.unwrap_or(Caught { name: "Ctrl-C", number: 2 });
        let report = ErrorReport::new(Code::CANCELLED, format!("cancelled by {}", caught.name));
        CommandFailure { report, exit: 128 + caught.number }
    }

    async fn watch(self, mut stream: Signal, caught: Caught, printer: Printer) {
        while stream.recv().await.is_some() {
            let mut shared = self.lock();
            let first = shared.caught.is_none();
            shared.caught.get_or_insert(caught);
            if !first {
                printer.line(&format!("still waiting for {}", shared.waiting_for));
            }
            drop(shared);
            self.token.cancel();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SignalState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unavailable(name: &str, error: &std::io::Error) -> ErrorReport {
    ErrorReport::new(Code::INTERNAL, format!("{name} cannot be handled: {error}"))
}
