//! Messages between the node and an instance that runs a user's code; `docs/reference/runtimes.md`
//! documents them for authors of runtimes.
//!
//! A connection is for one piece of code. `Load` comes first and is answered by `LoadReport` or
//! `Failure`. Then, by mode: a function gets `Call` frames, each answered by `Return` or `Failure`;
//! a UDF gets `Schema` (its arguments) and `Schema` (one column, its result), and then `Batch`
//! frames, each answered by `Batch` (one column of as many rows; the first one is preceded by a
//! `Schema` frame) or `Failure`. The answer of a table function may be for the first rows of a
//! batch, at least one: the others are sent again. An aggregate function gets the same two schemas,
//! and then [`crate::AggregateCall`]s. A describe connection is answered by `Return` with a JSON
//! list of [`Signature`].

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
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
    /// An aggregate function of a query (see [`crate::AggregateCall`]).
    Aggregate,
    /// Names and schemas of the UDFs that the code defines.
    Describe,
}

/// The user's code, by value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum SourceCode {
    /// A single Python file.
    Source {
        /// The file's name as the user gave it, for tracebacks: `udfs.py`.
        file: String,
        /// The text of the file.
        text: String,
    },
    /// A folder of Python files, which import each other, and of files that they read.
    Folder {
        /// The file that defines the function, relative to the folder: `app.py`.
        file: String,
        /// All files by path, relative to the folder.
        files: BTreeMap<String, CodeFile>,
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
        /// Whether the pickle contains a shared set-up, which the zygote of this code runs.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        shared_setup: bool,
    },
    /// The Python code of a function that SQL defines.
    Definition {
        /// The name of the statement, for tracebacks: `CREATE FUNCTION score`.
        file: String,
        /// The body of the function, or a module that defines a function of its name. Empty lines
        /// come first, so that its lines have the numbers that they have in the statement.
        text: String,
        /// Whether the code is inside of an `if`, because all of its lines are indented.
        #[serde(default)]
        indented: bool,
        /// The declared types.
        signature: Box<Signature>,
    },
    /// The files of a program of another language, or what its runtime loads.
    Files {
        /// The files by path, relative to the program's working folder.
        files: BTreeMap<String, CodeFile>,
    },
}

/// A file of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CodeFile {
    /// The bytes of the file in base64.
    pub data: String,
    /// Whether the file can be executed.
    #[serde(default)]
    pub executable: bool,
}

impl SourceCode {
    /// Name and text of the Python file that defines the function; `None` if it is pickled or of
    /// another language, or if a folder has no such file.
    pub fn python_text(&self) -> Option<(&str, Cow<'_, str>)> {
        match self {
            Self::Source { file, text } | Self::Definition { file, text, .. } => {
                Some((file, Cow::Borrowed(text)))
            }
            Self::Folder { file, files } => {
                let text = String::from_utf8(files.get(file)?.bytes()?).ok()?;
                Some((file, Cow::Owned(text)))
            }
            Self::Pickle { .. } | Self::Files { .. } => None,
        }
    }
}

impl CodeFile {
    /// Makes a file with these bytes.
    pub fn new(bytes: &[u8], executable: bool) -> Self {
        Self { data: STANDARD.encode(bytes), executable }
    }

    /// The bytes of the file; `None` if `data` is not base64.
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

/// The report that the code is loaded.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LoadReport {
    /// Process id inside the sandbox.
    #[serde(default)]
    pub pid: i64,
    /// The time for which the set-up functions of the code ran for this connection, in
    /// microseconds; 0 if there are none or they ran before.
    #[serde(default)]
    pub setup_us: u64,
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

/// The unit for which SQL calls a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UdfKind {
    /// The function is called for each row.
    #[default]
    Scalar,
    /// The function is called for each group of rows.
    Aggregate,
    /// The function is called for each row and returns rows: its result is a list of structs whose
    /// fields are the columns.
    Table,
}

/// A call of a function.
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
    /// The unit for which the function is called: a row, a group, or a row for which it returns
    /// rows.
    #[serde(default)]
    pub kind: UdfKind,
    /// `scalar`, `arrow`, `pandas` or `numpy`.
    pub batch: String,
    /// The types of the function: base64 of an Arrow IPC schema with a field for each argument,
    /// then one named `return`. If a field is not nullable, the function is not called for nulls
    /// and the result is null; an aggregate function gets only the other rows.
    pub schema: String,
    /// The handling of rows on which the function raises.
    #[serde(default)]
    pub on_error: OnError,
    /// True if equal arguments give the same result throughout a query, so that a result may be
    /// reused instead of a call.
    #[serde(default)]
    pub deterministic: bool,
    /// The Python packages that the function needs, in pip's syntax.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Memory limit of an instance, as text (`512MiB`), if the user gave one.
    #[serde(default)]
    pub memory: Option<String>,
    /// Time limit of one batch, as text (`30s`), if the user gave one.
    #[serde(default)]
    pub timeout: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_back_from_text() {
        let file = CodeFile::new(&[0, 255, 7], true);
        let text = serde_json::to_string(&file).unwrap();
        assert_eq!(serde_json::from_str::<CodeFile>(&text).unwrap().bytes().unwrap(), [0, 255, 7]);
        assert_eq!(CodeFile { data: "%".into(), executable: false }.bytes(), None);
    }
}
