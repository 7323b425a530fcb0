//! The protocols between processes: frames over a unix socket, the messages in them, and Arrow
//! batches as IPC messages.
//!
//! This crate encodes and decodes; it starts no processes and makes no decisions. All received data
//! is checked here, because a sandbox is not trusted: a frame has a known kind and a bounded
//! length, a message is valid JSON of the expected shape, a batch is valid Arrow.

mod aggregate;
mod batch;
mod bounds;
mod csv_option;
mod definition;
mod dense;
mod drive;
mod error;
mod exchange;
mod failure;
mod footer;
mod frame;
mod function;
mod gang;
mod grants;
mod host_outputs;
mod http_source;
mod kind;
mod parameters;
mod prices;
mod sorted;
mod stream;
mod streams;
mod task;

pub use aggregate::{AggregateCall, AggregateDone, AggregateStep};
pub use batch::{
    BatchDecoder, BatchEncoder, decode_schema, encode_schema, schema_from_text, schema_to_text,
};
pub use csv_option::CsvOption;
pub use definition::{CreateFunction, Definition, Statement};
pub use drive::{
    Answered, Ask, Drive, Failed, MAX_ANSWER_BYTES, MAX_FURTHER_ATTEMPTS, MAX_PLANS,
    MAX_REQUEST_BYTES, Reply, Request, RunProgress, SandboxUse, TaskAsk,
};
pub use error::Error;
pub use exchange::{
    Clean, EXCHANGES, ExchangeOptions, MAX_LEVELS, Medium, ObjectOutput, ObjectsAt, bucket_and_key,
    exchange_folder,
};
pub use failure::{FailureKind, FunctionFailure};
pub use footer::{KeptFooter, MAX_FOOTERS, MAX_KEPT_FOOTER, MAX_KEPT_NAME, ObjectFooter};
pub use frame::{
    Frame, HEADER_BYTES, decode_header, read_frame, read_frame_within, read_header, read_payload,
    write_frame,
};
pub use function::{Call, CodeFile, Load, Mode, OnError, Ready, Signature, SourceCode, UdfKind};
pub use gang::{GangAsk, GangTask};
pub use grants::{Grants, UdfConnection, hand_over};
pub use host_outputs::{HostOutputs, MAX_READ_BYTES, READ_BYTES, ReadRange};
pub use http_source::HttpSource;
pub use kind::{Kind, MAX_PAYLOAD_BYTES};
pub use parameters::{Parameter, ParameterType, Parameters, TypedText};
pub use prices::PriceFile;
pub use sorted::{Edge, KeyRange, MARK_KEY_BYTES, MAX_MARKS, Mark};
pub use stream::{FrameStream, MAX_DESCRIPTORS, write_frame_with};
pub use streams::{MAX_STREAMS, Receiver, TaskStreams};
pub use task::{
    FileGrant, LocalFile, OperatorMetric, OutputPartition, S3Access, ScanCounts, Task, TaskDone,
    TaskFailure, TaskProgress, TaskRead, UdfGrant, UdfUse,
};

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
