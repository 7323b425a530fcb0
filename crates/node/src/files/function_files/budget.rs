//! The limit of the disk space that the files of one tenant may take.
//!
//! Invariants: a file that arrives counts before it is written, so that many files at the same time
//! do not exceed the budget together. The tenant of root and of the user of the server has no
//! budget: whoever can act for that tenant can fill the disk anyhow.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_kernel::disk::check_room;
use snowmelt_types::{ByteSize, Tenant};

use super::entries;
use crate::files::code::state;
use crate::{Error, Result};

/// The bytes that a file that arrives takes of the budget at a time, before they are written.
pub(super) const STEP: u64 = 8 << 20;

/// The budget of a tenant where the setting `SNOWMELT_FILES_MAX` is absent.
const DEFAULT: ByteSize = ByteSize::mib(20 * 1024);

/// The budget of disk space that each tenant has. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    most: ByteSize,
    /// The number of files of each tenant that arrive now.
    arriving: Arc<Mutex<HashMap<Tenant, u64>>>,
}

impl Budget {
    /// Gives each tenant a budget of `most` bytes.
    pub fn new(most: ByteSize) -> Self {
        Self { most, arriving: Arc::default() }
    }

    /// Reads the budget from a value of `SNOWMELT_FILES_MAX`; the default where the value is absent
    /// or empty.
    pub fn from_setting(value: Option<&str>) -> Result<Self> {
        let Some(value) = value.filter(|value| !value.is_empty()) else {
            return Ok(Self::new(DEFAULT));
        };
        value.parse().map(Self::new).map_err(|error: snowmelt_types::ParseResourceError| {
            let reason = format!("SNOWMELT_FILES_MAX: {error}");
            Error::FunctionFile { reason }
        })
    }

    /// Counts a file of a tenant as arriving until the returned value is dropped.
    pub(super) fn begin(&self, tenant: &Tenant) -> Arriving {
        *self.lock().entry(tenant.clone()).or_insert(0) += 1;
        Arriving { of: self.clone(), tenant: tenant.clone(), granted: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Tenant, u64>> {
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that arrives, with the part of the budget that it holds.
#[derive(Debug)]
pub(super) struct Arriving {
    of: Budget,
    tenant: Tenant,
    /// The size, in bytes, up to which the file has room.
    granted: u64,
}

impl Arriving {
    /// Makes sure that a file of `size` bytes has room on the disk and in the budget. `folder` has
    /// all contents of the tenant.
    pub fn grow(&mut self, size: u64, folder: &Path) -> Result<()> {
        while size > self.granted {
            check_room(folder, STEP).map_err(state(folder))?;
            self.check(folder)?;
            self.granted += STEP;
        }
        Ok(())
    }

    fn check(&self, folder: &Path) -> Result<()> {
        if self.tenant == Tenant::default() {
            return Ok(());
        }
        let arriving = self.of.lock().get(&self.tenant).copied().unwrap_or(1);
        // Files that arrive are in the folder with what is written of them.
        let mut used = arriving.saturating_mul(STEP);
        for entry in entries(folder)? {
            used = used.saturating_add(entry.metadata().map_or(0, |found| found.len()));
        }
        if used <= self.of.most.bytes() {
            return Ok(());
        }
        let reason = format!(
            "the files of tenant `{}` would take more than {}, the most of a tenant; those that no \
             function has are removed after a day",
            self.tenant, self.of.most
        );
        Err(Error::FunctionFile { reason })
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        let mut all = self.of.lock();
        if let Some(count) = all.get_mut(&self.tenant) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                all.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::function_files::FileStore;
    use crate::files::function_files::receive::digest_of;

    fn store(most: u64) -> (tempfile::TempDir, FileStore) {
        let folder = tempfile::tempdir().unwrap();
        let budget = Budget::new(ByteSize(most));
        let store = FileStore::new(folder.path().join("files")).with_budget(budget);
        (folder, store)
    }

    fn send(store: &FileStore, tenant: &Tenant, bytes: &[u8]) -> Result<()> {
        let mut receiving = store.receive(tenant, &digest_of(bytes))?;
        for piece in bytes.chunks(1 << 20) {
            receiving.write(piece)?;
        }
        receiving.finish()
    }

    fn tenant(name: &str) -> Tenant {
        name.parse().unwrap()
    }

    #[test]
    fn a_tenant_has_a_budget_and_others_have_theirs() {
        let (_folder, store) = store(3 * STEP);
        let one = tenant("one");
        let two = tenant("two");
        send(&store, &one, &vec![1; STEP as usize]).unwrap();
        send(&store, &one, &vec![2; STEP as usize]).unwrap();
        let refused = send(&store, &one, &vec![3; STEP as usize + 1]).unwrap_err();
        assert!(refused.to_string().contains("the most of a tenant"), "{refused}");
        let left = std::fs::read_dir(store.blobs(&one)).unwrap().count();
        assert_eq!(left, 2, "what was refused is removed");
        send(&store, &two, &vec![3; STEP as usize]).unwrap();
        let all = Tenant::default();
        send(&store, &all, &vec![4; 4 * STEP as usize]).unwrap();
    }

    #[test]
    fn files_that_arrive_at_the_same_time_share_the_budget() {
        // The bytes that are written of arriving files count as well.
        let (_folder, store) = store(3 * STEP + STEP / 2);
        let one = tenant("one");
        let digest = "0".repeat(64);
        let mut arriving: Vec<_> = (0..3).map(|_| store.receive(&one, &digest).unwrap()).collect();
        for receiving in &mut arriving {
            receiving.write(&[0; 10]).unwrap_or_else(|error| panic!("{error}"));
        }
        let mut fourth = store.receive(&one, &digest).unwrap();
        assert!(fourth.write(&[0; 10]).is_err());
        drop(arriving);
        fourth.write(&[0; 10]).unwrap();
    }

    #[test]
    fn the_budget_is_a_setting() {
        let most = |value| Budget::from_setting(value).map(|budget| budget.most);
        assert_eq!(most(None).unwrap(), DEFAULT);
        assert_eq!(most(Some("2GiB")).unwrap(), ByteSize::mib(2048));
        assert!(most(Some("lots")).unwrap_err().to_string().contains("SNOWMELT_FILES_MAX"));
    }
}
