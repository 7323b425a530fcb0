//! Sandboxes without control groups, which an ordinary user may not make.
//!
//! Groups are names here. The lane looks at the memory of its sandboxes and ends one that exceeds its
//! limit (`spawner/service/memory_watch`); the processes set the limit of their number themselves
//! (`spawner/child/process_limit`). All processes of a sandbox end with the first one of its pid
//! namespace, so nothing has to be found by its group.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use snowmelt_types::ByteSize;

use super::{Backend, FreezerFile, GroupUsage, Meters, ThrottledFile};
use crate::Result;
use crate::spec::Limits;

/// The counts of the lane, by the name of the group.
#[derive(Debug, Default)]
pub(crate) struct Unmanaged(RefCell<HashMap<String, GroupUsage>>);

impl Backend for Unmanaged {
    fn prepare(&self, _parent: &str) -> Result<()> {
        Ok(())
    }

    fn set_total_limits(
        &self,
        _parent: &str,
        _memory: Option<ByteSize>,
        _processes: Option<u32>,
    ) -> Result<()> {
        Ok(())
    }

    fn create(&self, _group: &str) -> Result<()> {
        Ok(())
    }

    fn set_limits(&self, _group: &str, _limits: &Limits) -> Result<()> {
        Ok(())
    }

    /// Never resets a group: another name costs nothing.
    fn reset(&self, _group: &str, _meters: &mut Meters) -> bool {
        false
    }

    fn forget(&self, group: &str) {
        self.0.borrow_mut().remove(group);
    }

    fn entry_fds(&self, _group: &str) -> Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }

    fn ensure_member(&self, _group: &str, _pid: i32) -> Result<()> {
        Ok(())
    }

    fn clone_target(&self, _group: &str) -> Result<Option<OwnedFd>> {
        Ok(None)
    }

    fn usage(&self, group: &str, _meters: &mut Meters) -> GroupUsage {
        self.0.borrow().get(group).copied().unwrap_or_default()
    }

    fn is_watched(&self) -> bool {
        true
    }

    fn count_memory(&self, group: &str, used: ByteSize, is_over: bool) {
        let mut groups = self.0.borrow_mut();
        let counted = groups.entry(group.to_owned()).or_default();
        counted.memory_peak = counted.memory_peak.max(Some(used));
        counted.oom_kills += u64::from(is_over);
    }

    fn memory_peak_file(&self, _group: &str) -> Option<PathBuf> {
        None
    }

    fn memory_file(&self, _group: &str) -> Option<PathBuf> {
        None
    }

    fn throttled_file(&self, _group: &str) -> Option<ThrottledFile> {
        None
    }

    #[cfg(test)]
    fn memory_limit_file(&self) -> &'static str {
        ""
    }

    fn freezer_file(&self, _group: &str) -> Option<FreezerFile> {
        None
    }

    fn folders(&self, _group: &str) -> Vec<PathBuf> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_stay_until_the_group_is_given_up() {
        let groups = Unmanaged::default();
        let meters = &mut Meters::default();
        groups.count_memory("a", ByteSize(7), false);
        groups.count_memory("a", ByteSize(9), true);
        groups.count_memory("a", ByteSize(3), false);
        let usage = groups.usage("a", meters);
        assert_eq!((usage.memory_peak, usage.oom_kills), (Some(ByteSize(9)), 1));
        assert_eq!(groups.usage("b", meters), GroupUsage::default());
        groups.forget("a");
        assert_eq!(groups.usage("a", meters), GroupUsage::default());
    }
}
