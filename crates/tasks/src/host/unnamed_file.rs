//! Files without names: nothing remains of them after a crash.

use std::fs::File;
use std::path::Path;

/// Creates a file without a name on the disk of a folder.
pub(crate) fn nameless(folder: &Path) -> std::io::Result<File> {
    match tempfile::tempfile_in(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            std::fs::create_dir_all(folder)?;
            tempfile::tempfile_in(folder)
        }
        opened => opened,
    }
}
