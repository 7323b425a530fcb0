//! Bursts on disk, so that a control that is restarted starts those that it has accepted, goes on
//! with those that run and has the answers of those that ended.
//!
//! Records are in the store, with short answers. What may be long is a file, because a store of
//! small values keeps all controls in step: the request of a burst that nobody waits for, until its
//! functions are called, and a long answer. Invariants: a record that says that a burst succeeded
//! is written after the file of its answer; the file of a request is removed after the record is
//! written, so one that has no record was not called.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use snowmelt_api::BurstCalls;
use snowmelt_types::{Code, ErrorReport, JobId};

use super::job::{AnswerContent, BurstOutcome};
use crate::access::permissions;
use crate::now_ms;
use crate::state::records::{FunctionRecord, JobEnd, JobRecord, Records};

/// The most bytes of an answer that is in the record, and stays in memory.
const SHORT: usize = 256 << 10;

/// The end of the name of a file with a request.
const REQUEST: &str = "request";

/// A burst whose client was told its identifier and does not wait for it, until it is called.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Accepted {
    pub since_ms: u64,
    pub record: FunctionRecord,
    /// The calls of the burst, with its identifier.
    pub calls: BurstCalls,
}

/// The store and folder in which bursts are kept. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct BurstStorage {
    records: Records,
    folder: PathBuf,
}

impl BurstStorage {
    /// Keeps records in a store, and long answers in a folder.
    pub fn new(records: Records, folder: PathBuf) -> Self {
        Self { records, folder }
    }

    /// Writes the request of a burst; on return it survives a crash.
    pub(super) async fn accept(&self, job: &JobId, request: &Accepted) -> Result<(), ErrorReport> {
        let text = serde_json::to_vec(request);
        let text = text.map_err(|error| ErrorReport::new(Code::INTERNAL, error.to_string()))?;
        self.write(self.request(job), text.into()).await
    }

    /// Removes the request of a burst that has a record, or whose client has cancelled it.
    pub async fn remove_request(&self, job: &JobId) -> Result<(), ErrorReport> {
        removed(&self.request(job)).await
    }

    /// Returns the requests of bursts that were not called, the oldest first.
    pub(super) async fn requests(&self) -> Vec<Accepted> {
        let mut requests = Vec::new();
        for path in self.files().await {
            if path.extension().is_none_or(|end| end != REQUEST) {
                continue;
            }
            let read = tokio::fs::read(&path).await.map_err(|error| error.to_string());
            let parse = |text: Vec<u8>| serde_json::from_slice(&text);
            match read.and_then(|text| parse(text).map_err(|error| error.to_string())) {
                Ok(request) => requests.push(request),
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "a burst cannot be started");
                }
            }
        }
        requests.sort_by_key(|request: &Accepted| request.since_ms);
        requests
    }

    /// Writes the record of a burst whose functions are about to be called.
    pub async fn begin(&self, record: &JobRecord) -> Result<(), ErrorReport> {
        self.records.put_job(record).await
    }

    /// Writes the outcome of a burst, and returns it as it is to be kept in memory.
    pub async fn end(
        &self,
        record: &JobRecord,
        outcome: Result<Bytes, ErrorReport>,
    ) -> Result<AnswerContent, ErrorReport> {
        let is_short = |answer: &&Bytes| answer.len() <= SHORT;
        let short = outcome.as_ref().ok().filter(is_short).and_then(text);
        let stored = match (&outcome, &short) {
            (Ok(answer), None) => {
                let path = self.path(&record.job);
                self.write(path.clone(), answer.clone()).await?;
                Some(AnswerContent::File(path, answer.len() as u64))
            }
            _ => None,
        };
        let error = outcome.as_ref().err().cloned();
        self.put_end(record, error, short).await?;
        Ok(stored.unwrap_or(AnswerContent::Memory(outcome?)))
    }

    /// Writes why a burst was never called.
    pub async fn failed(&self, record: &JobRecord, error: &ErrorReport) -> Result<(), ErrorReport> {
        self.put_end(record, Some(error.clone()), None).await
    }

    async fn put_end(
        &self,
        record: &JobRecord,
        error: Option<ErrorReport>,
        answer: Option<Box<RawValue>>,
    ) -> Result<(), ErrorReport> {
        let ended = Some(JobEnd { at_ms: now_ms(), error, answer });
        self.records.put_job(&JobRecord { ended, ..record.clone() }).await
    }

    /// Removes the record, the request and the answer of a burst.
    pub async fn forget(&self, job: &JobId) -> Result<(), ErrorReport> {
        // A request without a record is that of a burst which was not called.
        self.remove_request(job).await?;
        self.records.remove_job(job).await?;
        removed(&self.path(job)).await
    }

    /// Returns all kept bursts, those that have ended with their outcomes. Removes files without a
    /// record, which a crash may have left.
    pub async fn load(&self) -> Result<Vec<(JobRecord, Option<BurstOutcome>)>, ErrorReport> {
        let records = self.records.jobs().await?;
        let mut all = Vec::with_capacity(records.len());
        for record in records {
            let outcome = match &record.ended {
                None => None,
                Some(JobEnd { error: Some(error), .. }) => Some(Err(error.clone())),
                Some(JobEnd { answer: Some(answer), .. }) => {
                    Some(Ok(AnswerContent::Memory(Bytes::from(answer.get().to_owned()))))
                }
                Some(_) => Some(self.found(&record.job).await),
            };
            all.push((record, outcome));
        }
        let known: Vec<PathBuf> = all.iter().map(|(record, _)| self.path(&record.job)).collect();
        for path in self.files().await {
            if !known.contains(&path) && path.extension().is_none_or(|end| end != REQUEST) {
                // What cannot be removed now is tried again at the next start.
                let _ = tokio::fs::remove_file(path).await;
            }
        }
        Ok(all)
    }

    async fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let Ok(mut files) = tokio::fs::read_dir(&self.folder).await else { return found };
        while let Ok(Some(file)) = files.next_entry().await {
            found.push(file.path());
        }
        found
    }

    async fn found(&self, job: &JobId) -> BurstOutcome {
        let path = self.path(job);
        let found = tokio::fs::metadata(&path).await;
        let length = found.map_err(|error| permissions::failure(&path, &error))?.len();
        Ok(AnswerContent::File(path, length))
    }

    async fn write(&self, path: PathBuf, text: Bytes) -> Result<(), ErrorReport> {
        let to = path.clone();
        let folder = self.folder.clone();
        let written = tokio::task::spawn_blocking(move || {
            use std::io::Write;
            std::fs::create_dir_all(&folder)?;
            let part = to.with_extension("part");
            let written = || {
                let mut file = permissions::private_file(&part)?;
                file.set_len(0)?;
                file.write_all(&text)?;
                file.sync_all()?;
                std::fs::rename(&part, &to)?;
                std::fs::File::open(&folder)?.sync_all()
            };
            written().inspect_err(|_| {
                let _ = std::fs::remove_file(&part);
            })
        });
        let written = written.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        written.map_err(|error| permissions::failure(&path, &error))
    }

    fn path(&self, job: &JobId) -> PathBuf {
        self.folder.join(format!("{job}.json"))
    }

    fn request(&self, job: &JobId) -> PathBuf {
        self.folder.join(format!("{job}.{REQUEST}"))
    }
}

async fn removed(path: &Path) -> Result<(), ErrorReport> {
    match tokio::fs::remove_file(path).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(permissions::failure(path, &error))
        }
        _ => Ok(()),
    }
}

/// Returns a short answer as text for a record.
fn text(answer: &Bytes) -> Option<Box<RawValue>> {
    RawValue::from_string(String::from_utf8(answer.to_vec()).ok()?).ok()
}
