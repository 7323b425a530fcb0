//! What can go wrong on a host.

use std::path::PathBuf;
use std::time::Duration;

use snowmelt_ledger::NoRoom;
use snowmelt_types::{ByteSize, Code, ErrorReport, Outcome, Report, Tenant};

use crate::ending;

/// A failure of the node.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A sandbox could not be made.
    #[error(transparent)]
    Sandbox(#[from] snowmelt_sandbox::Error),
    /// Packages could not be resolved or unpacked.
    #[error(transparent)]
    Package(#[from] snowmelt_package::Error),
    /// An image cannot be found, read or mounted.
    #[error(transparent)]
    Image(#[from] snowmelt_image::Error),
    /// An image is not a code package, or was made for another kind of host.
    #[error("the code package `{name}` cannot be used: {reason}")]
    CodePackage {
        /// As it was named.
        name: String,
        /// What is wrong.
        reason: String,
        /// What the user can do.
        hint: String,
    },
    /// A UDF's registration is wrong.
    #[error(transparent)]
    Udf(#[from] snowmelt_udf::Error),
    /// A sandbox broke the protocol, or its connection failed.
    #[error(transparent)]
    Wire(#[from] snowmelt_wire::Error),
    /// The user's own code failed.
    #[error(transparent)]
    Function(#[from] snowmelt_wire::FunctionFailure),
    /// A sandbox that runs user code came to its end.
    #[error("`{name}` {}", outcome.end)]
    Ended {
        /// The function or UDF.
        name: String,
        /// How.
        outcome: Outcome,
        /// How long it was held back by its processor limit, of a call whose time was up.
        throttled: Option<Duration>,
        /// The last lines that it wrote.
        output: Vec<String>,
    },
    /// An answer that is longer than it may be; nothing of it was read.
    #[error("`{name}` returned {bytes} of JSON, and {} are the most", crate::limits::MAX_ANSWER)]
    AnswerTooLong {
        /// The function.
        name: String,
        /// Its length.
        bytes: ByteSize,
    },
    /// The answers of other calls take all the memory that there is for them.
    #[error("the answers under way take the {most} that they may together")]
    AnswersFull {
        /// How much that is.
        most: ByteSize,
    },
    /// The answers of other calls of a tenant take all the memory that there is for them.
    #[error("the answers of tenant `{tenant}` under way take the {most} that they may together")]
    AnswersOfTenantFull {
        /// Whose answers.
        tenant: Tenant,
        /// How much that is.
        most: ByteSize,
    },
    /// The imports of a zygote left threads running: such a process cannot be forked safely.
    #[error("the imports started {threads} threads")]
    ImportsStartThreads {
        /// How many.
        threads: u32,
    },
    /// The set-up of a function failed in the zygote that should share its state.
    #[error("the shared set-up failed in the zygote")]
    SharedSetup,
    /// No zygote can be started for a tenant: those that live are all in use.
    #[error(
        "no zygote can be started for tenant `{tenant}`: it has {held} of {most} slots, and no \
         other makes room"
    )]
    ZygotesBusy {
        /// Whose function it is.
        tenant: Tenant,
        /// How many zygotes it has.
        held: u32,
        /// How many there can be of all tenants.
        most: u32,
    },
    /// The sandboxes of this host have all that it has for them.
    #[error("there is no room: {0}")]
    NoRoom(Box<NoRoom>),
    /// The program that runs queries is not installed.
    #[error("queries cannot run: there is no {}", path.display())]
    QueryProgramMissing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A file of a program that cannot be put where the program would find it.
    #[error("the file `{name}` of the code cannot be used: {reason}")]
    CodeFile {
        /// As it was named.
        name: String,
        /// Why.
        reason: String,
    },
    /// A file that travels with a function cannot be used.
    #[error("{reason}")]
    FunctionFile {
        /// Which, and why.
        reason: String,
    },
    /// The code of a deployed function was removed.
    #[error("the code of the function is gone: there is no {}", folder.display())]
    CodeMissing {
        /// Where it was.
        folder: PathBuf,
    },
    /// The network of a job could not be made or used.
    #[error(transparent)]
    Network(#[from] snowmelt_network::Error),
    /// What a job needs on its host could not be made.
    #[error("cannot {step}: {source}")]
    Job {
        /// What was being done.
        step: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// What a function's program needs is not there.
    #[error("{} cannot be run: {reason}", called(program))]
    Program {
        /// As it was named; empty if none was.
        program: String,
        /// What is wrong.
        reason: String,
        /// What the user can do.
        hint: String,
    },
    /// A program of the user's own has answered nothing until its time was up.
    #[error("`{name}` said nothing on its channel, not even that it is ready")]
    Silent {
        /// The function.
        name: String,
        /// How it ended.
        ended: Box<Error>,
    },
    /// A part of the node did not do what it promises: a defect of the platform.
    #[error("{what}")]
    Defect {
        /// What is wrong.
        what: &'static str,
    },
    /// A failure that has its report already.
    #[error("{}", .0.message)]
    Report(Box<ErrorReport>),
    /// A file of the state folder could not be read or written.
    #[error("cannot use {path}: {source}")]
    State {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl Error {
    /// Of a request for instances that gave fewer results than it had parts.
    pub const NOT_STARTED: Self =
        Self::Defect { what: "an instance was neither started nor refused" };

    /// Of a new sandbox, whose output nobody else can have.
    pub(crate) const OUTPUT_TAKEN: Self =
        Self::Defect { what: "the output of a sandbox is read already" };

    /// Whether a zygote ended, by itself or with its lane of the spawner, so that another one may
    /// do what this one did not.
    pub fn is_of_zygote(&self) -> bool {
        use snowmelt_sandbox::Error::{SpawnerLost, ZygoteLost};
        matches!(self, Self::Sandbox(ZygoteLost { .. } | SpawnerLost))
    }

    /// The last lines that an instance wrote before it ended.
    pub fn last_output(&self) -> String {
        match self {
            Self::Ended { output, .. } => output.join("\n"),
            Self::Silent { ended, .. } => ended.last_output(),
            _ => String::new(),
        }
    }
}

impl Report for Error {
    fn report(&self) -> ErrorReport {
        match self {
            Self::Sandbox(snowmelt_sandbox::Error::Start { step, source, .. })
                if is_program_of_user(step) =>
            {
                let message = format!("cannot {step}: {source}");
                let hint = if step.starts_with(MAKE_WRITABLE) {
                    "name a folder of the image with --writable, and give its files room with \
                     --scratch and --memory"
                } else {
                    "it must be for this kind of machine, and its interpreter and libraries in its \
                     root: link it statically, or give an image with --root"
                };
                ErrorReport::new(Code::FUNCTION_COMMAND, message).hint(hint)
            }
            Self::Sandbox(error) => error.report(),
            Self::Package(error) => error.report(),
            Self::Image(error) => error.report(),
            Self::Udf(error) => error.report(),
            Self::Wire(error) => error.report(),
            Self::Network(error) => error.report(),
            Self::Job { .. } => ErrorReport::new(Code::NETWORK_MAKE, self.to_string())
                .hint("run `snowmelt doctor` to see what this machine lacks"),
            Self::Defect { .. } => ErrorReport::new(Code::INTERNAL, self.to_string()),
            Self::Report(report) => (**report).clone(),
            Self::Function(error) => error.report(),
            Self::Ended { name, outcome, throttled, output } => {
                ending::report(name, outcome, *throttled, output)
            }
            Self::Silent { ended, .. } => ending::of_silent(ended.report(), self),
            Self::AnswerTooLong { .. } => ErrorReport::new(Code::FUNCTION_ANSWER, self.to_string())
                .hint("return less at once, or write it to storage and return its place"),
            Self::AnswersFull { .. } | Self::AnswersOfTenantFull { .. } => {
                ErrorReport::new(Code::ANSWERS_FULL, self.to_string())
                    .hint("call fewer functions with long answers at once, or try again")
            }
            Self::ImportsStartThreads { .. } | Self::SharedSetup => {
                ErrorReport::new(Code::FUNCTION_LOAD, self.to_string())
            }
            Self::ZygotesBusy { .. } => ErrorReport::new(Code::ZYGOTES_BUSY, self.to_string())
                .hint("try again when calls have ended; functions of one tenant share a zygote"),
            Self::NoRoom(no_room) => no_room_report(no_room, self.to_string()),
            Self::QueryProgramMissing { .. } => {
                ErrorReport::new(Code::QUERY_PROGRAM, self.to_string())
                    .hint("install it beside snowmelt, from the same package or build")
            }
            Self::CodeFile { .. } => ErrorReport::new(Code::OPTION, self.to_string()),
            Self::FunctionFile { .. } => ErrorReport::new(Code::FUNCTION_FILE, self.to_string()),
            Self::CodeMissing { .. } => {
                ErrorReport::new(Code::STATE, self.to_string()).hint("deploy the function again")
            }
            Self::Program { hint, .. } => {
                ErrorReport::new(Code::FUNCTION_COMMAND, self.to_string()).hint(hint.as_str())
            }
            Self::CodePackage { hint, .. } => {
                ErrorReport::new(Code::PACKAGE_CODE, self.to_string()).hint(hint.as_str())
            }
            Self::State { source, .. } if is_full(source) => {
                ErrorReport::new(Code::DISK_FULL, self.to_string())
                    .hint("free some space, or put the state elsewhere with SNOWMELT_STATE")
            }
            Self::State { .. } => ErrorReport::new(Code::STATE, self.to_string())
                .hint("`snowmelt doctor` says what is wrong with the state folder"),
        }
    }
}

fn called(program: &str) -> String {
    if program.is_empty() { "the function".to_owned() } else { format!("the program `{program}`") }
}

fn no_room_report(no_room: &NoRoom, message: String) -> ErrorReport {
    let hint = if no_room.is_too_large() {
        "ask for less memory, or give the sandboxes of this host more: sandboxes.memory \
         (SNOWMELT_SANDBOXES_MEMORY)"
    } else {
        "try again when other work has ended; `snowmelt top` shows what is reserved, and \
         sandboxes.memory (SNOWMELT_SANDBOXES_MEMORY) sets how much there is"
    };
    ErrorReport::new(Code::NO_ROOM, message).hint(hint)
}

/// How the sandbox names the step that makes folders writable.
const MAKE_WRITABLE: &str = "make /";

/// The platform's own worker is executed too.
fn is_program_of_user(step: &str) -> bool {
    if step == "enter the working folder" || step.starts_with(MAKE_WRITABLE) {
        return true;
    }
    step.strip_prefix("execute ").is_some_and(|program| program != crate::limits::QUERY_PROGRAM)
}

fn is_full(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Wire(error.into())
    }
}
