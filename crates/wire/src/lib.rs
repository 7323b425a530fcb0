//! The protocols between processes: frames over a unix socket, the messages in them, and Arrow
//! batches as IPC messages.
//!
//! This crate encodes and decodes; it starts no processes and makes no decisions. All received data
//! is checked here, because a sandbox is not trusted: a frame has a known kind and a bounded
//! length, a message is valid JSON of the expected shape, a batch is valid Arrow.
//!
//! Rooms use those above them in this table only:
//!
//! | room | owns |
//! |---|---|
//! | `frame_kind`, `error` | the kinds of frames, and errors of the communication |
//! | `frames` | frames with descriptors, and Arrow batches in them |
//! | `functions` | messages between the platform and instances of a user's code |
//! | `tasks` | messages between the platform and query workers |
//! | `json` | the JSON of maps, which the command and the functions of SQL write |
//! | `driver` | messages between the platform and the driver of a query |

mod driver;
mod error;
mod frame_kind;
mod frames;
mod functions;
mod json;
mod tasks;

pub use driver::{
    Answered, CsvOption, Drive, DriverOperation, DriverRequest, MAX_ANSWER_BYTES,
    MAX_FURTHER_ATTEMPTS, MAX_PLANS, MAX_REQUEST_BYTES, Parameter, ParameterType, Parameters,
    PriceFile, Reply, RequestFailure, RunProgress, SandboxUse, TaskAsk, TypedText,
};
pub use error::Error;
pub use frame_kind::{Kind, MAX_PAYLOAD_BYTES};
pub use frames::{
    BatchDecoder, BatchEncoder, Frame, FrameStream, HEADER_BYTES, MAX_DESCRIPTORS, decode_header,
    decode_schema, encode_schema, read_frame, read_frame_within, read_header, read_payload,
    schema_from_text, schema_to_text, write_frame, write_frame_with,
};
pub use functions::{
    AggregateCall, AggregateDone, AggregateStep, Call, CodeFile, CreateFunction, Definition,
    FailureKind, FunctionFailure, Load, LoadReport, Mode, OnError, Signature, SourceCode,
    Statement, UdfKind,
};
pub use json::TextKeys;
pub use tasks::{
    Clean, EXCHANGES, Edge, ExchangeOptions, FileGrant, GangAsk, GangTask, Grants, HostOutputs,
    HttpSource, KeptFooter, KeyRange, LocalFile, MARK_KEY_BYTES, MAX_FOOTERS, MAX_KEPT_FOOTER,
    MAX_KEPT_NAME, MAX_LEVELS, MAX_MARKS, MAX_READ_BYTES, MAX_STREAMS, Mark, MediumChoice,
    ObjectFooter, ObjectOutput, ObjectsAt, OperatorMetric, OutputPartition, READ_BYTES, ReadRange,
    Receiver, S3Access, ScanCounts, Task, TaskDone, TaskFailure, TaskProgress, TaskRead,
    TaskStreams, UdfConnection, UdfGrant, UdfUse, bucket_and_key, exchange_folder, hand_over,
};

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
