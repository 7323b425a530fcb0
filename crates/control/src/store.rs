//! What was acknowledged and must survive a crash: deployed functions and asynchronous calls.
//!
//! One redb file. A server holds it open; embedded runs open it for one transaction each and wait
//! for one another, so that two commands at once both succeed.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use snowmelt_node::PackageAt;
use snowmelt_types::{Code, Digest, ErrorReport, FunctionName, InvocationId};

use crate::api::{FunctionSpec, Invocation};

const FUNCTIONS: TableDefinition<&str, &[u8]> = TableDefinition::new("functions");
const INVOCATIONS: TableDefinition<&str, &[u8]> = TableDefinition::new("invocations");

/// How long a command waits for another one's transaction.
const OTHERS_TAKE_AT_MOST: Duration = Duration::from_secs(5);

/// Ended asynchronous calls that are kept; the oldest go first.
const KEPT_INVOCATIONS: usize = 1000;

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
    pub event: serde_json::Value,
}

/// The file of functions and asynchronous calls.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    // `Some` while a server holds it open. Locked for one transaction.
    held: Option<Database>,
    // Transactions of one process come one after another: redb allows one open handle.
    turn: Mutex<()>,
}

impl Store {
    /// Uses a file, which is made at the first write; `hold` keeps it open for this process alone.
    pub fn open(path: PathBuf, hold: bool) -> Result<Self, ErrorReport> {
        let held = hold.then(|| open_patiently(&path)).transpose()?;
        Ok(Self { path, held, turn: Mutex::new(()) })
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
        self.with(|database| {
            let transaction = database.begin_write()?;
            let was_there = transaction.open_table(FUNCTIONS)?.remove(name.as_str())?.is_some();
            transaction.commit()?;
            Ok(was_there)
        })
    }

    /// Writes an asynchronous call; on return it survives a crash.
    pub fn put_invocation(&self, record: &InvocationRecord) -> Result<(), ErrorReport> {
        self.put(INVOCATIONS, record.invocation.id.as_str(), record)?;
        self.trim_invocations()
    }

    pub fn invocation(&self, id: &InvocationId) -> Result<Option<InvocationRecord>, ErrorReport> {
        self.get(INVOCATIONS, id.as_str())
    }

    /// All asynchronous calls, the oldest first.
    pub fn invocations(&self) -> Result<Vec<InvocationRecord>, ErrorReport> {
        self.all(INVOCATIONS)
    }

    /// Identifiers sort by time, so the first rows are the oldest. Calls that have not ended stay.
    fn trim_invocations(&self) -> Result<(), ErrorReport> {
        use crate::api::InvocationState::Running;
        let records = self.invocations()?;
        let Some(excess) = records.len().checked_sub(KEPT_INVOCATIONS) else { return Ok(()) };
        let ended = records.iter().filter(|record| record.invocation.state != Running);
        let ids: Vec<_> = ended.take(excess).map(|record| &record.invocation.id).collect();
        self.with(|database| {
            let transaction = database.begin_write()?;
            {
                let mut table = transaction.open_table(INVOCATIONS)?;
                for id in &ids {
                    table.remove(id.as_str())?;
                }
            }
            transaction.commit()?;
            Ok(())
        })
    }

    fn put(
        &self,
        table: TableDefinition<&str, &[u8]>,
        key: &str,
        value: &impl Serialize,
    ) -> Result<(), ErrorReport> {
        let value = serde_json::to_vec(value).map_err(|error| self.failed(&error))?;
        self.with(|database| {
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
        let value = self.with(|database| {
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
        let values = self.with(|database| {
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
        work: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, ErrorReport> {
        let _turn = self.turn.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match &self.held {
            Some(database) => work(database),
            None => work(&open_patiently(&self.path)?),
        }
        .map_err(|error| self.failed(&error))
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
        match Database::create(path) {
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
    use snowmelt_wire::Code as UserCode;

    use snowmelt_types::Tenant;

    use super::*;
    use crate::api::{CallMode, FunctionOptions, InvocationState, Runtime};

    fn record(name: &str) -> FunctionRecord {
        let code =
            UserCode::Source { file: "f.py".into(), text: "def handler(e): return e".into() };
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

    #[test]
    fn unended_invocations_are_never_trimmed() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("state.redb"), true).unwrap();
        let call = |state| InvocationRecord {
            invocation: Invocation {
                id: InvocationId::new(),
                function: "a".parse().unwrap(),
                state,
                result: None,
                error: None,
                warnings: Vec::new(),
                accepted_ms: 0,
                wall_us: None,
                cold: false,
                cold_because: None,
            },
            event: serde_json::Value::Null,
        };
        let unended = call(InvocationState::Running);
        store.put_invocation(&unended).unwrap();
        assert!(store.invocation(&unended.invocation.id).unwrap().is_some());
    }
}
