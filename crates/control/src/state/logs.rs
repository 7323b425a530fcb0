//! The output of invocations: for each function a file to which entries are appended, and the
//! previous one.
//!
//! Invariant: keeping an entry is one write, however much is kept, without locks between writers:
//! each entry is a line of its own, and a line that was torn by a crash or a full disk damages no
//! other.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use snowmelt_api::LogEntry;
use snowmelt_types::{Code, ErrorReport, InvocationId, Tenant};

use super::records::FunctionId;

/// The number of invocations that are shown by default.
const SHOWN: usize = 200;

/// The most bytes of the current file. A longer one becomes the previous file, and the previous one
/// is removed.
const MAX_BYTES: u64 = 8 << 20;

/// The file to which entries are appended, and the previous one.
const CURRENT: &str = "log.jsonl";
const BEFORE: &str = "log.1.jsonl";

/// A folder of logs: a folder for each function.
#[derive(Clone, Debug)]
pub(crate) struct Logs {
    root: PathBuf,
    most_bytes: u64,
    // Two threads that both find a file too long must not both rename it.
    turning: Arc<Mutex<()>>,
}

impl Logs {
    pub fn new(root: PathBuf) -> Self {
        Self { root, most_bytes: MAX_BYTES, turning: Arc::default() }
    }

    /// Keeps the output of an invocation, if it wrote anything. A log that cannot be written does
    /// not fail the call that it belongs to.
    pub fn keep(&self, function: &FunctionId, entry: &LogEntry) {
        if entry.text.is_empty() {
            return;
        }
        if let Err(error) = self.append(function, entry) {
            tracing::warn!(%function, %error, "cannot keep the log of an invocation");
        }
    }

    /// Returns the entries of a function, the oldest first: of one invocation, or the last ones.
    pub fn read(
        &self,
        function: &FunctionId,
        invocation: Option<&InvocationId>,
        tail: Option<u32>,
    ) -> Result<Vec<LogEntry>, ErrorReport> {
        let lines = self.lines(&self.folder(function))?;
        let entries = lines.iter().rev().filter_map(|line| serde_json::from_str(line).ok());
        let entries = entries
            .filter(|entry: &LogEntry| invocation.is_none_or(|id| &entry.invocation == id))
            .take(tail.map_or(SHOWN, |tail| tail as usize));
        let mut entries: Vec<_> = entries.collect();
        entries.reverse();
        Ok(entries)
    }

    /// Removes the logs of a function.
    pub fn remove(&self, function: &FunctionId) {
        let _ = std::fs::remove_dir_all(self.folder(function));
    }

    fn append(&self, function: &FunctionId, entry: &LogEntry) -> io::Result<()> {
        self.write(&self.folder(function), entry)
    }

    /// Returns the folder of a log with a name of its own.
    pub fn named(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Returns the lines of a log, the oldest first.
    pub fn lines(&self, folder: &Path) -> Result<Vec<String>, ErrorReport> {
        let mut lines = Vec::new();
        for name in [BEFORE, CURRENT] {
            lines.extend(read_lines(&folder.join(name))?);
        }
        Ok(lines)
    }

    /// Adds an entry to a log.
    pub fn write(&self, folder: &Path, entry: &impl Serialize) -> io::Result<()> {
        let mut file = opened(folder)?;
        // What is before this line may have been torn.
        let mut line = b"\n".to_vec();
        serde_json::to_writer(&mut line, entry)?;
        line.push(b'\n');
        file.write_all(&line)?;
        if file.metadata()?.len() > self.most_bytes {
            self.turn(folder)?;
        }
        Ok(())
    }

    /// Makes the current file the previous one.
    fn turn(&self, folder: &Path) -> io::Result<()> {
        let _one = self.turning.lock().unwrap_or_else(PoisonError::into_inner);
        let current = folder.join(CURRENT);
        match std::fs::metadata(&current) {
            Ok(found) if found.len() > self.most_bytes => {
                std::fs::rename(&current, folder.join(BEFORE))
            }
            // Another thread was first.
            _ => Ok(()),
        }
    }

    /// Moves logs of earlier versions to the tenant of their function: then a folder had the name
    /// of the function only.
    pub fn migrate<'a>(&self, functions: impl Iterator<Item = &'a FunctionId> + Clone) {
        let tenant = Tenant::default();
        for function in functions.clone().filter(|function| function.tenant != tenant) {
            let same = FunctionId { tenant: tenant.clone(), name: function.name.clone() };
            let from = self.folder(&same);
            let to = self.folder(function);
            let is_shared = functions.clone().any(|other| *other == same);
            if !is_shared && from.exists() && !to.exists() {
                // A function can be called without its log.
                let _ = std::fs::rename(from, to);
            }
        }
    }

    /// Returns the folder of a function's logs. Names contain no full stop, so no folder belongs to
    /// two functions.
    fn folder(&self, FunctionId { tenant, name }: &FunctionId) -> PathBuf {
        match *tenant == Tenant::default() {
            true => self.root.join(name.as_str()),
            false => self.root.join(format!("{tenant}.{name}")),
        }
    }
}

fn opened(folder: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    match options.open(folder.join(CURRENT)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            options.open(folder.join(CURRENT))
        }
        opened => opened,
    }
}

fn read_lines(path: &Path) -> Result<Vec<String>, ErrorReport> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => {
            let message = format!("cannot read {}: {error}", path.display());
            Err(ErrorReport::new(Code::STATE, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> FunctionId {
        of("default")
    }

    fn of(tenant: &str) -> FunctionId {
        FunctionId { tenant: tenant.parse().unwrap(), name: "f".parse().unwrap() }
    }

    fn entry(text: &str) -> LogEntry {
        LogEntry {
            invocation: InvocationId::new(),
            accepted_ms: 0,
            cold_because: None,
            text: text.to_owned(),
            dropped_bytes: 0,
        }
    }

    fn logs() -> (tempfile::TempDir, Logs) {
        let folder = tempfile::tempdir().unwrap();
        let logs = Logs::new(folder.path().join("logs"));
        (folder, logs)
    }

    #[test]
    fn keeps_the_newest_and_finds_one() {
        let (_folder, logs) = logs();
        assert!(logs.read(&name(), None, None).unwrap().is_empty());
        let entries: Vec<_> = (0..SHOWN + 5).map(|n| entry(&format!("line {n}\n"))).collect();
        entries.iter().for_each(|entry| logs.keep(&name(), entry));
        assert_eq!(logs.read(&name(), None, None).unwrap().len(), SHOWN);
        let found = logs.read(&name(), Some(&entries[1].invocation), None).unwrap();
        assert_eq!(found[0].text, "line 1\n");
        let last = logs.read(&name(), None, Some(2)).unwrap();
        assert_eq!(last[1].text, format!("line {}\n", SHOWN + 4));
        logs.remove(&name());
        assert!(logs.read(&name(), None, None).unwrap().is_empty());
    }

    #[test]
    fn a_function_that_writes_much_has_a_bounded_log_with_its_newest_entries() {
        let (folder, mut logs) = logs();
        logs.most_bytes = 10_000;
        for n in 0..1000 {
            logs.keep(&name(), &entry(&format!("{n} {}", "x".repeat(100))));
        }
        let size = |file| std::fs::metadata(folder.path().join("logs/f").join(file)).unwrap().len();
        assert!(size(BEFORE) < 11_000);
        let kept = logs.read(&name(), None, None).unwrap();
        assert!(kept.len() >= 30, "{}", kept.len());
        assert!(kept.last().unwrap().text.starts_with("999 "));
    }

    /// Writes from several threads, like concurrent calls: no writer may block another.
    #[test]
    fn many_write_at_once_and_nothing_is_lost() {
        let (_folder, logs) = logs();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let logs = logs.clone();
                scope.spawn(move || {
                    for n in 0..25 {
                        logs.append(&name(), &entry(&format!("{thread}-{n}"))).unwrap();
                    }
                });
            }
        });
        let mut texts: Vec<_> =
            logs.read(&name(), None, None).unwrap().into_iter().map(|one| one.text).collect();
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), 200);
    }

    #[test]
    fn each_tenant_has_its_own_logs() {
        let (_folder, logs) = logs();
        logs.keep(&name(), &entry("ours"));
        logs.keep(&of("acme"), &entry("theirs"));
        assert_eq!(logs.read(&of("acme"), None, None).unwrap()[0].text, "theirs");
        logs.remove(&of("acme"));
        assert_eq!(logs.read(&name(), None, None).unwrap()[0].text, "ours");
    }

    #[test]
    fn logs_of_an_earlier_version_are_moved_to_the_tenant_of_their_function() {
        let (_folder, logs) = logs();
        logs.keep(&name(), &entry("theirs"));
        logs.migrate([of("acme"), name()].iter());
        assert!(
            logs.read(&of("acme"), None, None).unwrap().is_empty(),
            "the folder belongs to the default tenant"
        );
        logs.migrate([of("acme")].iter());
        assert_eq!(logs.read(&of("acme"), None, None).unwrap()[0].text, "theirs");
        assert!(logs.read(&name(), None, None).unwrap().is_empty());
    }

    #[test]
    fn a_torn_line_spoils_no_other() {
        let (folder, logs) = logs();
        logs.keep(&name(), &entry("first"));
        let path = folder.path().join("logs/f").join(CURRENT);
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(b"{\"invocation\":\"i-1\",\"te").unwrap();
        logs.keep(&name(), &entry("second"));
        let texts: Vec<_> =
            logs.read(&name(), None, None).unwrap().into_iter().map(|one| one.text).collect();
        assert_eq!(texts, ["first", "second"]);
    }
}
