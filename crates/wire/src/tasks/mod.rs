//! Messages between the platform and workers that run tasks of queries.
//!
//! | member | job |
//! |---|---|
//! | `task` | a task, its progress and its end |
//! | `gang` | tasks that start together |
//! | `grants` | the files and connections of a task, sent to its worker |
//! | `exchange`, `streams` | rows between stages: by files and objects, or by streams |
//! | `host_outputs` | the connection to outputs on another host |
//! | `key_ranges` | sorted outputs, read in ranges of their keys |
//! | `footer` | footers of Parquet files that are kept |
//! | `http_source` | HTTP servers that queries may read from |

mod exchange;
mod footer;
mod gang;
mod grants;
mod host_outputs;
mod http_source;
mod key_ranges;
mod streams;
mod task;

pub use exchange::{
    Clean, EXCHANGES, ExchangeOptions, MAX_LEVELS, MediumChoice, ObjectOutput, ObjectsAt,
    bucket_and_key, exchange_folder,
};
pub use footer::{KeptFooter, MAX_FOOTERS, MAX_KEPT_FOOTER, MAX_KEPT_NAME, ObjectFooter};
pub use gang::{GangAsk, GangTask};
pub use grants::{Grants, UdfConnection, hand_over};
pub use host_outputs::{HostOutputs, MAX_READ_BYTES, READ_BYTES, ReadRange};
pub use http_source::HttpSource;
pub use key_ranges::{Edge, KeyRange, MARK_KEY_BYTES, MAX_MARKS, Mark};
pub use streams::{MAX_STREAMS, Receiver, TaskStreams};
pub use task::{
    FileGrant, LocalFile, OperatorMetric, OutputPartition, S3Access, ScanCounts, Task, TaskDone,
    TaskFailure, TaskProgress, TaskRead, UdfGrant, UdfUse,
};
