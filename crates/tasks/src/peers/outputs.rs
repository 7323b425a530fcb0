//! The outputs of tasks that a host keeps, for the tasks that read them.
//!
//! Invariant: an output is named by the attempt that made it, and is complete. A copy of an output
//! of another host ([`Copy`]) is complete in the end. The outputs of a query are kept until they
//! are released, and at most as long as the query runs on this host. Their files have no names, so
//! nothing of them is left after a crash.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::copies::Copy;

/// How long a reader waits for a copy that has not begun: other hosts are told of the copy when its
/// host is asked for a task, and that request first has to arrive there.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The outputs of all queries on a host.
#[derive(Debug, Default)]
pub(crate) struct OutputStore {
    queries: Mutex<HashMap<String, Arc<Outputs>>>,
}

/// The outputs of one query on a host.
#[derive(Debug)]
pub(crate) struct Outputs {
    files: Mutex<HashMap<u64, Arc<File>>>,
    copies: Mutex<HashMap<u64, CopyHere>>,
    // Notified when a copy has begun, or will not begin.
    decided: Notify,
    /// A token that is cancelled when the query has ended here.
    pub ended: CancellationToken,
}

/// The state of a copy on this host. Its numbers are those that control gives.
#[derive(Debug, Default)]
struct CopyHere {
    begun: Option<(u64, Arc<Copy>)>,
    // The last that did not begin with the task that was to begin it; 0 is none.
    declined: u64,
}

/// An output on this host.
#[derive(Debug)]
pub(crate) enum LocalOutput {
    /// An output that was made here.
    Made(Arc<File>),
    /// A copy of an output of another host.
    Copied(Arc<Copy>),
}

/// The right to keep outputs of a query. Dropping it removes all of them.
#[derive(Debug)]
pub(crate) struct KeptOutputs {
    store: Arc<OutputStore>,
    query: String,
    outputs: Arc<Outputs>,
    _ended: DropGuard,
}

impl OutputStore {
    /// Begins to keep outputs of a query; `None` if its outputs are kept already.
    pub fn keep(self: &Arc<Self>, query: &str) -> Option<KeptOutputs> {
        let ended = CancellationToken::new();
        let files = Mutex::default();
        let copies = Mutex::default();
        let decided = Notify::new();
        let ends = ended.clone();
        let outputs = Arc::new(Outputs { files, copies, decided, ended: ends });
        let mut queries = self.lock();
        if queries.contains_key(query) {
            return None;
        }
        queries.insert(query.to_owned(), Arc::clone(&outputs));
        let store = Arc::clone(self);
        let query = query.to_owned();
        Some(KeptOutputs { store, query, outputs, _ended: ended.drop_guard() })
    }

    /// Returns the outputs of a query.
    pub fn of(&self, query: &str) -> Option<Arc<Outputs>> {
        self.lock().get(query).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Outputs>>> {
        self.queries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outputs {
    /// Returns the output of an attempt.
    pub fn get(&self, attempt: u64) -> Option<Arc<File>> {
        self.lock().get(&attempt).cloned()
    }

    /// Opens the output of an attempt for reading only: an output that has counted does not change.
    pub fn open(&self, attempt: u64) -> Option<std::io::Result<File>> {
        self.get(attempt).map(|file| read_only(&file))
    }

    /// Begins to copy the output of an attempt here, unless a copy was begun and has not failed.
    pub fn copy(&self, attempt: u64, number: u64, begin: impl FnOnce() -> std::io::Result<Copy>) {
        let mut copies = self.copies();
        let here = copies.entry(attempt).or_default();
        if here.begun.as_ref().is_some_and(|(_, copy)| !copy.has_failed()) {
            return;
        }
        match begin() {
            Ok(copy) => here.begun = Some((number, Arc::new(copy))),
            Err(error) => {
                tracing::warn!(%error, "an output is not copied to this host");
                here.declined = here.declined.max(number);
            }
        }
        drop(copies);
        self.decided.notify_waiters();
    }

    /// Notes that a task that was to begin a copy with this number does not begin here.
    pub fn decline(&self, attempt: u64, number: u64) {
        let mut copies = self.copies();
        let here = copies.entry(attempt).or_default();
        here.declined = here.declined.max(number);
        drop(copies);
        self.decided.notify_waiters();
    }

    /// Waits until a copy has begun that has at most this number, and returns it, although it may
    /// still be arriving. `None` if it does not begin in time.
    pub async fn begun(&self, attempt: u64, number: u64) -> Option<LocalOutput> {
        let begins = async {
            loop {
                let mut decided = pin!(self.decided.notified());
                // Before the look, so that nothing after it is missed.
                decided.as_mut().enable();
                if let Some(copy) = self.decided_copy(attempt, number) {
                    return copy;
                }
                decided.await;
            }
        };
        let copy = tokio::time::timeout(BEGIN_TIMEOUT, begins).await.ok().flatten();
        copy.map(LocalOutput::Copied)
    }

    /// Returns the copy once it is decided. The outer `None` means that the copy may still begin,
    /// the inner `None` that there is no copy with at most this number.
    fn decided_copy(&self, attempt: u64, number: u64) -> Option<Option<Arc<Copy>>> {
        let copies = self.copies();
        let here = copies.get(&attempt)?;
        match &here.begun {
            Some((begun, copy)) => Some((*begun <= number).then(|| Arc::clone(copy))),
            None => (here.declined >= number).then_some(None),
        }
    }

    /// Waits until the copy of the output of an attempt is whole, and opens it for reading only.
    /// `None` if there will be no whole copy.
    pub async fn copied(&self, attempt: u64) -> Option<File> {
        let copy = self.copies().get(&attempt)?.begun.as_ref().map(|(_, copy)| Arc::clone(copy))?;
        let size = copy.size().await?;
        if !copy.reaches(size).await {
            return None;
        }
        read_only(copy.file()).ok()
    }

    fn copies(&self) -> MutexGuard<'_, HashMap<u64, CopyHere>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<File>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LocalOutput {
    /// Returns the size of the output in bytes; `None` if it cannot be read.
    pub async fn size(&self) -> Option<u64> {
        match self {
            Self::Made(file) => Some(file.metadata().ok()?.len()),
            Self::Copied(copy) => copy.size().await,
        }
    }

    /// Waits until the first `bytes` bytes can be read. False if they never can.
    pub async fn reaches(&self, bytes: u64) -> bool {
        match self {
            Self::Made(_) => true,
            Self::Copied(copy) => copy.reaches(bytes).await,
        }
    }

    pub fn file(&self) -> &Arc<File> {
        match self {
            Self::Made(file) => file,
            Self::Copied(copy) => copy.file(),
        }
    }
}

fn read_only(file: &File) -> std::io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

impl KeptOutputs {
    /// Adds the output of an attempt that has ended well.
    pub fn add(&self, attempt: u64, file: File) {
        self.outputs.lock().insert(attempt, Arc::new(file));
    }

    /// Removes outputs that are not read any more.
    pub fn release(&self, attempts: &[u64]) {
        let mut files = self.outputs.lock();
        let removed: Vec<_> = attempts.iter().map(|attempt| files.remove(attempt)).collect();
        // Closed outside the lock: to free the pages of a large file takes time.
        drop(files);
        drop(removed);
        let mut copies = self.outputs.copies();
        let removed: Vec<_> = attempts.iter().map(|attempt| copies.remove(attempt)).collect();
        drop(copies);
        drop(removed);
    }

    /// Returns all outputs of the query on this host.
    pub fn all(&self) -> &Outputs {
        &self.outputs
    }
}

impl Drop for KeptOutputs {
    fn drop(&mut self) {
        self.store.lock().remove(&self.query);
        // A connection that is being read from may hold the rest for a moment.
        let files = std::mem::take(&mut *self.outputs.lock());
        drop(files);
        let copies = std::mem::take(&mut *self.outputs.copies());
        drop(copies);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use futures::FutureExt;

    use super::*;
    use crate::peers::copies::CopySource;

    fn file(content: &str) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content.as_bytes()).unwrap();
        file
    }

    #[test]
    fn outputs_are_kept_until_they_are_released_or_the_query_ends() {
        let store = Arc::new(OutputStore::default());
        let kept = store.keep("q").unwrap();
        assert!(store.keep("q").is_none(), "one keeps them");
        kept.add(1, file("one"));
        kept.add(2, file("two"));
        kept.release(&[1, 9]);
        let outputs = store.of("q").unwrap();
        assert!(outputs.get(1).is_none() && outputs.get(2).is_some());
        let mut text = String::new();
        outputs.open(2).unwrap().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "two");
        drop(kept);
        assert!(store.of("q").is_none() && outputs.get(2).is_none());
        assert!(outputs.ended.is_cancelled());
    }

    fn never_ends() -> std::io::Result<Copy> {
        let connect = || std::future::pending().boxed();
        let source = CopySource { connect: Box::new(connect), copy: None };
        Ok(Copy::begin(tempfile::tempfile()?, "q".to_owned(), 1, vec![source]))
    }

    #[tokio::test]
    async fn a_copy_is_waited_for_until_it_begins_or_is_declined_and_never_for_long() {
        let store = Arc::new(OutputStore::default());
        let kept = store.keep("q").unwrap();
        let outputs = kept.all();
        // Nobody says anything.
        assert!(outputs.begun(1, 5).await.is_none());
        let begins = async {
            tokio::task::yield_now().await;
            // For a question before, and for another output.
            outputs.decline(1, 4);
            outputs.decline(2, 5);
            tokio::task::yield_now().await;
            outputs.copy(1, 5, never_ends);
        };
        assert!(tokio::join!(outputs.begun(1, 5), begins).0.is_some());
        // What is known is not waited for.
        let at_once = |attempt, number| {
            let copy = outputs.begun(attempt, number).now_or_never();
            copy.map(|copy| copy.is_some())
        };
        assert_eq!([at_once(2, 5), at_once(1, 6)], [Some(false), Some(true)]);
        assert_eq!(at_once(1, 4), Some(false), "one with a higher number may wait for who asks");
        outputs.copy(3, 1, || Err(std::io::ErrorKind::StorageFull.into()));
        assert_eq!(at_once(3, 1), Some(false));
        outputs.decline(1, 5);
        assert_eq!(at_once(1, 5), Some(true), "another task has begun it");
        kept.release(&[1]);
        assert_eq!(at_once(1, 5), None);
    }

    #[test]
    fn an_opened_output_cannot_be_written_to() {
        let store = Arc::new(OutputStore::default());
        let kept = store.keep("q").unwrap();
        kept.add(1, file("one"));
        let mut opened = kept.all().open(1).unwrap().unwrap();
        assert!(opened.write_all(b"two").is_err());
    }
}
