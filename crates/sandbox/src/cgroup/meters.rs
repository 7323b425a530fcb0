//! The kernel's counter files of one group, opened once.
//!
//! A group serves one sandbox after the other and is read at the end of each. Resolving a path
//! through six folders of a control group hierarchy costs several times as much as reading the
//! file.
//!
//! Invariant: every read returns the kernel's current value; only descriptors are cached.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Open files of one group, by name; no two controllers have files of the same name.
#[derive(Debug, Default)]
pub(crate) struct Meters(Vec<(&'static str, File)>);

impl Meters {
    /// The number in a file of `folder` that has only a number.
    pub fn number(&mut self, folder: &Path, name: &'static str) -> Option<u64> {
        self.text(folder, name, |text| text.trim().parse().ok())
    }

    /// The number after `key` in a file of `key number` lines.
    pub fn count(&mut self, folder: &Path, name: &'static str, key: &str) -> Option<u64> {
        self.text(folder, name, |text| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(name, _)| *name == key).and_then(|(_, count)| count.trim().parse().ok())
        })
    }

    /// Writes to a file in `folder`.
    pub fn write(&mut self, folder: &Path, name: &'static str, text: &str) -> io::Result<()> {
        self.file(folder, name)?.write_at(text.as_bytes(), 0).map(drop)
    }

    /// Reads a file and parses its text. A kernel file is short and returned whole by one read.
    fn text<T>(
        &mut self,
        folder: &Path,
        name: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let mut buffer = [0; 1024];
        let length = self.file(folder, name).ok()?.read_at(&mut buffer, 0).ok()?;
        parse(str::from_utf8(&buffer[..length]).ok()?)
    }

    fn file(&mut self, folder: &Path, name: &'static str) -> io::Result<&File> {
        let known = self.0.iter().position(|(known, _)| *known == name);
        let index = match known {
            Some(index) => index,
            None => {
                let path = folder.join(name);
                // Open for reading and writing, where the kernel allows both.
                let both = File::options().read(true).write(true).open(&path);
                self.0.push((name, both.or_else(|_| File::open(&path))?));
                self.0.len() - 1
            }
        };
        Ok(&self.0[index].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn reads_current_values_and_writes() {
        let folder = tempfile::tempdir().unwrap();
        let peak = folder.path().join("peak");
        let events = folder.path().join("events");
        fs::write(&peak, "4096\n").unwrap();
        fs::write(&events, "low 0\nmax 7\n").unwrap();
        let mut meters = Meters::default();
        assert_eq!(meters.number(folder.path(), "peak"), Some(4096));
        assert_eq!(meters.count(folder.path(), "events", "max"), Some(7));
        assert_eq!(meters.count(folder.path(), "events", "oom"), None);
        fs::write(&peak, "8192\n").unwrap();
        assert_eq!(meters.number(folder.path(), "peak"), Some(8192));
        meters.write(folder.path(), "peak", "0000").unwrap();
        assert_eq!(meters.number(folder.path(), "peak"), Some(0));
        assert_eq!(meters.number(folder.path(), "nothing"), None);
        assert_eq!(meters.0.len(), 2);
    }
}
