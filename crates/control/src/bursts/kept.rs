//! Bursts on disk, so that a control that is restarted goes on with those that run and has the
//! answers of those that ended.
//!
//! Records are in the store, with short answers; a long answer is a file, because a store of small
//! values keeps all controls in step. Invariant: a record that says that a burst succeeded is written
//! after the file of its answer.

use std::path::PathBuf;

use bytes::Bytes;
use serde_json::value::RawValue;
use snowmelt_types::{ErrorReport, JobId};

use super::job::{Outcome, Stored};
use crate::records::{JobEnd, JobRecord, Records};
use crate::{now_ms, permissions};

/// Answers up to this length are in the record, and stay in memory.
const SHORT: usize = 256 << 10;

/// Where bursts are kept. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    records: Records,
    folder: PathBuf,
}

impl Kept {
    /// Records in the store, and answers in a folder.
    pub fn new(records: Records, folder: PathBuf) -> Self {
        Self { records, folder }
    }

    /// The functions of the burst are about to be called.
    pub async fn begin(&self, record: &JobRecord) -> Result<(), ErrorReport> {
        self.records.put_job(record).await
    }

    /// Writes the outcome of a burst, and returns it as it is to be kept in memory.
    pub async fn end(
        &self,
        record: &JobRecord,
        outcome: Result<Bytes, ErrorReport>,
    ) -> Result<Stored, ErrorReport> {
        let is_short = |answer: &&Bytes| answer.len() <= SHORT;
        let short = outcome.as_ref().ok().filter(is_short).and_then(text);
        let stored = match (&outcome, &short) {
            (Ok(answer), None) => Some(self.write(&record.job, answer.clone()).await?),
            _ => None,
        };
        let error = outcome.as_ref().err().cloned();
        let ended = Some(JobEnd { at_ms: now_ms(), error, answer: short });
        self.records.put_job(&JobRecord { ended, ..record.clone() }).await?;
        Ok(stored.unwrap_or(Stored::Memory(outcome?)))
    }

    /// Removes what is kept of a burst.
    pub async fn forget(&self, job: &JobId) -> Result<(), ErrorReport> {
        self.records.remove_job(job).await?;
        let path = self.path(job);
        match tokio::fs::remove_file(&path).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(permissions::failure(&path, &error))
            }
            _ => Ok(()),
        }
    }

    /// All that is kept, with the outcomes of bursts that have ended. Removes files without a
    /// record, which a crash may have left.
    pub async fn load(&self) -> Result<Vec<(JobRecord, Option<Outcome>)>, ErrorReport> {
        let records = self.records.jobs().await?;
        let mut all = Vec::with_capacity(records.len());
        for record in records {
            let outcome = match &record.ended {
                None => None,
                Some(JobEnd { error: Some(error), .. }) => Some(Err(error.clone())),
                Some(JobEnd { answer: Some(answer), .. }) => {
                    Some(Ok(Stored::Memory(Bytes::from(answer.get().to_owned()))))
                }
                Some(_) => Some(self.found(&record.job).await),
            };
            all.push((record, outcome));
        }
        let known: Vec<PathBuf> = all.iter().map(|(record, _)| self.path(&record.job)).collect();
        let Ok(mut files) = tokio::fs::read_dir(&self.folder).await else { return Ok(all) };
        while let Ok(Some(file)) = files.next_entry().await {
            if !known.contains(&file.path()) {
                // What cannot be removed now is tried again at the next start.
                let _ = tokio::fs::remove_file(file.path()).await;
            }
        }
        Ok(all)
    }

    async fn found(&self, job: &JobId) -> Outcome {
        let path = self.path(job);
        let found = tokio::fs::metadata(&path).await;
        let length = found.map_err(|error| permissions::failure(&path, &error))?.len();
        Ok(Stored::File(path, length))
    }

    async fn write(&self, job: &JobId, answer: Bytes) -> Result<Stored, ErrorReport> {
        let (path, folder) = (self.path(job), self.folder.clone());
        let written = tokio::task::spawn_blocking(move || {
            use std::io::Write;
            std::fs::create_dir_all(&folder)?;
            let part = path.with_extension("part");
            let mut file = permissions::private_file(&part)?;
            file.set_len(0)?;
            file.write_all(&answer)?;
            file.sync_all()?;
            std::fs::rename(&part, &path)?;
            Ok(Stored::File(path, answer.len() as u64))
        });
        let written = written.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        written.map_err(|error| permissions::failure(&self.path(job), &error))
    }

    fn path(&self, job: &JobId) -> PathBuf {
        self.folder.join(format!("{job}.json"))
    }
}

/// The answer as text in a record.
fn text(answer: &Bytes) -> Option<Box<RawValue>> {
    RawValue::from_string(String::from_utf8(answer.to_vec()).ok()?).ok()
}
