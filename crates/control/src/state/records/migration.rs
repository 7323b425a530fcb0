//! Conversion of `state.redb` of earlier versions: a table for functions, one for the records of
//! asynchronous calls, and one for their index entries; all tenants shared the names of functions.

use std::sync::Arc;

use serde::Deserialize;
use snowmelt_api::InvocationState;
use snowmelt_store::redb::{Convert, Older};
use snowmelt_types::{FunctionName, Tenant};

use super::{FunctionId, calls, functions, index};

const FUNCTIONS: &str = "functions";
const RECORDS: &str = "invocations";
const ENTRIES: &str = "invocation-entries";

/// Returns the conversion of the older layout.
pub(super) fn layout() -> Arc<dyn Convert> {
    Arc::new(RecordTables)
}

#[derive(Debug)]
struct RecordTables;

impl Convert for RecordTables {
    fn tables(&self) -> &'static [&'static str] {
        &[FUNCTIONS, RECORDS, ENTRIES]
    }

    fn entries(
        &self,
        table: &str,
        key: &str,
        value: &[u8],
        older: &Older<'_>,
    ) -> Vec<(String, Vec<u8>)> {
        match table {
            FUNCTIONS => vec![function(key, value)],
            RECORDS => call(key, value, older),
            // Converted with their records.
            _ => Vec::new(),
        }
    }
}

/// The fields of a function's record that are needed.
#[derive(Default, Deserialize)]
struct OfFunction {
    spec: Spec,
}

#[derive(Default, Deserialize)]
struct Spec {
    #[serde(default)]
    tenant: Tenant,
}

/// An index entry.
#[derive(Deserialize)]
struct OlderEntry {
    function: FunctionName,
    until_ms: Option<u64>,
}

/// The fields of a call's record that are needed if there is no index entry: the first versions
/// wrote none.
#[derive(Deserialize)]
struct OfCall {
    invocation: Head,
}

#[derive(Deserialize)]
struct Head {
    function: FunctionName,
    state: InvocationState,
}

fn function(name: &str, record: &[u8]) -> (String, Vec<u8>) {
    let tenant = tenant(record);
    // The text of the record is not changed, except for one more field.
    let field = format!("{{\"tenant\":\"{tenant}\",");
    let rest = record.strip_prefix(b"{").unwrap_or(record);
    (functions::key(&tenant, name), [field.as_bytes(), rest].concat())
}

/// Returns the tenant of a function, from its specification.
fn tenant(record: &[u8]) -> Tenant {
    let record: OfFunction = serde_json::from_slice(record).unwrap_or_default();
    record.spec.tenant
}

fn call(id: &str, record: &[u8], older: &Older<'_>) -> Vec<(String, Vec<u8>)> {
    let kept = (calls::record_key(id), record.to_owned());
    let entry = older.row(ENTRIES, id);
    let entry = entry.and_then(|entry| serde_json::from_slice(&entry).ok());
    let Some(OlderEntry { function: name, until_ms }) = entry.or_else(|| entry_of(record)) else {
        return vec![kept];
    };
    // A call belongs to the tenant of its function, or to the default one if the function was
    // removed.
    let deployed = older.row(FUNCTIONS, name.as_str());
    let tenant = deployed.map(|record| tenant(&record)).unwrap_or_default();
    let entry = index::CallEntry::waiting(FunctionId { tenant, name }, record.len());
    let entry = calls::encoded(&index::CallEntry { until_ms, ..entry });
    vec![kept, (calls::entry_key(id), entry)]
}

fn entry_of(record: &[u8]) -> Option<OlderEntry> {
    let Head { function, state } = serde_json::from_slice::<OfCall>(record).ok()?.invocation;
    let ended = state != InvocationState::Running;
    let until_ms = ended.then(|| crate::now_ms() + snowmelt_api::RESULT_KEPT_MS);
    Some(OlderEntry { function, until_ms })
}
