//! What invocations wrote, a file each, the newest of every function kept.

use std::path::{Path, PathBuf};

use snowmelt_types::{Code, ErrorReport, FunctionName, InvocationId};

use crate::api::LogEntry;

/// Invocations of one function whose output is kept.
const KEPT: usize = 200;

/// A folder of logs: a folder for each function, a file for each invocation.
#[derive(Clone, Debug)]
pub(crate) struct Logs {
    root: PathBuf,
}

impl Logs {
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Keeps what an invocation wrote, if it wrote anything. A log that cannot be written does not
    /// fail the call that it belongs to.
    pub fn keep(&self, function: &FunctionName, entry: &LogEntry) {
        if entry.text.is_empty() {
            return;
        }
        if let Err(error) = self.write(function, entry) {
            tracing::warn!(%function, %error, "cannot keep the log of an invocation");
        }
    }

    /// The entries of a function, the oldest first.
    pub fn read(
        &self,
        function: &FunctionName,
        invocation: Option<&InvocationId>,
        tail: Option<u32>,
    ) -> Result<Vec<LogEntry>, ErrorReport> {
        let folder = self.folder(function);
        let mut names = names(&folder);
        names.retain(|name| invocation.is_none_or(|id| name == &file_name(id)));
        let tail = tail.map_or(names.len(), |tail| tail as usize);
        let from = names.len().saturating_sub(tail);
        let read = |name: &String| {
            let path = folder.join(name);
            let text = std::fs::read(&path).map_err(|error| unreadable(&path, &error))?;
            serde_json::from_slice(&text).map_err(|error| unreadable(&path, &error))
        };
        names[from..].iter().map(read).collect()
    }

    /// Removes the logs of a function.
    pub fn remove(&self, function: &FunctionName) {
        let _ = std::fs::remove_dir_all(self.folder(function));
    }

    fn write(&self, function: &FunctionName, entry: &LogEntry) -> std::io::Result<()> {
        let folder = self.folder(function);
        std::fs::create_dir_all(&folder)?;
        let mut file = tempfile::NamedTempFile::new_in(&folder)?;
        serde_json::to_writer(&mut file, entry)?;
        file.persist(folder.join(file_name(&entry.invocation)))?;
        let names = names(&folder);
        for name in &names[..names.len().saturating_sub(KEPT)] {
            std::fs::remove_file(folder.join(name))?;
        }
        Ok(())
    }

    fn folder(&self, function: &FunctionName) -> PathBuf {
        self.root.join(function.as_str())
    }
}

fn file_name(invocation: &InvocationId) -> String {
    format!("{invocation}.json")
}

/// Names of log files; identifiers sort by time, so the oldest comes first.
fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| name.starts_with("i-") && name.ends_with(".json"));
    names.sort();
    names
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> ErrorReport {
    ErrorReport::new(Code::STATE, format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_newest_and_finds_one() {
        let folder = tempfile::tempdir().unwrap();
        let logs = Logs::new(folder.path().to_owned());
        let name: FunctionName = "f".parse().unwrap();
        let mut last = InvocationId::new();
        for count in 0..KEPT + 5 {
            last = InvocationId::new();
            let text = format!("line {count}\n");
            logs.keep(
                &name,
                &LogEntry {
                    invocation: last.clone(),
                    accepted_ms: 0,
                    cold_because: None,
                    text,
                    dropped_bytes: 0,
                },
            );
        }
        assert_eq!(logs.read(&name, None, None).unwrap().len(), KEPT);
        let found = logs.read(&name, Some(&last), None).unwrap();
        assert_eq!(found[0].text, format!("line {}\n", KEPT + 4));
        assert_eq!(logs.read(&name, None, Some(2)).unwrap().len(), 2);
    }
}
