//! Results of the analysis of code, cached on disk by its content: a file for each entry.
//!
//! Invariant: the cache saves time only. An entry that is missing, broken or cannot be written
//! costs time and changes no answer.

use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;
use snowmelt_types::Digest;

/// A folder of cache entries. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct AnalysisCache {
    folder: PathBuf,
}

impl AnalysisCache {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub fn get<T: DeserializeOwned>(&self, key: &Digest) -> Option<T> {
        serde_json::from_slice(&std::fs::read(self.path(key)).ok()?).ok()
    }

    pub fn put(&self, key: &Digest, entry: &impl Serialize) {
        let written = || -> std::io::Result<()> {
            std::fs::create_dir_all(&self.folder)?;
            let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
            serde_json::to_writer(&mut file, entry)?;
            file.persist(self.path(key))?;
            Ok(())
        };
        if let Err(error) = written() {
            tracing::debug!(%error, "cannot cache the analysis of code");
        }
    }

    fn path(&self, key: &Digest) -> PathBuf {
        self.folder.join(format!("{key}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
