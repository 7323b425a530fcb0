//! `state.redb` as versions before this one wrote it: a table for functions, one for the records of
//! asynchronous calls, and one for their index entries.

use std::sync::Arc;

use serde::Deserialize;
use snowmelt_api::InvocationState;
use snowmelt_store::redb::{Convert, Older};
use snowmelt_types::FunctionName;

use super::{calls, functions, index};

const FUNCTIONS: &str = "functions";
const RECORDS: &str = "invocations";
const ENTRIES: &str = "invocation-entries";

/// How that layout is converted.
pub(super) fn layout() -> Arc<dyn Convert> {
    Arc::new(Tables)
}

#[derive(Debug)]
struct Tables;

impl Convert for Tables {
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
            FUNCTIONS => vec![(functions::key(key), value.to_owned())],
            RECORDS => {
                let record = (calls::record_key(key), value.to_owned());
                let entry = older.row(ENTRIES, key).or_else(|| entry(value));
                let entry = entry.map(|entry| (calls::entry_key(key), entry));
                [Some(record), entry].into_iter().flatten().collect()
            }
            // They go with their records.
            _ => Vec::new(),
        }
    }
}

/// The part that is needed of a record of an even older version, which has no entry.
#[derive(Deserialize)]
struct Head {
    invocation: HeadOfCall,
}

#[derive(Deserialize)]
struct HeadOfCall {
    function: FunctionName,
    state: InvocationState,
}

fn entry(record: &[u8]) -> Option<Vec<u8>> {
    let Head { invocation } = serde_json::from_slice(record).ok()?;
    let ended = invocation.state != InvocationState::Running;
    let until_ms = ended.then(|| crate::now_ms() + snowmelt_api::RESULT_KEPT_MS);
    let entry = index::Entry::waiting(&invocation.function, record.len());
    Some(calls::encoded(&index::Entry { until_ms, ..entry }))
}
