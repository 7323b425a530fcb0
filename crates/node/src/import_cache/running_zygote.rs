//! A zygote that runs, and the count of its children.
//!
//! Invariant: a child, or a zygote that was grown from this one, holds a reference to this one: an
//! evicted zygote ends with the last of them and not before.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use snowmelt_api::Start;
use snowmelt_ledger::{Amount, Reservation};
use snowmelt_package::Environment;
use snowmelt_sandbox::Zygote;
use snowmelt_types::{ByteSize, End};

use super::admission::Admitted;
use crate::Result;
use crate::namespaces::Precreated;
use crate::process::log::{LogCollector, PLATFORM_LOG};

/// A running zygote.
#[derive(Debug)]
pub(crate) struct ZygoteMember {
    zygote: Zygote,
    // The output is read, or the zygote would block once the pipe is full.
    _log: Option<LogCollector>,
    // The environment is kept, so that the packages that the zygote sees are not reclaimed.
    _environment: Option<Environment>,
    parent: Option<Arc<ZygoteMember>>,
    // A zygote without a parent has a slot: its share of what the spawner has room for.
    admitted: Option<Admitted>,
    // The memory of the host that the zygote has reserved.
    room: Mutex<Option<Reservation>>,
    forks: AtomicU64,
    children: AtomicU32,
    /// A network that was made ahead for the next job of the zygote's children.
    pub precreated: Precreated,
}

/// A child of a zygote: counted as alive, and keeping the zygote alive, until the value is dropped.
#[derive(Debug)]
pub(crate) struct Child {
    /// How much of the function's imports the child found done.
    pub found: ImportCoverage,
    member: Arc<ZygoteMember>,
}

/// How much of what a function declares a zygote had imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImportCoverage {
    All,
    Part,
    Nothing,
}

impl From<ImportCoverage> for Start {
    fn from(found: ImportCoverage) -> Self {
        match found {
            ImportCoverage::All => Self::Zygote,
            ImportCoverage::Part => Self::PartialZygote,
            ImportCoverage::Nothing => Self::BareZygote,
        }
    }
}

impl ZygoteMember {
    /// Takes charge of a zygote that has done its imports.
    pub fn new(
        mut zygote: Zygote,
        environment: Option<Environment>,
        parent: Option<Arc<Self>>,
    ) -> Result<Self> {
        let log = zygote.take_log().map(|log| LogCollector::new(log, PLATFORM_LOG)).transpose()?;
        Ok(Self {
            zygote,
            _log: log,
            _environment: environment,
            parent,
            admitted: None,
            room: Mutex::default(),
            precreated: Precreated::default(),
            forks: AtomicU64::new(0),
            children: AtomicU32::new(0),
        })
    }

    /// Gives a first zygote its slot, which it has as long as it lives.
    pub fn admitted(self, admitted: Admitted) -> Self {
        Self { admitted: Some(admitted), ..self }
    }

    /// Gives a zygote its room on the host, which it has as long as it lives.
    pub fn owning(self, room: Reservation) -> Self {
        Self { room: Mutex::new(Some(room)), ..self }
    }

    /// Measures the memory that the zygote holds, and books it in its reservation; `None` where the
    /// kernel does not count it.
    pub fn measure(&self) -> Option<ByteSize> {
        let memory = self.memory()?;
        if let Some(room) = &mut *self.room.lock().unwrap_or_else(PoisonError::into_inner) {
            let amount = Amount { memory, ..room.amount() };
            room.resize(amount);
        }
        Some(memory)
    }

    /// Returns the slot of the first zygote above this one, or of this one; `None` if it has none.
    pub fn slot(&self) -> Option<&Admitted> {
        self.admitted.as_ref().or_else(|| self.parent.as_ref()?.slot())
    }

    /// Returns the zygote itself, to be forked.
    pub fn zygote(&self) -> &Zygote {
        &self.zygote
    }

    /// Counts a new child, and returns its hold on the zygote.
    pub fn child(self: &Arc<Self>, found: ImportCoverage) -> Child {
        self.forks.fetch_add(1, Ordering::Relaxed);
        self.children.fetch_add(1, Ordering::Relaxed);
        Child { found, member: Arc::clone(self) }
    }

    /// Returns the number of children so far.
    pub fn forks(&self) -> u64 {
        self.forks.load(Ordering::Relaxed)
    }

    /// Returns the number of children alive.
    pub fn children(&self) -> u32 {
        self.children.load(Ordering::Relaxed)
    }

    /// Returns true until the end of the zygote is known.
    pub fn is_alive(&self) -> bool {
        self.zygote.wait().now_or_never().is_none()
    }

    /// Returns the memory that the zygote holds now; `None` where the kernel does not count it.
    pub fn memory(&self) -> Option<ByteSize> {
        self.zygote.memory()
    }

    /// Ends the zygote and its children.
    pub fn kill(&self) {
        self.zygote.kill(End::Killed);
    }
}

impl Child {
    /// Returns the slot of the first zygote above the child; `None` if there is none.
    pub fn slot(&self) -> Option<&Admitted> {
        self.member.slot()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.member.children.fetch_sub(1, Ordering::Relaxed);
        self.slot().inspect(|slot| slot.child_ended());
    }
}
