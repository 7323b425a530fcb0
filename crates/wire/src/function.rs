//! Messages between the node and an instance that runs a user's code; `docs/runtimes.md` documents
//! them for authors of runtimes.
//!
//! A connection is for one piece of code. `Load` comes first and is answered by `Ready` or
//! `Failure`. Then, by mode: a function gets `Call` frames, each answered by `Return` or `Failure`;
//! a UDF gets `Schema` (its arguments) and `Schema` (one column, its result), and then `Batch`
//! frames, each answered by `Batch` (one column of as many rows; the first one is preceded by a
//! `Schema` frame) or `Failure`. A describe connection is answered by `Return` with a JSON list of
//! [`Signature`].

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use snowmelt_types::{ByteSize, Code, ErrorReport, Report, SourceLocation};
use utoipa::ToSchema;

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// `handler(event)` with JSON values.
    Function,
    /// `f(item)` over the items of a pickled list, for `sm.map`.
    Map,
    /// A function of a query, called with batches.
    Udf,
    /// Names and schemas of the UDFs that the code defines.
    Describe,
}

/// The user's code, by value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum SourceCode {
    /// One Python file.
    Source {
        /// The file's name as the user gave it, for tracebacks: `udfs.py`.
        file: String,
        /// Its text.
        text: String,
    },
    /// A function pickled by value with cloudpickle.
    Pickle {
        /// Base64 of the pickle.
        data: String,
        /// `major.minor` of the Python that pickled it, because the pickle contains byte code.
        python: String,
        /// File name to text of the source files that the function came from, for tracebacks.
        #[serde(default)]
        sources: BTreeMap<String, String>,
    },
    /// The files of a program of another language, or what its runtime loads.
    Files {
        /// The files by path, relative to the program's working folder.
        files: BTreeMap<String, CodeFile>,
    },
}

/// One file of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CodeFile {
    /// Base64 of its bytes.
    pub data: String,
    /// Whether it can be executed.
    #[serde(default)]
    pub executable: bool,
}

impl CodeFile {
    /// A file with these bytes.
    pub fn new(bytes: &[u8], executable: bool) -> Self {
        Self { data: STANDARD.encode(bytes), executable }
    }

    /// Its bytes; `None` if they are not base64.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        STANDARD.decode(&self.data).ok()
    }
}

/// Instructs an instance to load code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// The purpose of the connection.
    pub mode: Mode,
    /// Path inside the sandbox of a JSON file with the [`SourceCode`]; for a program the folder of
    /// its [`SourceCode::Files`].
    pub code: String,
    /// The function's name in the code; ignored by [`Mode::Describe`].
    #[serde(default)]
    pub function: String,
    /// The batch format of a UDF, see [`Signature::batch`]; `None` for the other modes.
    #[serde(default)]
    pub batch: Option<String>,
    /// The handling of rows on which a scalar UDF raises.
    #[serde(default)]
    pub on_error: OnError,
}

/// Reports that the code is loaded.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ready {
    /// Process id inside the sandbox.
    #[serde(default)]
    pub pid: i64,
}

/// The handling of rows on which a scalar UDF raises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnError {
    /// The query fails.
    #[default]
    Raise,
    /// The row's result is null.
    Null,
}

/// One call of a function.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    /// The invocation's id, for logs.
    pub invocation: String,
    /// The event; for [`Mode::Map`] the base64 text of a pickled list of items, and the result
    /// format that the caller reads.
    pub event: Box<RawValue>,
}

/// The arguments and the result of a UDF, and its settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Signature {
    /// Name in SQL and in the code.
    pub name: String,
    /// `scalar`, `arrow`, `pandas` or `numpy`.
    pub batch: String,
    /// Base64 of an Arrow IPC schema: a field for each argument, then one named `return`. If a
    /// field is not nullable, the function is not called for nulls and the result is null.
    pub schema: String,
    /// The handling of rows on which the function raises.
    #[serde(default)]
    pub on_error: OnError,
    /// Requirements in pip's syntax.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Memory limit of an instance, as text (`512MiB`), if the user gave one.
    #[serde(default)]
    pub memory: Option<String>,
    /// Time limit of one batch, as text (`30s`), if the user gave one.
    #[serde(default)]
    pub timeout: Option<String>,
}

/// Why user code failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// It raised.
    Raised,
    /// A value is not of the declared type.
    Type,
    /// The number of returned values is wrong.
    Length,
    /// The code cannot be imported or unpickled.
    Load,
    /// Annotations are missing or have no SQL type.
    Signature,
    /// It raised because its scratch space is full.
    Scratch,
    /// It raised because it reached its limit of open files.
    Files,
    /// It raised because it reached its limit of processes and threads.
    Processes,
    /// It raised because its heap is full (Java).
    Memory,
}

/// A failure of user code, as the instance reports it; a claim of the sandbox that is not trusted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FunctionFailure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// The function.
    pub function: String,
    /// Exception type and text on one line: `ValueError: too short`.
    pub exception: String,
    /// File, line and function of the innermost frame of the user's own code.
    #[serde(default)]
    pub location: Option<SourceLocation>,
    /// The user's frames and lines; the platform's frames are left out.
    #[serde(default)]
    pub traceback: Vec<String>,
    /// Row in the batch, from 0.
    #[serde(default)]
    pub row: Option<u64>,
    /// The arguments, shortened: `phone = "+4"`.
    #[serde(default)]
    pub input: Option<String>,
    /// Calls of this batch that failed.
    #[serde(default)]
    pub failed: u64,
    /// Calls of this batch.
    #[serde(default)]
    pub calls: u64,
    /// The limit that was reached: bytes of scratch, open files, processes.
    #[serde(default)]
    pub limit: Option<u64>,
    /// The peak use.
    #[serde(default)]
    pub peak: Option<u64>,
    /// A hint of the instance, which takes precedence over the platform's.
    #[serde(default)]
    pub hint: Option<String>,
}

impl FunctionFailure {
    fn message(&self) -> String {
        let name = &self.function;
        match self.kind {
            FailureKind::Raised if self.calls > 1 => {
                format!("`{name}` failed in {} of {} calls", self.failed, self.calls)
            }
            FailureKind::Raised => format!("`{name}` raised {}", self.exception),
            FailureKind::Type => format!("`{name}` returned the wrong type: {}", self.exception),
            FailureKind::Length => {
                format!("`{name}` returned the wrong number of values: {}", self.exception)
            }
            FailureKind::Load if name.is_empty() => {
                format!("the code cannot be loaded: {}", self.exception)
            }
            FailureKind::Load => format!("`{name}` cannot be loaded: {}", self.exception),
            FailureKind::Signature => {
                format!("`{name}` has no usable signature: {}", self.exception)
            }
            FailureKind::Scratch => format!("`{name}` filled its scratch{}", self.reached(bytes)),
            FailureKind::Files => {
                format!("`{name}` reached its limit of open files{}", self.reached(plain))
            }
            FailureKind::Processes => {
                format!("`{name}` reached its limit of processes{}", self.reached(plain))
            }
            FailureKind::Memory => format!("`{name}` ran out of memory{}", self.reached(bytes)),
        }
    }

    /// The platform's hint.
    fn hint(&self) -> Option<String> {
        let twice = self.limit.map_or(0, |limit| limit.saturating_mul(2));
        let twice_mib = (twice >> 20).max(1);
        let hint = match self.kind {
            FailureKind::Scratch => {
                format!(
                    "write less; a deployed function gets more with scratch=\"{twice_mib}MiB\" (fn \
                     deploy --scratch)"
                )
            }
            FailureKind::Files => {
                format!(
                    "close what is done with; a deployed function gets more with open_files={twice} \
                     (fn deploy --open-files)"
                )
            }
            FailureKind::Processes => {
                "start fewer processes and threads; a deployed function gets more with pids= (fn \
                 deploy --pids)"
                    .to_owned()
            }
            FailureKind::Memory => {
                format!("give it more with memory=\"{twice_mib}MiB\" (fn deploy --memory)")
            }
            _ => return None,
        };
        Some(hint)
    }

    fn reached(&self, form: fn(u64) -> String) -> String {
        let named = [("limit", self.limit), ("peak", self.peak)];
        let known = named.iter().filter_map(|(name, value)| Some((name, (*value)?)));
        let known: Vec<_> = known.map(|(name, value)| format!("{name} {}", form(value))).collect();
        if known.is_empty() { String::new() } else { format!(": {}", known.join(", ")) }
    }

    fn code(&self) -> Code {
        match self.kind {
            FailureKind::Raised => Code::FUNCTION_RAISED,
            FailureKind::Type => Code::FUNCTION_TYPE,
            FailureKind::Length => Code::FUNCTION_LENGTH,
            FailureKind::Load => Code::FUNCTION_LOAD,
            FailureKind::Signature => Code::FUNCTION_SIGNATURE,
            FailureKind::Scratch => Code::FUNCTION_SCRATCH,
            FailureKind::Files => Code::FUNCTION_FILES,
            FailureKind::Processes => Code::FUNCTION_PIDS,
            FailureKind::Memory => Code::FUNCTION_MEMORY,
        }
    }
}

fn bytes(count: u64) -> String {
    ByteSize(count).to_string()
}

fn plain(count: u64) -> String {
    count.to_string()
}

impl std::fmt::Display for FunctionFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message())
    }
}

impl std::error::Error for FunctionFailure {}

impl Report for FunctionFailure {
    fn report(&self) -> ErrorReport {
        let mut report =
            ErrorReport::new(self.code(), self.message()).excerpt(self.traceback.iter().cloned());
        report.location = self.location.clone();
        report.input = match (&self.input, self.row) {
            (Some(input), Some(row)) => Some(format!("{input} (row {row} of its batch)")),
            (input, _) => input.clone(),
        };
        report.hint = self.hint.clone().or_else(|| self.hint());
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_function_input_and_row() {
        let text = r#"{"kind":"raised","function":"country","exception":"ValueError: too short",
            "location":{"file":"udfs.py","line":12,"within":"country()"},"row":88,
            "input":"phone = \"+4\"","failed":3,"calls":2000}"#;
        let failure: FunctionFailure = serde_json::from_str(text).unwrap();
        let shown = failure.report().to_string();
        assert!(shown.starts_with("error[SM-0201]: `country` failed in 3 of 2000 calls"));
        assert!(shown.contains("--> udfs.py:12 in country()"));
        assert!(shown.contains("input: phone = \"+4\" (row 88 of its batch)"));
    }

    #[test]
    fn a_reached_limit_is_reported_with_its_peak() {
        let text = r#"{"kind":"scratch","function":"f","exception":"OSError: [Errno 28]",
            "limit":67108864,"peak":67108864,"hint":"give it more"}"#;
        let failure: FunctionFailure = serde_json::from_str(text).unwrap();
        let shown = failure.report().to_string();
        let expected = "error[SM-0215]: `f` filled its scratch: limit 64 MiB, peak 64 MiB";
        assert!(shown.starts_with(expected), "{shown}");
    }

    #[test]
    fn the_hint_of_a_limit_names_the_setting_to_change() {
        let hint = |kind: &str| {
            let text =
                format!(r#"{{"kind":"{kind}","function":"f","exception":"e","limit":1048576}}"#);
            serde_json::from_str::<FunctionFailure>(&text).unwrap().report().hint.unwrap()
        };
        assert!(hint("scratch").contains("scratch=\"2MiB\""));
        assert!(hint("files").contains("open_files=2097152"));
        assert!(hint("processes").contains("--pids"));
        assert!(hint("memory").contains("--memory"));
    }

    #[test]
    fn files_are_read_back_from_text() {
        let file = CodeFile::new(&[0, 255, 7], true);
        let text = serde_json::to_string(&file).unwrap();
        assert_eq!(serde_json::from_str::<CodeFile>(&text).unwrap().bytes().unwrap(), [0, 255, 7]);
        assert_eq!(CodeFile { data: "%".into(), executable: false }.bytes(), None);
    }
}
