//! What this machine has of what sandboxes need, found by trying where that is cheap.
//!
//! Invariant: nothing that was tried is left behind.

/// One fact for `snowmelt doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What was looked for.
    pub name: &'static str,
    /// What was found.
    pub found: String,
    /// Whether it is enough.
    pub ok: bool,
}

/// Looks for everything that sandboxes need or can use.
pub fn probe() -> Vec<Probe> {
    let (found, ok) = match crate::cgroup::describe() {
        Ok(found) => (found.to_owned(), true),
        Err(found) => (found, false),
    };
    vec![Probe { name: "control groups", found, ok }]
}
