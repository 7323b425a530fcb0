//! The user-facing error report: on a terminal, as JSON, and in Python.
//!
//! Library crates keep their own `Error` enums and implement [`Report`]; only this type
//! crosses a process boundary. Every code is in [`CODES`] and in `docs/reference/errors.md`.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A stable error code with its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// `SM-` and four digits.
    pub code: &'static str,
    /// The meaning of the code, in a few words.
    pub title: &'static str,
    /// The class of exit code that the command line returns for it.
    pub exit: ExitClass,
}

/// The classes of exit codes of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitClass {
    /// 1: the query, the function or the data is wrong; the same input fails again.
    Input = 1,
    /// 2: the command line is wrong.
    Usage = 2,
    /// 3: the platform failed; the same input may succeed later or elsewhere.
    Platform = 3,
    /// 124: a time limit expired.
    Timeout = 124,
    /// 130: the user interrupted the command.
    Interrupted = 130,
}

macro_rules! codes {
    ($($name:ident = $code:literal, $exit:ident, $title:literal;)*) => {
        impl Code {
            $(#[doc = $title] pub const $name: Code = Code { code: $code, title: $title, exit: ExitClass::$exit };)*
        }
        /// All codes, in order.
        pub const CODES: &[Code] = &[$(Code::$name),*];
    };
}

codes! {
    SQL_SYNTAX = "SM-0101", Input, "the SQL cannot be parsed";
    SQL_NAME = "SM-0102", Input, "the SQL names a column, table or function that does not exist";
    SQL_TYPE = "SM-0103", Input, "the SQL combines types that are not compatible";
    TABLE_EMPTY = "SM-0104", Input, "a location holds no file of a known format";
    TABLE_MISSING = "SM-0105", Input, "a location does not exist";
    FILE_CORRUPT = "SM-0106", Input, "a file cannot be read";
    PLAN_UNSUPPORTED = "SM-0107", Input, "the plan needs an operator that is not there yet";
    STORAGE = "SM-0108", Platform, "object storage refused or failed";
    SQL_VALUE = "SM-0109", Input, "a value of the data breaks an expression of the SQL";
    OPTION = "SM-0110", Usage, "an option or setting is wrong";
    QUERY_MEMORY = "SM-0111", Input, "the query needs more memory than its limit";
    QUERY_TIMEOUT = "SM-0112", Timeout, "the query exceeded its time limit";
    CANCELLED = "SM-0113", Interrupted, "the query was cancelled";
    OUTPUT = "SM-0114", Input, "the answer cannot be written in this format or to this location";
    SCAN_CHANGED = "SM-0115", Platform, "a scan cannot be sent to the workers unchanged";
    FILE_CHANGED = "SM-0116", Platform, "a file changed while it was read";
    S3_SETTING = "SM-0117", Usage, "a setting for S3 is wrong or missing";
    TABLE_MIXED = "SM-0118", Input, "the files of a table have several formats";
    FILE_LINE = "SM-0119", Input, "a line of a file does not fit its table";
    HTTP_SOURCE = "SM-0120", Usage, "a server of files is not allowed";
    FILE_RIGHTS = "SM-0121", Usage, "a local file may not be read for this client";

    FUNCTION_RAISED = "SM-0201", Input, "the user's function raised an exception";
    FUNCTION_TYPE = "SM-0202", Input, "the user's function returned a value of the wrong type";
    FUNCTION_LENGTH = "SM-0203", Input, "the user's function returned the wrong number of values";
    FUNCTION_LOAD = "SM-0204", Input, "the user's code cannot be loaded";
    FUNCTION_SIGNATURE = "SM-0205", Input, "the function's annotations do not give a schema";
    FUNCTION_COMMAND = "SM-0206", Input, "the function's program is missing or cannot be executed";
    FUNCTION_SETUP = "SM-0207", Input, "the set-up of a function failed";
    FUNCTION_EXIT = "SM-0210", Input, "the function's process ended by itself";
    FUNCTION_SIGNAL = "SM-0211", Input, "the function's process was ended by a signal";
    FUNCTION_TIMEOUT = "SM-0212", Timeout, "the function did not answer within its time";
    FUNCTION_MEMORY = "SM-0213", Input, "the function reached its memory limit";
    FUNCTION_PIDS = "SM-0214", Input, "the function reached its limit of processes";
    FUNCTION_SCRATCH = "SM-0215", Input, "the function filled its scratch";
    FUNCTION_FILES = "SM-0216", Input, "the function reached its limit of open files";
    FUNCTION_LOG = "SM-0217", Input, "the function wrote more than the limit of its log";
    FUNCTION_MISSING = "SM-0220", Input, "there is no function of that name";
    FUNCTION_NAME = "SM-0221", Usage, "the function's name is not allowed";
    FUNCTION_EVENT = "SM-0222", Usage, "the event is not valid JSON";
    INVOCATION_MISSING = "SM-0223", Input, "there is no invocation of that id";
    CALLS_WAITING = "SM-0224", Platform, "too many asynchronous calls of a function wait";
    FUNCTION_ANSWER = "SM-0225", Input, "the function's answer exceeds the size limit";
    FUNCTION_EXISTS = "SM-0226", Input, "a function of that name is registered already";
    FUNCTION_FILE = "SM-0230", Input, "a file of a function cannot be used";
    FUNCTION_SECRET = "SM-0231", Input, "a secret of a function cannot be used";

    PACKAGE_RESOLVE = "SM-0301", Input, "the packages cannot be resolved";
    PACKAGE_INSTALL = "SM-0302", Platform, "the packages cannot be unpacked";
    PACKAGE_TOOL = "SM-0303", Platform, "the resolver (uv) or Python is missing";
    PACKAGE_INDEX = "SM-0304", Platform, "the package index cannot be reached";
    PACKAGE_CODE = "SM-0305", Input, "a code package cannot be used";
    PYTHON_VERSION = "SM-0306", Input, "there is no interpreter of the version that code asks for";

    WORKER_LOST = "SM-0401", Platform, "a worker was lost more often than the limit";
    WORKER_MEMORY = "SM-0402", Input, "a worker reached its memory limit";
    DRIVER_LOST = "SM-0403", Platform, "the process that plans and merges a query ended";
    OUTPUT_LOST = "SM-0406", Platform, "a task cannot read what another task has left on its host";
    SANDBOX_START = "SM-0501", Platform, "a sandbox could not be started";
    SPAWNER_LOST = "SM-0502", Platform, "the spawner is gone";
    SERVER_UNREACHABLE = "SM-0503", Platform, "the server cannot be reached";
    SERVER_RUNNING = "SM-0504", Usage, "a server is running already";
    STATE = "SM-0505", Platform, "the state folder cannot be used";
    DISK_FULL = "SM-0506", Platform, "the disk is full";
    PROTOCOL = "SM-0507", Platform, "the other side sent what the protocol does not allow";
    REQUEST_UNKNOWN = "SM-0508", Usage, "the server does not know the request";
    REQUEST_SIZE = "SM-0509", Usage, "a request exceeds the size limit";
    ANSWERS_FULL = "SM-0510", Platform, "answers in progress use all the memory reserved for them";
    SERVER_SILENT = "SM-0511", Platform, "the server does not answer";
    SERVER_ENDS = "SM-0512", Platform, "the server is shutting down";
    TENANT_REFUSED = "SM-0513", Usage, "a request may not act for this tenant";
    NO_ROOM = "SM-0514", Platform, "there is no room on this host";
    TOKEN_REFUSED = "SM-0515", Usage, "the token of a request is not accepted";
    CERTIFICATE = "SM-0516", Usage, "the certificate of a server is not trusted";
    PRUNING_RUNS = "SM-0517", Platform, "a removal of what nothing uses is running";
    RIGHT_MISSING = "SM-0518", Usage, "the role or the names of a request do not include this";
    KEY_MISSING = "SM-0519", Input, "there is no such key";
    SPAWNER_START = "SM-0520", Platform, "the spawner died and cannot be started again";
    ZYGOTES_BUSY = "SM-0521", Platform, "all slots for zygotes are in use";
    QUERY_PROGRAM = "SM-0522", Platform, "the program that runs queries is missing";
    KEYS_MOST = "SM-0523", Usage, "there are as many keys as there may be";
    ISSUER = "SM-0524", Platform, "an issuer of tokens does not answer as it should";
    LOGIN = "SM-0525", Usage, "a login is needed, or did not succeed";
    STORE_AWAY = "SM-0526", Platform, "the store of the platform does not answer";
    STORE_UNKNOWN = "SM-0527", Timeout, "it is not known whether the store made a change";
    STORE_LIMIT = "SM-0528", Input, "a record is too large for the store";
    LEADER_OTHER = "SM-0529", Platform, "another control leads";
    ROOTLESS = "SM-0530", Platform, "an ordinary user cannot do this here";
    AUDIT = "SM-0531", Platform, "the audit cannot be written or read";
    AUDIT_BROKEN = "SM-0532", Input, "the chain of the audit is broken";
    QUOTA = "SM-0533", Platform, "a quota of the tenant is reached";
    CERTIFICATE_ORDER = "SM-0534", Platform, "a certificate cannot be ordered";
    STORE_FORMAT = "SM-0540", Platform, "the records were written by a newer version";
    STORE_COPY = "SM-0541", Usage, "records cannot be moved from one store to another";
    NETWORK_MAKE = "SM-0601", Platform, "a job's network could not be made";
    NETWORK_SPEC = "SM-0602", Input, "the specification of a job's network is invalid";
    NETWORK_TAKEN = "SM-0603", Platform, "the network of a job is in use by another job";
    NETWORK_UNREACHABLE = "SM-0604", Timeout, "not all hosts of a job could be reached in time";
    NETWORK_MISSING = "SM-0605", Input, "there is no such network, rank or address of a job";

    HOSTS_FEW = "SM-0701", Platform, "there is no room for a burst on the hosts";
    BURST_START = "SM-0702", Platform, "a burst did not start completely";
    HOST_LOST = "SM-0703", Platform, "a host was lost while it ran part of a burst";
    HOST_REFUSED = "SM-0704", Platform, "a host and its control do not accept each other";
    RANK_ENDED = "SM-0705", Input, "a function was ended because another of its job failed";
    PART_MISSING = "SM-0706", Platform, "a host does not have this part of a job";
    JOB_MISSING = "SM-0707", Input, "there is no such burst";
    JOB_ABANDONED = "SM-0708", Platform, "a burst was ended because nobody claimed it";
    HOST_STOPPED = "SM-0709", Platform, "no process listens at the address of a host";
    JOB_CANCELLED = "SM-0710", Interrupted, "a burst was cancelled";
    FUNCTION_ABSENT = "SM-0711", Platform, "a host has not prepared the function that is called";
    CALL_LOST = "SM-0712", Platform, "a host was lost while it ran a call";
    HOST_UNKNOWN = "SM-0713", Usage, "there is no such host";
    HOST_PROVIDER = "SM-0714", Platform, "the provider of hosts failed";
    CONNECTION_LOST = "SM-0715", Platform, "the connection to an instance on another host broke";
    JOIN_TOKEN = "SM-0716", Usage, "a join token is not one of this cluster, or is damaged";
    JOIN_TOKEN_OVER = "SM-0717", Usage, "a join token has expired, or was used";
    JOIN_NAME = "SM-0718", Usage, "a host may not have this name";
    HOST_REMOVED = "SM-0719", Platform, "a host was removed from its cluster";
    CALL_AGAIN = "SM-0720", Platform, "a call may have run before";

    LAB_STEP = "SM-0801", Platform, "a lab cannot be created or changed";
    LAB_NAME = "SM-0802", Usage, "a lab or one of its hosts does not exist, or exists already";

    INTERNAL = "SM-0901", Platform, "an internal error";

    IMAGE_REFUSED = "SM-1001", Input, "an image violates its format";
    IMAGE_DAMAGED = "SM-1002", Platform, "bytes of an image do not match their digests";
    IMAGE_MISSING = "SM-1003", Input, "there is no such image";
    IMAGE_SOURCE = "SM-1004", Platform, "an image cannot be fetched from its source";
    IMAGE_MOUNT = "SM-1005", Platform, "an image cannot be mounted";
    IMAGE_AUTHORITY = "SM-1006", Platform, "the certificate of a registry is not trusted";
    IMAGE_LIBRARY = "SM-1007", Input, "an image lacks libraries that its packages need";
    IMAGE_SCRIPTS = "SM-1008", Input, "scripts of packages were not run for an image";
}

impl Code {
    /// Whether the same request may succeed later. A peer that breaks the protocol does so each
    /// time, and one that refuses a host, or has removed it, goes on so.
    pub fn is_retryable(self) -> bool {
        match self.exit {
            ExitClass::Platform => {
                ![Self::PROTOCOL, Self::HOST_REFUSED, Self::HOST_REMOVED].contains(&self)
            }
            ExitClass::Interrupted => true,
            ExitClass::Input | ExitClass::Usage | ExitClass::Timeout => false,
        }
    }
}

/// The location of a failure in the user's own code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceLocation {
    /// File as the user named it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// The enclosing function, or a clause of the SQL.
    #[serde(default)]
    pub within: Option<String>,
}

/// An error as shown to a user: what failed, where, on which input, and what to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorReport {
    /// The code of the error, from [`CODES`].
    pub code: String,
    /// The message, one line: what failed, with its name.
    pub message: String,
    /// The location in the user's own code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<SourceLocation>,
    /// Lines of the user's code or traceback, shown after a bar.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excerpt: Vec<String>,
    /// The input on which the code failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// The hint: what the user can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The query that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_id: Option<String>,
    /// Whether the same request may succeed later: the platform failed, not the input.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retryable: bool,
    /// In how many seconds the same request may succeed, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<u64>,
}

impl ErrorReport {
    /// A report with a code and one line.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code: code.code.to_owned(),
            message: message.into(),
            retryable: code.is_retryable(),
            ..Self::default()
        }
    }

    /// Adds a hint: what the user can do.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds in how many seconds the same request may succeed.
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// Says that the same request fails again.
    pub fn not_retryable(mut self) -> Self {
        self.retryable = false;
        self
    }

    /// Adds lines of the user's code or traceback.
    pub fn excerpt(mut self, lines: impl IntoIterator<Item = String>) -> Self {
        self.excerpt = lines.into_iter().collect();
        self
    }

    /// Adds the input on which the code failed.
    pub fn input(mut self, input: impl Into<String>) -> Self {
        self.input = Some(input.into());
        self
    }

    /// Adds the location in the user's code.
    pub fn location(mut self, location: SourceLocation) -> Self {
        self.location = Some(location);
        self
    }

    /// The entry of [`CODES`], or [`Code::INTERNAL`] for a code that this version does not know.
    pub fn known_code(&self) -> Code {
        CODES.iter().copied().find(|code| code.code == self.code).unwrap_or(Code::INTERNAL)
    }
}

impl fmt::Display for ErrorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.message)?;
        if let Some(SourceLocation { file, line, within }) = &self.location {
            write!(f, "\n  --> {file}:{line}")?;
            if let Some(within) = within {
                write!(f, " in {within}")?;
            }
        }
        for line in &self.excerpt {
            write!(f, "\n   |  {line}")?;
        }
        if let Some(input) = &self.input {
            write!(f, "\ninput: {input}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ErrorReport {}

/// Implemented by each crate's `Error`, to report it to a user.
pub trait Report: std::error::Error {
    /// The error as a user should see it.
    fn report(&self) -> ErrorReport;
}

impl Report for ErrorReport {
    fn report(&self) -> ErrorReport {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_sorted() {
        assert!(CODES.windows(2).all(|pair| pair[0].code < pair[1].code));
    }

    #[test]
    fn only_a_failure_of_the_platform_is_retryable() {
        let retryable = |code| ErrorReport::new(code, "").retryable;
        for code in [
            Code::SPAWNER_LOST,
            Code::SANDBOX_START,
            Code::NO_ROOM,
            Code::DISK_FULL,
            Code::CANCELLED,
        ] {
            assert!(retryable(code), "{}", code.code);
        }
        let of_function = [Code::FUNCTION_RAISED, Code::FUNCTION_TIMEOUT, Code::FUNCTION_MISSING];
        for code in of_function.into_iter().chain([
            Code::FUNCTION_MEMORY,
            Code::PROTOCOL,
            Code::HOST_REFUSED,
            Code::HOST_REMOVED,
        ]) {
            assert!(!retryable(code), "{}", code.code);
        }
    }

    #[test]
    fn a_report_is_displayed_with_all_its_parts() {
        let report = ErrorReport::new(Code::FUNCTION_RAISED, "`country` failed in 3 of 2000 calls")
            .location(SourceLocation {
                file: "udfs.py".into(),
                line: 12,
                within: Some("country()".into()),
            })
            .excerpt([
                "return parse(phone).region".into(),
                "NumberParseException: too short".into(),
            ])
            .input("phone = \"+4\" (partition 417, row 88)")
            .hint("return null for bad input with @sm.udf(on_error=\"null\")");
        assert_eq!(
            report.to_string(),
            "error[SM-0201]: `country` failed in 3 of 2000 calls\n  --> udfs.py:12 in country()\n   |  \
             return parse(phone).region\n   |  NumberParseException: too short\ninput: phone = \"+4\" \
             (partition 417, row 88)\nhint: return null for bad input with @sm.udf(on_error=\"null\")"
        );
    }
}
