//! Results of the analysis of code, cached on disk by its content: a file for each entry.
//!
//! Invariant: the cache saves time only. An entry that is missing, broken or cannot be written
//! costs time and changes no answer. The number of entries is bounded; those used last stay.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;
use snowmelt_types::Digest;

/// The most entries of the cache, of some kilobytes each.
const MAX_ENTRIES: usize = 4096;

/// The number of new entries after which all entries are counted. Counting reads the folder.
const COUNTED_EVERY: usize = 256;

/// A folder of cache entries. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct AnalysisCache {
    folder: PathBuf,
    added: Arc<AtomicUsize>,
}

impl AnalysisCache {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, added: Arc::default() }
    }

    pub fn get<T: DeserializeOwned>(&self, key: &Digest) -> Option<T> {
        let path = self.path(key);
        let known = serde_json::from_slice(&std::fs::read(&path).ok()?).ok()?;
        // Where the use cannot be noted, the entry goes earlier.
        let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        Some(known)
    }

    pub fn put(&self, key: &Digest, entry: &impl Serialize) {
        let written = || -> std::io::Result<()> {
            std::fs::create_dir_all(&self.folder)?;
            let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
            serde_json::to_writer(&mut file, entry)?;
            file.persist(self.path(key))?;
            match self.added.fetch_add(1, Ordering::Relaxed) % COUNTED_EVERY {
                0 => self.trim(MAX_ENTRIES - COUNTED_EVERY),
                _ => Ok(()),
            }
        };
        if let Err(error) = written() {
            tracing::debug!(%error, "cannot cache the analysis of code");
        }
    }

    /// Removes all entries but those used last.
    fn trim(&self, most: usize) -> std::io::Result<()> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            // Another process may have removed it.
            let used = entry.metadata().and_then(|found| found.modified());
            entries.extend(used.map(|used| (used, entry.path())));
        }
        entries.sort_unstable();
        for (_, path) in &entries[..entries.len().saturating_sub(most)] {
            let _ = std::fs::remove_file(path);
        }
        Ok(())
    }

    fn path(&self, key: &Digest) -> PathBuf {
        self.folder.join(format!("{key}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each version of a function once left entries for ever.
    #[test]
    fn entries_are_bounded_and_those_used_last_stay() {
        let folder = tempfile::tempdir().unwrap();
        let analysis = AnalysisCache::new(folder.path().to_owned());
        let keys: Vec<_> = (0..10).map(|number| Digest::of(format!("{number}"))).collect();
        for key in &keys {
            analysis.put(key, &1);
            let old = File::open(analysis.path(key)).unwrap();
            old.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        let used = &keys[3..6];
        assert!(used.iter().all(|key| analysis.get::<u32>(key).is_some()));
        analysis.trim(3).unwrap();
        let left: Vec<_> = keys.iter().filter(|key| analysis.path(key).exists()).collect();
        assert_eq!(left, used.iter().collect::<Vec<_>>());
        for number in 0..MAX_ENTRIES + COUNTED_EVERY {
            analysis.put(&Digest::of(format!("n{number}")), &1);
        }
        assert!(std::fs::read_dir(folder.path()).unwrap().count() <= MAX_ENTRIES);
    }

    #[test]
    fn a_broken_entry_is_a_miss() {
        let folder = tempfile::tempdir().unwrap();
        let analysis = AnalysisCache::new(folder.path().join("known"));
        let key = Digest::of("code");
        assert_eq!(analysis.get::<Vec<String>>(&key), None);
        analysis.put(&key, &["numpy"]);
        assert_eq!(analysis.get::<Vec<String>>(&key).unwrap(), ["numpy"]);
        std::fs::write(analysis.path(&key), "[\"num").unwrap();
        assert_eq!(analysis.get::<Vec<String>>(&key), None);
    }
}
