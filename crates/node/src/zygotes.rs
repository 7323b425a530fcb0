//! One zygote for each set of interpreter, packages and imports (SOCK 4.2), started at the first
//! use, ended when it has been idle for long.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use snowmelt_sandbox::{ForkSpec, Limits, Sandbox, Spawner, Zygote, ZygoteSpec};
use snowmelt_types::{ByteSize, Code, CpuMillis, Digest, ErrorReport, SandboxId};
use tokio::sync::OnceCell;

use crate::log::LogCollector;
use crate::{Error, Result, Unit};

/// The most zygotes alive; the least recently used goes first.
const MOST: usize = 8;

/// How long the imports of a zygote may take.
const IMPORTS_TAKE_AT_MOST: Duration = Duration::from_secs(120);

/// Memory for the imports of one zygote. Children are charged for what they change only.
const MEMORY: ByteSize = ByteSize::mib(2048);

#[derive(Debug)]
pub(crate) struct Zygotes {
    spawner: Spawner,
    // Held for a look-up only; a start waits on the slot's own cell.
    slots: Mutex<HashMap<Digest, Arc<Slot>>>,
}

/// A zygote and when it was used last. Whoever holds a child of it holds the slot too: a child
/// dies with its zygote, so an evicted zygote lives on until its last child is gone.
#[derive(Debug)]
pub(crate) struct Slot {
    zygote: OnceCell<Running>,
    used: Mutex<Instant>,
}

/// A zygote whose output is read, or it would stand still once the pipe is full.
#[derive(Debug)]
struct Running {
    zygote: Zygote,
    _log: Option<LogCollector>,
}

impl Zygotes {
    pub fn new(spawner: Spawner) -> Self {
        Self { spawner, slots: Mutex::default() }
    }

    /// Forks a child of the unit's zygote. A zygote that died is replaced once; what its second
    /// life says is the answer.
    pub async fn fork(
        &self,
        unit: &Unit,
        spec: impl Fn() -> ForkSpec,
    ) -> Result<(Sandbox, Arc<Slot>)> {
        let slot = self.slot(&unit.zygote);
        let zygote = slot.zygote.get_or_try_init(|| self.start(unit)).await?;
        match self.spawner.fork(&zygote.zygote, spec()).await {
            Ok(sandbox) => Ok((sandbox, slot)),
            Err(error) => {
                tracing::debug!(%error, "zygote failed to fork; starting it again");
                self.forget(&unit.zygote, &slot);
                let slot = self.slot(&unit.zygote);
                let zygote = slot.zygote.get_or_try_init(|| self.start(unit)).await?;
                let sandbox = self.spawner.fork(&zygote.zygote, spec()).await?;
                Ok((sandbox, slot))
            }
        }
    }

    /// How many are alive.
    pub fn len(&self) -> usize {
        self.lock().values().filter(|slot| slot.zygote.initialized()).count()
    }

    /// Ends those that nobody used for `idle`.
    pub fn evict(&self, idle: Duration) {
        let now = Instant::now();
        let old: Vec<_> = {
            let mut slots = self.lock();
            slots.extract_if(|_, slot| now.duration_since(slot.used()) > idle).collect()
        };
        // Destroyed outside the lock.
        drop(old);
    }

    /// Ends all.
    pub fn clear(&self) {
        let all = std::mem::take(&mut *self.lock());
        drop(all);
    }

    async fn start(&self, unit: &Unit) -> Result<Running> {
        let spec = ZygoteSpec {
            id: SandboxId::new(),
            root: unit.base.clone(),
            python: unit.python.clone(),
            python_path: unit.python_path.clone(),
            imports: unit.imports.clone(),
            env: Vec::new(),
            limits: Limits { memory: MEMORY, cpu: CpuMillis(2000), ..Limits::default() },
        };
        let started = tokio::time::timeout(IMPORTS_TAKE_AT_MOST, self.spawner.start_zygote(spec));
        let mut zygote = started.await.map_err(|_| imports_took_too_long(unit))??;
        let log = zygote.take_log().map(LogCollector::new).transpose()?;
        Ok(Running { zygote, _log: log })
    }

    fn slot(&self, key: &Digest) -> Arc<Slot> {
        let (slot, evicted) = {
            let mut slots = self.lock();
            let evicted =
                if slots.contains_key(key) { None } else { evict_for_one_more(&mut slots) };
            let fresh =
                || Arc::new(Slot { zygote: OnceCell::new(), used: Mutex::new(Instant::now()) });
            (Arc::clone(slots.entry(key.clone()).or_insert_with(fresh)), evicted)
        };
        drop(evicted);
        slot.touch();
        slot
    }

    fn forget(&self, key: &Digest, slot: &Arc<Slot>) {
        let mut slots = self.lock();
        // Somebody else may have replaced it already.
        if slots.get(key).is_some_and(|current| Arc::ptr_eq(current, slot)) {
            slots.remove(key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn imports_took_too_long(unit: &Unit) -> Error {
    let seconds = IMPORTS_TAKE_AT_MOST.as_secs();
    let message = format!("importing {} took more than {seconds} s", unit.imports.join(", "));
    let report = ErrorReport::new(Code::FUNCTION_LOAD, message);
    Error::Report(Box::new(report.hint("import what is slow inside the function")))
}

fn evict_for_one_more(slots: &mut HashMap<Digest, Arc<Slot>>) -> Option<Arc<Slot>> {
    if slots.len() < MOST {
        return None;
    }
    let oldest = slots.iter().min_by_key(|(_, slot)| slot.used()).map(|(key, _)| key.clone())?;
    slots.remove(&oldest)
}

impl Slot {
    fn used(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}
