//! Exchanges between stages (Lambada 4.4): a task writes its batches, split into partitions, and
//! the tasks of the next stage read the partitions that they need.
//!
//! The medium is a file without a name that the platform creates and keeps: the writer and each
//! reader on the same host are granted a descriptor of it, so that workers need neither a network nor
//! a path, and a page is copied once on each side. Its pages are in memory until the kernel needs
//! that memory. A reader on another host is granted a connection to the agent that keeps the file.
//! Or it is objects on S3, in one to three levels ([`levels()`]), which need a bucket and no host in
//! common (Lambada 4.4).
//!
//! Invariant: an output is read only after its attempt was reported complete, and is never written
//! to afterwards.
//!
//! Streams store nothing: both tasks run at the same time, and rows go over sockets, which the agents
//! connect if the tasks are on two hosts. If one of them is lost, both stages run again with a medium
//! that stores the rows.

mod decoder;
mod facts;
mod host;
mod inputs;
mod levels;
mod marks;
mod medium;
mod objects;
mod read;
mod runs;
mod source;
mod streams;
mod target;
mod write;

pub use facts::{Constant, Facts};
pub(crate) use host::host_sources;
pub(crate) use inputs::Inputs;
pub use levels::{Level, levels};
pub use medium::{Exchange, ExchangeReach, StageMedium};
pub use objects::cleaner::{Cleaner, objects_at};
pub use objects::model::{ExchangePrices, ExchangeRequests, ObjectExchange};
pub(crate) use objects::stores::Stores;
pub(crate) use objects::target::ObjectTarget;
pub use read::ExchangeReadExec;
pub(crate) use source::{FileSource, OutputSource};
pub(crate) use streams::source::StreamSource;
pub(crate) use streams::target::StreamTarget;
pub(crate) use target::{FileTarget, OutputTarget};
pub use write::output_split;
pub(crate) use write::{ExchangeWriter, LevelOfTask};
