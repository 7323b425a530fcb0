//! What was acknowledged and must survive a crash: deployed functions and asynchronous calls.
//!
//! One redb file, for the user of the server only. A server holds it open; embedded runs open it for
//! one transaction each and wait for one another, so that two commands at once both succeed.

mod calls;
mod index;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use snowmelt_api::{FunctionSpec, Invocation};
use snowmelt_node::PackageAt;
use snowmelt_types::{Code, Digest, ErrorReport, FunctionName};

use crate::place;
use index::Index;

const FUNCTIONS: TableDefinition<&str, &[u8]> = TableDefinition::new("functions");

/// How long a command waits for another one's transaction.
const OTHERS_TAKE_AT_MOST: Duration = Duration::from_secs(5);

/// What redb keeps of the file in memory.
const CACHE_BYTES: usize = 32 << 20;

/// A deployed function.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FunctionRecord {
    /// Without the files of a program, which the node keeps by their digest.
    pub spec: FunctionSpec,
    pub deployed_ms: u64,
    #[serde(default)]
    pub files: Option<Digest>,
    /// What the name of its code package led to.
    #[serde(default)]
    pub packed: Option<PackageAt>,
}

/// An asynchronous call, with what is needed to run it again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct InvocationRecord {
    pub invocation: Invocation,
    pub event: Box<RawValue>,
}

/// The file of functions and asynchronous calls.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    // `Some` while a server holds it open. Locked for one transaction.
    held: Option<Database>,
    // Transactions of one process come one after another: redb allows one open handle. What is known
    // of asynchronous calls is complete where the file is held: nobody else has any.
    turn: Mutex<Index>,
}

impl Store {
    /// Uses a file, which is made at the first write; `hold` keeps it open for this process alone.
    pub fn open(path: PathBuf, hold: bool) -> Result<Self, ErrorReport> {
        let held = hold.then(|| open_patiently(&path)).transpose()?;
        let index = held.as_ref().map(calls::load).transpose();
        let index = index.map_err(|error| failed(&path, &error))?.unwrap_or_default();
        Ok(Self { path, held, turn: Mutex::new(index) })
    }

    pub fn put_function(&self, record: &FunctionRecord) -> Result<(), ErrorReport> {
        self.put(FUNCTIONS, record.spec.name.as_str(), record)
    }

    pub fn function(&self, name: &FunctionName) -> Result<Option<FunctionRecord>, ErrorReport> {
        self.get(FUNCTIONS, name.as_str())
    }

    /// All functions, by name.
    pub fn functions(&self) -> Result<Vec<FunctionRecord>, ErrorReport> {
        self.all(FUNCTIONS)
    }

    /// Removes a function; false if there was none.
    pub fn remove_function(&self, name: &FunctionName) -> Result<bool, ErrorReport> {
        self.with(|database, _| {
            let transaction = database.begin_write()?;
            let was_there = transaction.open_table(FUNCTIONS)?.remove(name.as_str())?.is_some();
            transaction.commit()?;
            Ok(was_there)
        })
    }

    fn put(
        &self,
        table: TableDefinition<&str, &[u8]>,
        key: &str,
        value: &impl Serialize,
    ) -> Result<(), ErrorReport> {
        let value = self.written(value)?;
        self.with(|database, _| {
            let transaction = database.begin_write()?;
            transaction.open_table(table)?.insert(key, value.as_slice())?;
            transaction.commit()?;
            Ok(())
        })
    }

    fn get<T: DeserializeOwned>(
        &self,
        table: TableDefinition<&str, &[u8]>,
        key: &str,
    ) -> Result<Option<T>, ErrorReport> {
        if !self.exists() {
            return Ok(None);
        }
        let value = self.with(|database, _| {
            let transaction = database.begin_read()?;
            let table = match transaction.open_table(table) {
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
                table => table?,
            };
            Ok(table.get(key)?.map(|value| value.value().to_vec()))
        })?;
        value.map(|value| self.parse(&value)).transpose()
    }

    fn all<T: DeserializeOwned>(
        &self,
        table: TableDefinition<&str, &[u8]>,
    ) -> Result<Vec<T>, ErrorReport> {
        if !self.exists() {
            return Ok(Vec::new());
        }
        let values = self.with(|database, _| {
            let transaction = database.begin_read()?;
            let table = match transaction.open_table(table) {
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                table => table?,
            };
            let rows = table.iter()?.map(|row| row.map(|(_, value)| value.value().to_vec()));
            Ok(rows.collect::<Result<Vec<_>, _>>()?)
        })?;
        values.iter().map(|value| self.parse(value)).collect()
    }

    fn exists(&self) -> bool {
        self.held.is_some() || self.path.exists()
    }

    fn with<T>(
        &self,
        work: impl FnOnce(&Database, &mut Index) -> Result<T, redb::Error>,
    ) -> Result<T, ErrorReport> {
        let mut turn = self.turn.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match &self.held {
            Some(database) => work(database, &mut turn),
            None => work(&open_patiently(&self.path)?, &mut turn),
        }
        .map_err(|error| self.failed(&error))
    }

    fn written(&self, value: &impl Serialize) -> Result<Vec<u8>, ErrorReport> {
        serde_json::to_vec(value).map_err(|error| self.failed(&error))
    }

    fn parse<T: DeserializeOwned>(&self, value: &[u8]) -> Result<T, ErrorReport> {
        serde_json::from_slice(value).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> ErrorReport {
        failed(&self.path, error)
    }
}

fn open_patiently(path: &Path) -> Result<Database, ErrorReport> {
    let begun = Instant::now();
    loop {
        // It holds the environments of functions and the events of calls.
        place::private_file(path).map_err(|error| failed(path, &error))?;
        match Database::builder().set_cache_size(CACHE_BYTES).create(path) {
            Ok(database) => return Ok(database),
            Err(DatabaseError::DatabaseAlreadyOpen) if begun.elapsed() < OTHERS_TAKE_AT_MOST => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(DatabaseError::DatabaseAlreadyOpen) => {
                let message = format!("{} is held by another process", path.display());
                return Err(ErrorReport::new(Code::STATE, message).hint(
                    "a server is running: leave --embedded away, or stop it with `snowmelt down`",
                ));
            }
            Err(error) => return Err(failed(path, &error)),
        }
    }
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> ErrorReport {
    let text = error.to_string();
    let code = if text.contains("No space left") { Code::DISK_FULL } else { Code::STATE };
    ErrorReport::new(code, format!("cannot use {}: {text}", path.display()))
        .hint("`snowmelt doctor` says what is wrong with the state folder")
}

#[cfg(test)]
mod tests {
    use snowmelt_types::{InvocationId, Tenant};
    use snowmelt_wire::SourceCode;

    use super::*;
    use snowmelt_api::{CallMode, FunctionOptions, InvocationState, Runtime};

    fn record(name: &str) -> FunctionRecord {
        let code =
            SourceCode::Source { file: "f.py".into(), text: "def handler(e): return e".into() };
        FunctionRecord {
            spec: FunctionSpec {
                name: name.parse().unwrap(),
                code,
                handler: "handler".into(),
                runtime: Runtime::Python,
                command: vec![],
                root: None,
                image: None,
                packed: None,
                mode: CallMode::Event,
                packages: vec![],
                options: FunctionOptions::default(),
                tenant: Tenant::default(),
                expected: 1,
                ephemeral: false,
            },
            deployed_ms: 1,
            files: None,
            packed: None,
        }
    }

    #[test]
    fn functions_survive_closing_and_replace_their_older_selves() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.redb");
        let store = Store::open(path.clone(), false).unwrap();
        assert!(store.functions().unwrap().is_empty());
        assert!(!path.exists(), "looking makes no file");
        store.put_function(&record("a")).unwrap();
        store.put_function(&FunctionRecord { deployed_ms: 2, ..record("a") }).unwrap();
        let again = Store::open(path, true).unwrap();
        assert_eq!(again.functions().unwrap().len(), 1);
        let name = "a".parse().unwrap();
        assert_eq!(again.function(&name).unwrap().unwrap().deployed_ms, 2);
        assert!(again.remove_function(&name).unwrap());
        assert!(!again.remove_function(&name).unwrap());
    }

    #[test]
    fn two_embedded_runs_wait_for_one_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.redb");
        std::thread::scope(|scope| {
            for name in ["a", "b", "c", "d"] {
                let path = path.clone();
                scope.spawn(move || {
                    Store::open(path, false).unwrap().put_function(&record(name)).unwrap()
                });
            }
        });
        assert_eq!(Store::open(path, false).unwrap().functions().unwrap().len(), 4);
    }

    fn call(function: &str, answer: &str) -> InvocationRecord {
        let json = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        InvocationRecord {
            invocation: Invocation {
                id: InvocationId::new(),
                function: function.parse().unwrap(),
                state: InvocationState::Running,
                result: Some(json(answer).into()),
                error: None,
                warnings: Vec::new(),
                accepted_ms: 0,
                wall_us: None,
                cold: false,
                cold_because: None,
            },
            event: json("{\"n\": 1.50}"),
        }
    }

    fn ended(mut record: InvocationRecord) -> InvocationRecord {
        record.invocation.state = InvocationState::Succeeded;
        record
    }

    #[test]
    fn calls_that_wait_are_found_again_and_ended_ones_are_not_run_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.redb");
        let store = Store::open(path.clone(), true).unwrap();
        let (first, second) = (call("a", "null"), call("a", "null"));
        store.accept(&first).unwrap();
        store.accept(&second).unwrap();
        store.end(&ended(first.clone()), u64::MAX).unwrap();
        drop(store);
        let again = Store::open(path, true).unwrap();
        let name = "a".parse().unwrap();
        assert_eq!(again.waiting().unwrap(), [(second.invocation.id, name)]);
        let read = again.invocation(&first.invocation.id).unwrap().unwrap();
        assert_eq!(read.invocation.state, InvocationState::Succeeded);
        assert_eq!(read.event.get(), "{\"n\": 1.50}", "as it was written");
    }

    #[test]
    fn answers_that_are_too_old_are_gone() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("state.redb"), true).unwrap();
        let (old, new) = (call("a", "1"), call("a", "2"));
        for (record, until_ms) in [(&old, 1), (&new, u64::MAX)] {
            store.accept(record).unwrap();
            store.end(&ended(record.clone()), until_ms).unwrap();
        }
        assert!(store.invocation(&old.invocation.id).unwrap().is_none());
        assert!(store.invocation(&new.invocation.id).unwrap().is_some());
    }

    /// A version before this one wrote records alone.
    #[test]
    fn calls_of_an_older_version_are_run_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.redb");
        let (waits, over) = (call("a", "null"), ended(call("a", "1")));
        let store = Store::open(path.clone(), true).unwrap();
        for record in [&waits, &over] {
            store.put(calls::RECORDS, record.invocation.id.as_str(), record).unwrap();
        }
        drop(store);
        let again = Store::open(path, true).unwrap();
        let name = "a".parse().unwrap();
        assert_eq!(again.waiting().unwrap(), [(waits.invocation.id, name)]);
        assert!(again.invocation(&over.invocation.id).unwrap().is_some());
    }

    /// What a write costs must not depend on what others have stored: before there was an index,
    /// each one read every record.
    #[test]
    fn a_write_reads_no_other_record() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("state.redb"), true).unwrap();
        let long = format!("\"{}\"", "x".repeat(8 << 20));
        for _ in 0..12 {
            let record = call("a", &long);
            store.accept(&record).unwrap();
            store.end(&ended(record), u64::MAX).unwrap();
        }
        let before = read_bytes();
        for _ in 0..10 {
            let record = call("b", "1");
            store.accept(&record).unwrap();
            store.end(&ended(record), u64::MAX).unwrap();
        }
        let read = read_bytes() - before;
        assert!(read < 96 << 20, "20 short writes read {read} bytes");
    }

    /// What this process has read by system calls.
    fn read_bytes() -> u64 {
        let text = std::fs::read_to_string("/proc/self/io").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
        line.unwrap().parse().unwrap()
    }

    #[test]
    fn the_file_is_for_its_owner_only() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.redb");
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        let _store = Store::open(path.clone(), true).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }
}
