//! Exchanges between stages (Lambada 4.4): a task writes its batches, split into partitions, and
//! the tasks of the next stage read the partitions that they need.
//!
//! The medium is a file without a name that the platform creates and keeps: the writer and each
//! reader on the same host are granted a descriptor of it, so that workers need neither a network nor
//! a path, and a page is copied once on each side. Its pages are in memory until the kernel needs
//! that memory. A reader on another host is granted a connection to the agent that keeps the file.
//!
//! Invariant: a file is read only after its attempt was reported complete, and is never written to
//! afterwards.

mod facts;
mod host;
mod inputs;
mod read;
mod source;
mod write;

pub(crate) use facts::{Constant, Facts};
pub(crate) use host::host_sources;
pub(crate) use inputs::Inputs;
pub(crate) use read::ExchangeReadExec;
pub(crate) use source::{FileSource, Source};
pub(crate) use write::{ExchangeWriter, output_split};
