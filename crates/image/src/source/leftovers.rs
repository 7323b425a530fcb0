//! Temporary files in a layout folder, of writers that were killed.
//!
//! Invariant: no file of a writer that lives is removed.

use super::OciLayout;
use crate::Result;
use crate::removal::{files, remove};

/// Removes temporary files of writers that were killed. False, without effect, while a writer is
/// active: also one that was killed, until the kernel has ended it.
pub fn sweep(layout: &OciLayout) -> Result<bool> {
    let left = files(&layout.private("tmp"))?;
    if left.is_empty() {
        return Ok(true);
    }
    let Some(_alone) = layout.collect_alone()? else { return Ok(false) };
    let _names = layout.change_names()?;
    left.iter().try_for_each(|(_, path, _)| remove(path, false)).map(|()| true)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_killed_writers_left_is_removed_once_none_is_active() {
        let folder = tempfile::tempdir().unwrap();
        let layout = OciLayout::create(folder.path()).unwrap();
        assert!(sweep(&layout).unwrap());
        let writer = layout.keep_collectors_away().unwrap();
        fs::write(layout.private("tmp").join("left"), "half").unwrap();
        assert!(!sweep(&layout).unwrap());
        assert_eq!(files(&layout.private("tmp")).unwrap().len(), 1);
        drop(writer);
        assert!(sweep(&layout).unwrap());
        assert!(files(&layout.private("tmp")).unwrap().is_empty());
    }
}
