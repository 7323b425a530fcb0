//! The errors of code that defines UDFs.

use snowmelt_types::{Code, ErrorReport, Report, SourceLocation};

/// The reason why code cannot be registered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The source is not valid Python, or its list of packages cannot be read.
    #[error("`{}` cannot be read: {reason}", location.file)]
    Source {
        /// The location in the source.
        location: SourceLocation,
        /// The line itself.
        line: Option<String>,
        /// The reason, for example Python's syntax error.
        reason: String,
    },
    /// The interpreter that should parse the source failed.
    #[error("Python cannot read the code: {reason}")]
    Interpreter {
        /// The reason.
        reason: String,
    },
    /// The signature cannot be used in SQL.
    #[error("`{function}` has no usable signature: {reason}")]
    Signature {
        /// The function.
        function: String,
        /// The fault in the signature.
        reason: String,
    },
    /// Two functions have the same name.
    #[error("two functions are named `{function}`")]
    Twice {
        /// The name.
        function: String,
    },
    /// The code defines no UDF.
    #[error("the code defines no function for SQL")]
    NoFunction,
    /// The code is the files of a program, but must be Python code.
    #[error("expected Python code, but the code is the files of a program")]
    NotPython,
    /// A folder of code has no such file, or it is not text.
    #[error("the folder of code has no Python file `{file}`")]
    NoMainFile {
        /// The file that should define the function.
        file: String,
    },
    /// The function was pickled by another version of Python than it asks for.
    #[error("the function was pickled by Python {pickled}, and asks for {wanted}")]
    PickleVersion {
        /// `major.minor` of the caller.
        pickled: String,
        /// The requirements of Python.
        wanted: String,
    },
}

impl Error {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Source { reason, .. } if reason.starts_with("packages=") => {
                "write for example @sm.udf(packages=[\"phonenumbers==8.13.*\"]): the list is read \
                 without running the code"
            }
            Self::Source { reason, .. } if reason.starts_with("python=") => {
                "write for example @sm.udf(python=\"3.13\"): the version is read without running the \
                 code"
            }
            Self::Source { .. } => return None,
            Self::Interpreter { .. } => "run `snowmelt doctor`",
            Self::Signature { .. } => {
                "annotate every argument and the result, for example `def f(x: float) -> str`"
            }
            Self::Twice { .. } => "give one of them another name with @sm.udf(name=\"…\")",
            Self::NoFunction => "put @sm.udf before a function, or @sm.aggregate before a class",
            Self::NotPython => "name the program's runtime (fn deploy --runtime or --command)",
            Self::NoMainFile { .. } => "name the file that defines the function",
            Self::PickleVersion { .. } => {
                "call it from the version that it asks for, or write python=\"…\" in the decorator \
                 of a function at the top level of a file: its source is sent then"
            }
        };
        Some(hint.to_owned())
    }
}

impl Report for Error {
    fn report(&self) -> ErrorReport {
        let code = match self {
            Self::Source { .. }
            | Self::PickleVersion { .. }
            | Self::NotPython
            | Self::NoMainFile { .. }
            | Self::NoFunction => Code::FUNCTION_LOAD,
            Self::Interpreter { .. } => Code::PACKAGE_TOOL,
            Self::Signature { .. } | Self::Twice { .. } => Code::FUNCTION_SIGNATURE,
        };
        let mut report = ErrorReport::new(code, self.to_string());
        if let Self::Source { location, line, .. } = self {
            report = report.location(location.clone()).excerpt(line.clone());
        }
        report.hint = self.hint();
        report
    }
}

/// Refuses a source file at a line.
pub(crate) fn refused(
    file: &str,
    text: &str,
    reason: String,
    line: u32,
    within: Option<String>,
) -> Error {
    let shown = text.lines().nth(line.saturating_sub(1) as usize).map(str::trim);
    Error::Source {
        location: SourceLocation { file: file.to_owned(), line, within },
        line: shown.filter(|line| !line.is_empty()).map(|line| line.chars().take(200).collect()),
        reason,
    }
}
