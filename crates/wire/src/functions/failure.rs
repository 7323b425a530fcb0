//! The failure of a user's code, as the instance that runs it reports it.

use serde::{Deserialize, Serialize};
use snowmelt_types::{ByteSize, Code, ErrorReport, Report, SourceLocation};

/// The reason why user code failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The code raised an exception.
    Raised,
    /// A value is not of the declared type.
    Type,
    /// The number of returned values is wrong.
    Length,
    /// The code cannot be imported or unpickled.
    Load,
    /// Annotations are missing or have no SQL type.
    Signature,
    /// A set-up function of the code raised an exception.
    Setup,
    /// The code raised because its scratch space is full.
    Scratch,
    /// The code raised because it reached its limit of open files.
    Files,
    /// The code raised because it reached its limit of processes and threads.
    Processes,
    /// The code raised because its heap is full (Java).
    Memory,
    /// The code returned more than is allowed for a row.
    Size,
}

/// A failure of user code, as the instance reports it; a claim of the sandbox that is not trusted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FunctionFailure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// The name of the function.
    pub function: String,
    /// Exception type and text on one line: `ValueError: too short`.
    pub exception: String,
    /// File, line and function of the innermost frame of the user's own code.
    #[serde(default)]
    pub location: Option<SourceLocation>,
    /// The user's frames and lines; the platform's frames are left out.
    #[serde(default)]
    pub traceback: Vec<String>,
    /// The row in the batch, from 0. `None` if the failure is not about one row.
    #[serde(default)]
    pub row: Option<u64>,
    /// The arguments of the call, shortened: `phone = "+4"`.
    #[serde(default)]
    pub input: Option<String>,
    /// The number of calls of this batch that failed.
    #[serde(default)]
    pub failed: u64,
    /// The number of calls of this batch.
    #[serde(default)]
    pub calls: u64,
    /// The limit that was reached: bytes of scratch, or a number of open files or processes. `None`
    /// for other failures.
    #[serde(default)]
    pub limit: Option<u64>,
    /// The peak use of what the limit is for. `None` for other failures.
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
            FailureKind::Setup => {
                format!("the set-up of `{name}` failed: {}", self.exception)
            }
            FailureKind::Scratch => format!("`{name}` filled its scratch{}", self.reached(bytes)),
            FailureKind::Files => {
                format!("`{name}` reached its limit of open files{}", self.reached(plain))
            }
            FailureKind::Processes => {
                format!("`{name}` reached its limit of processes{}", self.reached(plain))
            }
            FailureKind::Memory => format!("`{name}` ran out of memory{}", self.reached(bytes)),
            FailureKind::Size => format!("`{name}` gave too much: {}", self.exception),
        }
    }

    /// The platform's hint for this kind of failure.
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
            FailureKind::Setup => Code::FUNCTION_SETUP,
            FailureKind::Scratch => Code::FUNCTION_SCRATCH,
            FailureKind::Files => Code::FUNCTION_FILES,
            FailureKind::Processes => Code::FUNCTION_PIDS,
            FailureKind::Memory => Code::FUNCTION_MEMORY,
            FailureKind::Size => Code::FUNCTION_ANSWER,
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
    fn a_failed_set_up_is_reported_as_one() {
        let text = r#"{"kind":"setup","function":"score","exception":"OSError: no model"}"#;
        let failure: FunctionFailure = serde_json::from_str(text).unwrap();
        let expected = "error[SM-0207]: the set-up of `score` failed: OSError: no model";
        assert!(failure.report().to_string().starts_with(expected));
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
}
