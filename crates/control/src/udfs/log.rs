//! Logs of registered UDFs: for each function a log in the form of those of deployed functions, in
//! which an entry is the output of one query or lease.

use std::path::PathBuf;

use snowmelt_api::UdfLogEntry;
use snowmelt_types::{ErrorReport, QueryId, Tenant};

use crate::state::logs::Logs;

/// The number of lines that are shown by default.
const SHOWN: usize = 200;

/// The logs of all registered UDFs. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct UdfLogs {
    logs: Logs,
}

impl UdfLogs {
    pub fn new(root: PathBuf) -> Self {
        Self { logs: Logs::new(root) }
    }

    /// Keeps an output, unless it is empty. A log that cannot be written fails no query.
    pub fn keep(&self, tenant: &Tenant, name: &str, query: Option<&QueryId>, text: &str) {
        if text.is_empty() {
            return;
        }
        let at_ms = crate::now_ms();
        let query = query.cloned();
        let entry = UdfLogEntry { at_ms, query, text: text.to_owned() };
        if let Err(error) = self.logs.write(&self.folder(tenant, name), &entry) {
            tracing::warn!(%tenant, name, %error, "cannot keep the log of a UDF");
        }
    }

    /// Returns the last lines, in their entries, the oldest first.
    pub fn read(
        &self,
        tenant: &Tenant,
        name: &str,
        tail: Option<u32>,
    ) -> Result<Vec<UdfLogEntry>, ErrorReport> {
        let lines = self.logs.lines(&self.folder(tenant, name))?;
        let mut left = tail.map_or(SHOWN, |tail| tail as usize);
        let mut entries: Vec<UdfLogEntry> = Vec::new();
        let newest_first = lines.iter().rev().filter_map(|line| serde_json::from_str(line).ok());
        for entry in newest_first {
            if left == 0 {
                break;
            }
            let entry = with_last(entry, left);
            left -= entry.text.lines().count().min(left);
            entries.push(entry);
        }
        entries.reverse();
        Ok(entries)
    }

    /// Removes the log of a function.
    pub fn remove(&self, tenant: &Tenant, name: &str) {
        // A function without a log is removed as well.
        let _ = std::fs::remove_dir_all(self.folder(tenant, name));
    }

    /// Returns the folder of a function's log. Names have no full stop, and SQL does not
    /// distinguish their case.
    fn folder(&self, tenant: &Tenant, name: &str) -> PathBuf {
        self.logs.named(&format!("{tenant}.{}", name.to_ascii_lowercase()))
    }
}

/// Returns an entry with at most `most` of its last lines.
fn with_last(entry: UdfLogEntry, most: usize) -> UdfLogEntry {
    let all = entry.text.lines().count();
    if all <= most {
        return entry;
    }
    let text = entry.text.lines().skip(all - most).flat_map(|line| [line, "\n"]).collect();
    UdfLogEntry { text, ..entry }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(logs: &UdfLogs, tenant: &str, tail: Option<u32>) -> Vec<String> {
        let found = logs.read(&tenant.parse().unwrap(), "SCORE", tail).unwrap();
        found.into_iter().map(|entry| entry.text).collect()
    }

    #[test]
    fn the_last_lines_of_a_tenants_function_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let logs = UdfLogs::new(folder.path().join("logs"));
        let ours = "ours".parse().unwrap();
        let theirs = "theirs".parse().unwrap();
        assert!(texts(&logs, "ours", None).is_empty());
        logs.keep(&ours, "score", Some(&QueryId::new()), "a\nb\n");
        logs.keep(&ours, "Score", None, "c\nd\ne");
        logs.keep(&ours, "score", None, "");
        logs.keep(&theirs, "score", None, "x");
        assert_eq!(texts(&logs, "ours", None), ["a\nb\n", "c\nd\ne"]);
        assert_eq!(texts(&logs, "ours", Some(4)), ["b\n", "c\nd\ne"]);
        assert_eq!(texts(&logs, "ours", Some(1)), ["e\n"]);
        assert_eq!(texts(&logs, "theirs", None), ["x"]);
        let many: String = (0..SHOWN + 10).map(|line| format!("{line}\n")).collect();
        logs.keep(&ours, "score", None, &many);
        let shown = texts(&logs, "ours", None);
        assert!(shown.len() == 1 && shown[0].starts_with("10\n") && shown[0].ends_with("209\n"));
        logs.remove(&ours, "score");
        assert!(texts(&logs, "ours", None).is_empty() && texts(&logs, "theirs", None).len() == 1);
    }
}
