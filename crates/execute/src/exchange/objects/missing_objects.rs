//! Objects of an exchange that are not found when they are read.
//!
//! A store may show an object some time after its writer has reported it, so it is looked for
//! several times. An object that is not found for [`LATE`] is gone: somebody has removed it.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use object_store::Result;

use super::names::Object;

/// How long an object that its writer has reported is looked for.
pub(super) const LATE: Duration = Duration::from_secs(5);

/// The pause before an object is looked for again.
const PAUSE: Duration = Duration::from_millis(100);

/// The objects that one task has not found so far.
#[derive(Debug)]
pub(super) struct MissingObjects {
    late: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When each object that was not found was looked for first.
    since: HashMap<Object, Instant>,
    /// True if an object is gone.
    is_lost: bool,
}

impl MissingObjects {
    /// Creates an empty set. An object that is not found for `late` is gone.
    pub(super) fn new(late: Duration) -> Self {
        Self { late, state: Mutex::default() }
    }

    /// Repeats a read while the object is not there. The error of the last read says that the
    /// object is gone.
    pub(super) async fn until_there<T, F>(
        &self,
        object: &Object,
        mut read: impl FnMut() -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let begun = Instant::now();
        let mut pause = PAUSE;
        loop {
            let result = read().await;
            if !matches!(result, Err(object_store::Error::NotFound { .. })) {
                self.lock().since.remove(object);
                return result;
            }
            self.lock().since.entry(object.clone()).or_insert(begun);
            if begun.elapsed() + pause >= self.late {
                self.lock().is_lost = true;
                return result;
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    /// Returns the tasks whose objects are gone; none as long as each object may still appear. Once
    /// one object is gone, objects that were not found for half of the time count, too: they would
    /// be gone next.
    pub(super) fn lost(&self) -> Vec<u32> {
        let state = self.lock();
        let gone = state.since.iter().filter(|(_, since)| since.elapsed() * 2 >= self.late);
        let mut tasks: Vec<u32> = gone.map(|(object, _)| object.task()).collect();
        tasks.sort_unstable();
        tasks.dedup();
        match state.is_lost {
            true => tasks,
            false => Vec::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use snowmelt_wire::ObjectsAt;

    use super::*;
    use crate::exchange::objects::names::object;

    fn written_by(task: u32) -> Object {
        let at = ObjectsAt { folders: vec!["s3://b/0".to_owned()], combined: true };
        object(&at, task, 0, 0, 0)
    }

    fn not_found() -> Result<u32> {
        Err(object_store::Error::NotFound { path: "x".to_owned(), source: "not yet".into() })
    }

    #[tokio::test]
    async fn an_object_that_appears_late_is_read() {
        let objects = MissingObjects::new(Duration::from_secs(60));
        let object = written_by(3);
        let mut missing = 2;
        let read = objects.until_there(&object, || {
            missing -= 1;
            let found = if missing >= 0 { not_found() } else { Ok(5) };
            async { found }
        });
        assert_eq!(read.await.unwrap(), 5);
        assert!(objects.lost().is_empty() && objects.lock().since.is_empty());
    }

    #[tokio::test]
    async fn an_object_that_does_not_appear_in_time_is_gone() {
        let objects = MissingObjects::new(Duration::ZERO);
        for task in [7, 3, 7] {
            let object = written_by(task);
            let read = objects.until_there(&object, || async { not_found() });
            assert!(read.await.is_err());
        }
        assert_eq!(objects.lost(), [3, 7]);
    }

    #[tokio::test]
    async fn another_error_is_no_loss() {
        let objects = MissingObjects::new(Duration::ZERO);
        let denied =
            || object_store::Error::PermissionDenied { path: "x".into(), source: "".into() };
        let object = written_by(1);
        let read = objects.until_there(&object, || async { Err::<u32, _>(denied()) });
        assert!(read.await.is_err());
        assert!(objects.lost().is_empty());
    }
}
