//! State on disk: what was acknowledged, copies of it, and what may be lost.
//!
//! | part | file |
//! |---|---|
//! | records of functions, UDFs, calls and bursts, over the store | `records` |
//! | copies of the file of the records, and their restore | `backups`, `offline_backup` |
//! | the output of invocations | `logs` |
//! | results of the analysis of code | `analysis_cache` |
//! | keys of clients on other hosts | `keys` |
//! | quotas of tenants | `quotas` |
//! | what tenants have on the disk | `disk` |
//!
//! Boundary: the files here belong to a platform; packages, code and images belong to the node.
//! Invariant: of what is here, only the records are acknowledged state; a log or a cached result
//! can be lost. Events and large answers of asynchronous bursts are acknowledged too, as files of
//! `bursts/storage`.

pub(crate) mod analysis_cache;
pub mod backups;
pub(crate) mod disk;
pub(crate) mod keys;
pub(crate) mod logs;
pub mod offline_backup;
pub(crate) mod quotas;
pub(crate) mod records;
