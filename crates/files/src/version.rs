//! The version of a file: an answer never combines rows of two versions.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// Returns the version of a local file: a text that changes when the file is replaced or written
/// to.
pub fn version(metadata: &Metadata) -> String {
    let inode = metadata.ino();
    let size = metadata.size();
    format!("{inode:x}-{}.{}-{size:x}", metadata.mtime(), metadata.mtime_nsec())
}

/// Whether a file of this version has the size and the time of another version: the same file on
/// another host, where its number in the file system is another one.
pub fn is_copy(version: &str, other: &str) -> bool {
    let content = |version: &str| version.split_once('-').map(|(_, rest)| rest.to_owned());
    content(version).is_some() && content(version) == content(other)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_that_is_written_to_or_replaced_has_another_version() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "one").unwrap();
        let now = || version(&path.metadata().unwrap());
        let first = now();
        assert_eq!(first, now());
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"+").unwrap();
        let second = now();
        assert_ne!(first, second);
        std::fs::write(folder.path().join("b"), "one+").unwrap();
        std::fs::rename(folder.path().join("b"), &path).unwrap();
        assert_ne!(second, now());
    }

    #[test]
    fn a_copy_has_the_size_and_the_time_of_the_file() {
        assert!(is_copy("1a-17.5-ff", "2b-17.5-ff"));
        assert!(!is_copy("1a-17.5-ff", "1a-17.6-ff") && !is_copy("1a-17.5-ff", "1a-17.5-fe"));
        assert!(!is_copy("", ""));
    }
}
