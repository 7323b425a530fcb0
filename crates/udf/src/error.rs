//! What can be wrong with code that wants to be called from SQL.

use snowmelt_types::{Code, ErrorReport, Report, SourceLocation};

/// Why there is no registration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The source is no Python, or asks for its packages in a way that cannot be read.
    #[error("`{}` cannot be read: {reason}", location.file)]
    Source {
        /// Where.
        location: SourceLocation,
        /// The line itself.
        line: Option<String>,
        /// What Python says of it.
        reason: String,
    },
    /// The interpreter that should read the source does not.
    #[error("Python cannot read the code: {reason}")]
    Interpreter {
        /// What happened to it.
        reason: String,
    },
    /// A signature that cannot be used in SQL.
    #[error("`{function}` has no usable signature: {reason}")]
    Signature {
        /// The function.
        function: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Two functions of the same name.
    #[error("two functions are named `{function}`")]
    Twice {
        /// The name.
        function: String,
    },
    /// No function in the code at all.
    #[error("the code defines no function for SQL")]
    NoFunction,
    /// Files for a program where Python code is due.
    #[error("the code is files of a program, and Python code is due")]
    NotPython,
    /// A script block that asks for another Python.
    #[error("`{}` requires Python {wanted}, but functions run on Python {running}", location.file)]
    RequiresPython {
        /// Where it says so.
        location: SourceLocation,
        /// Its `requires-python`.
        wanted: String,
        /// The version of the platform's interpreter.
        running: String,
    },
    /// A pickle of another Python.
    #[error("the function was pickled by Python {pickled}, but functions run on Python {running}")]
    PickleVersion {
        /// `major.minor` of the caller.
        pickled: String,
        /// `major.minor` of the platform's interpreter.
        running: String,
    },
}

impl Error {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Source { reason, .. } if reason.starts_with("packages=") => {
                "write for example @sm.udf(packages=[\"phonenumbers==8.13.*\"]): the list is read \
                 without running the code"
            }
            Self::Source { .. } => return None,
            Self::Interpreter { .. } => "run `snowmelt doctor`",
            Self::Signature { .. } => {
                "annotate every argument and the result, for example `def f(x: float) -> str`"
            }
            Self::Twice { .. } => "give one of them another name with @sm.udf(name=\"…\")",
            Self::NoFunction => "put @sm.udf before a function",
            Self::NotPython => "name the program's runtime (fn deploy --runtime or --command)",
            Self::RequiresPython { .. } => {
                "name such an interpreter in SNOWMELT_PYTHON when the platform is started"
            }
            Self::PickleVersion { running, .. } => {
                return Some(format!(
                    "call from Python {running}, or name yours in SNOWMELT_PYTHON when the platform \
                     is started"
                ));
            }
        };
        Some(hint.to_owned())
    }
}

impl Report for Error {
    fn report(&self) -> ErrorReport {
        let code = match self {
            Self::Source { .. }
            | Self::RequiresPython { .. }
            | Self::PickleVersion { .. }
            | Self::NotPython
            | Self::NoFunction => Code::FUNCTION_LOAD,
            Self::Interpreter { .. } => Code::PACKAGE_TOOL,
            Self::Signature { .. } | Self::Twice { .. } => Code::FUNCTION_SIGNATURE,
        };
        let mut report = ErrorReport::new(code, self.to_string());
        if let Self::Source { location, line, .. } = self {
            report = report.location(location.clone()).excerpt(line.clone());
        }
        if let Self::RequiresPython { location, .. } = self {
            report = report.location(location.clone());
        }
        report.hint = self.hint();
        report
    }
}
