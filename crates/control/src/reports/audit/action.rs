//! An action, from its request to its line.
//!
//! Invariant: an action that has begun has one line, however it ends: the line is written when the
//! last one who may say something about it is done.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::Audit;
use super::event::{ActionLine, AuditEvent};

/// The longest text that a line takes over from a request.
const MAX_TEXT: usize = 256;

/// An action and who does it, as far as a request says.
#[derive(Debug)]
pub(crate) struct AuditedRequest {
    pub principal: String,
    pub tenant: String,
    pub role: String,
    pub address: Option<IpAddr>,
    /// The method and the route.
    pub action: String,
    pub object: String,
    /// The identifier of the request.
    pub request: String,
}

/// A note of an action that goes on. Cheap to clone; the line is written with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct AuditNote(Arc<Noted>);

#[derive(Debug)]
struct Noted {
    audit: Audit,
    begun: Instant,
    line: Mutex<ActionLine>,
}

impl AuditNote {
    /// Begins the note of an action.
    pub fn begin(audit: &Audit, request: AuditedRequest) -> Self {
        let AuditedRequest { principal, tenant, role, address, action, object, request } = request;
        let address = address.map(|address| address.to_string());
        let line = ActionLine {
            principal,
            tenant,
            role,
            address,
            action,
            object: shortened(&object),
            request,
            ..ActionLine::default()
        };
        let line = Mutex::new(line);
        Self(Arc::new(Noted { audit: audit.clone(), begun: Instant::now(), line }))
    }

    /// Says what the action is about.
    pub fn object(&self, object: &str) {
        self.change(|line| line.object = shortened(object));
    }

    /// Adds a fact.
    pub fn detail(&self, name: &'static str, value: &str) {
        self.change(|line| drop(line.detail.insert(name, shortened(value))));
    }

    /// Says how the request was answered.
    pub fn answered(&self, status: u16, code: &str) {
        self.change(|line| {
            line.status = Some(status);
            // What ended before its answer has said more.
            if line.code.is_empty() {
                code.clone_into(&mut line.code);
            }
        });
    }

    /// Says how the action ended: with the code of an error, or empty.
    pub fn ended(&self, code: &str) {
        self.change(|line| code.clone_into(&mut line.code));
    }

    fn change(&self, change: impl FnOnce(&mut ActionLine)) {
        change(&mut self.0.line.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let line = self.line.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut line = std::mem::take(line);
        line.took_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.audit.write(AuditEvent::action(line));
    }
}

fn shortened(text: &str) -> String {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or_default()].to_owned()
}
