//! The format of the records: which versions of the program can read them, and whether a store has
//! all of a platform's.
//!
//! A store says which format a program must know to read it. A newer program raises it when it first
//! writes a record that older ones cannot read, and not before: until then, going back is possible.
//! Format 0 is that of the stores that say nothing. Invariant: nothing is read or written in a store
//! whose format this program does not know, or to which records are being copied.

use serde::{Deserialize, Serialize};
use snowmelt_store::redb::Redb;
use snowmelt_store::{Error, Expect, Page, Store};
use snowmelt_types::{Code, ErrorReport, Report};

use super::{parse, written};

/// The prefix of the keys about the store itself.
const PREFIX: &str = "store/";
/// The key of the format.
const FORMAT_KEY: &str = "store/format";
/// The key of a copy of records that is not complete.
pub(crate) const COPYING_KEY: &str = "store/copying";
/// The newest format that this program knows, which is the one that it writes.
pub(crate) const FORMAT: u32 = 1;

/// The format of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FormatRecord {
    /// The format that a program must know.
    needs: u32,
    /// The version of the program that wrote this.
    by: String,
}

/// A copy of records that is not complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CopyMark {
    /// The store that is copied.
    pub from: String,
}

/// Refuses a store that this program must not use.
pub(crate) async fn check(store: &dyn Store) -> Result<(), ErrorReport> {
    let listed = store.list(PREFIX, Page::default()).await.map_err(|error| error.report())?;
    for entry in &listed.entries {
        match entry.key.as_str() {
            FORMAT_KEY => known(&parse(entry)?)?,
            COPYING_KEY => return Err(incomplete(&parse(entry)?)),
            // A newer program has written it, and has not raised the format for it.
            _ => {}
        }
    }
    Ok(())
}

/// Refuses a file that this program must not use. One that a server holds is not read.
pub(super) async fn check_visited(file: &Redb) -> Result<(), ErrorReport> {
    match file.list(PREFIX, Page::first(1)).await {
        Ok(listed) if listed.entries.is_empty() => Ok(()),
        // What is wrong with a file is an error of its use.
        Err(Error::Busy { .. } | Error::Corrupt { .. } | Error::Io { .. }) => Ok(()),
        _ => check(file).await,
    }
}

/// Writes the format of this program to a store that says nothing. One of an older format stays as
/// it is: all that this program writes can be read by programs that know format 1.
pub(super) async fn note(store: &dyn Store) -> Result<(), ErrorReport> {
    if store.get(FORMAT_KEY).await.map_err(|error| error.report())?.is_some() {
        return Ok(());
    }
    let record = FormatRecord { needs: FORMAT, by: snowmelt_rpc::version().to_owned() };
    match store.put(FORMAT_KEY, written(&record)?.into(), Expect::Absent).await {
        Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
        Err(error) => Err(error.report()),
    }
}

fn known(FormatRecord { needs, by }: &FormatRecord) -> Result<(), ErrorReport> {
    if *needs <= FORMAT {
        return Ok(());
    }
    let message = format!(
        "the records have format {needs}, written by version {by}; this version, {}, reads formats \
         up to {FORMAT}",
        snowmelt_rpc::version()
    );
    Err(ErrorReport::new(Code::STORE_FORMAT, message).hint(
        "start the newer version, or restore a copy from before: `snowmelt backup --restore`",
    ))
}

fn incomplete(CopyMark { from }: &CopyMark) -> ErrorReport {
    let message = format!("the records are an incomplete copy of {from}");
    ErrorReport::new(Code::STORE_COPY, message)
        .hint("run the same `snowmelt store copy` again, which goes on with it")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use snowmelt_store::Clock;
    use snowmelt_store::memory::Memory;

    use super::super::Records;
    use super::*;

    fn store() -> Arc<Memory> {
        Arc::new(Memory::new(Clock::real()))
    }

    async fn with_format(needs: u32) -> Arc<Memory> {
        let store = store();
        let record = FormatRecord { needs, by: "9.9.9".to_owned() };
        store.put(FORMAT_KEY, written(&record).unwrap().into(), Expect::Any).await.unwrap();
        store
    }

    #[tokio::test]
    async fn records_of_a_newer_version_are_refused_and_stay_as_they_are() {
        let newer = with_format(FORMAT + 1).await;
        let before = newer.list("", Page::default()).await.unwrap();
        let refused = Records::over(newer.clone()).await.unwrap_err();
        assert_eq!(refused.code, "SM-0540");
        assert!(refused.message.contains("9.9.9"), "{refused}");
        assert_eq!(newer.list("", Page::default()).await.unwrap(), before);
    }

    #[tokio::test]
    async fn a_store_keeps_the_format_that_it_has_and_other_notes_of_newer_versions() {
        let store = with_format(FORMAT).await;
        store.put("store/later", "7".into(), Expect::Any).await.unwrap();
        let before = store.list("", Page::default()).await.unwrap();
        Records::over(store.clone()).await.unwrap().note_format().await.unwrap();
        assert_eq!(store.list("", Page::default()).await.unwrap(), before);
    }

    #[tokio::test]
    async fn a_store_that_says_nothing_gets_the_format_of_this_program() {
        let store = store();
        Records::over(store.clone()).await.unwrap().note_format().await.unwrap();
        let entry = store.get(FORMAT_KEY).await.unwrap().unwrap();
        assert_eq!(parse::<FormatRecord>(&entry).unwrap().needs, FORMAT);
    }

    #[tokio::test]
    async fn a_part_of_a_platforms_records_is_not_served() {
        let store = store();
        let mark = CopyMark { from: "/var/lib/snowmelt/state.redb".to_owned() };
        store.put(COPYING_KEY, written(&mark).unwrap().into(), Expect::Any).await.unwrap();
        let refused = Records::over(store).await.unwrap_err();
        assert_eq!(refused.code, "SM-0541");
        assert!(refused.message.contains(&mark.from), "{refused}");
    }

    #[tokio::test]
    async fn an_embedded_run_refuses_a_file_of_a_newer_version_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.redb");
        let file = Redb::hold(path.clone(), None, Clock::real()).unwrap();
        let record = FormatRecord { needs: FORMAT + 1, by: "9.9.9".to_owned() };
        file.put(FORMAT_KEY, written(&record).unwrap().into(), Expect::Any).await.unwrap();
        drop(file);
        assert_eq!(Records::open(path, false).await.unwrap_err().code, "SM-0540");
    }
}
