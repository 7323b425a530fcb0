//! The errors of a node, and the reports that users read of them.

use std::path::PathBuf;
use std::time::Duration;

use snowmelt_ledger::NoRoom;
use snowmelt_types::{ByteSize, Code, ErrorReport, Outcome, Report, Tenant};

use crate::process::end;

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
        /// The name of the package's image, as the user wrote it.
        name: String,
        /// The reason why the package cannot be used.
        reason: String,
        /// Advice on what the user can do.
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
        /// The name of the function or UDF.
        name: String,
        /// The way in which the sandbox ended, such as an exit status or a limit.
        outcome: Outcome,
        /// How long the processor limit held the function back, for a call whose time was up.
        throttled: Option<Duration>,
        /// The last lines that the sandbox wrote.
        output: Vec<String>,
    },
    /// The answer of a function is longer than it may be; nothing of it was read.
    #[error(
        "`{name}` returned {bytes} of JSON, and {} are the most",
        crate::process::limits::MAX_ANSWER
    )]
    AnswerTooLong {
        /// The name of the function.
        name: String,
        /// The length of the answer.
        bytes: ByteSize,
    },
    /// The answers of other calls take all the memory that there is for answers.
    #[error("the answers under way take the {most} that they may together")]
    AnswersFull {
        /// The most memory of all answers under way.
        most: ByteSize,
    },
    /// The answers of other calls of one tenant take all the memory that there is for that tenant's
    /// answers.
    #[error("the answers of tenant `{tenant}` under way take the {most} that they may together")]
    AnswersOfTenantFull {
        /// The tenant whose answers take the memory.
        tenant: Tenant,
        /// The most memory of all answers under way of one tenant.
        most: ByteSize,
    },
    /// The imports of a zygote left threads running: such a process cannot be forked safely.
    #[error("the imports started {threads} threads")]
    ImportsStartThreads {
        /// The number of threads that the imports left running.
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
        /// The tenant whose function needs a zygote.
        tenant: Tenant,
        /// The number of zygotes that the tenant has.
        held: u32,
        /// The most zygotes that there can be, of all tenants together.
        most: u32,
    },
    /// The sandboxes of this host have reserved all the memory, processors or places that it has
    /// for them.
    #[error("there is no room: {0}")]
    NoRoom(Box<NoRoom>),
    /// The program that runs queries is not installed.
    #[error("queries cannot run: there is no {}", path.display())]
    QueryProgramMissing {
        /// The path at which the program was looked for.
        path: PathBuf,
    },
    /// A file of a program cannot be put where the program would find it.
    #[error("the file `{name}` of the code cannot be used: {reason}")]
    CodeFile {
        /// The name of the file, as the user wrote it.
        name: String,
        /// The reason why the file cannot be used.
        reason: String,
    },
    /// A file that travels with a function cannot be used.
    #[error("{reason}")]
    FunctionFile {
        /// A sentence that names the file, and says why it cannot be used.
        reason: String,
    },
    /// The code of a deployed function was removed.
    #[error("the code of the function is gone: there is no {}", folder.display())]
    CodeMissing {
        /// The folder in which the code was.
        folder: PathBuf,
    },
    /// The network of a job could not be made or used.
    #[error(transparent)]
    Network(#[from] snowmelt_network::Error),
    /// The kernel refused a step of setting up a job on its host, such as finding control groups.
    #[error("cannot {step}: {source}")]
    Job {
        /// The step that failed, as it follows "cannot".
        step: String,
        /// The error of the kernel.
        source: std::io::Error,
    },
    /// The platform of an ordinary user cannot do this.
    #[error("the platform of an ordinary user cannot {what}: that needs root")]
    NeedsRoot {
        /// The refused work, as a verb phrase.
        what: &'static str,
    },
    /// The program, interpreter or tool that runs a function is missing or cannot be used.
    #[error("{} cannot be run: {reason}", called(program))]
    Program {
        /// The program, as the user named it; empty if the user named none.
        program: String,
        /// The reason why the program cannot be run.
        reason: String,
        /// Advice on what the user can do.
        hint: String,
    },
    /// A program of the user's own has not answered anything by the time it had for that.
    #[error("`{name}` said nothing on its channel, not even that it is ready")]
    Silent {
        /// The name of the function.
        name: String,
        /// The end of the program.
        ended: Box<Error>,
    },
    /// A part of the node did not do what it promises: a defect of the platform.
    #[error("{what}")]
    Defect {
        /// A sentence that says what is wrong.
        what: &'static str,
    },
    /// A failure whose report was made elsewhere and is passed on as it is.
    #[error("{}", .0.message)]
    Report(Box<ErrorReport>),
    /// A file of the state folder could not be read or written.
    #[error("cannot use {path}: {source}")]
    State {
        /// The file or folder that could not be used.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

impl Error {
    /// The error for a request for instances that gave fewer results than it had parts.
    pub const NOT_STARTED: Self =
        Self::Defect { what: "an instance was neither started nor refused" };

    /// The error for a new sandbox whose output somebody else reads, which cannot be.
    pub(crate) const OUTPUT_TAKEN: Self =
        Self::Defect { what: "the output of a sandbox is read already" };

    /// Returns whether a zygote ended, by itself or with its lane of the spawner, so that another
    /// zygote may do what the ended one did not.
    pub fn is_of_zygote(&self) -> bool {
        use snowmelt_sandbox::Error::{SpawnerLost, ZygoteLost};
        matches!(self, Self::Sandbox(ZygoteLost { .. } | SpawnerLost))
    }

    /// Returns the last lines that an instance wrote before it ended; empty for other errors.
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
            Self::NeedsRoot { .. } => ErrorReport::new(Code::ROOTLESS, self.to_string())
                .hint("have an administrator run the server: `sudo snowmelt up`"),
            Self::Defect { .. } => ErrorReport::new(Code::INTERNAL, self.to_string()),
            Self::Report(report) => (**report).clone(),
            Self::Function(error) => error.report(),
            Self::Ended { name, outcome, throttled, output } => {
                end::report(name, outcome, *throttled, output)
            }
            Self::Silent { ended, .. } => end::of_silent(ended.report(), self),
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

/// How the step that makes folders writable begins in errors of the sandbox.
const MAKE_WRITABLE: &str = "make /";

/// Returns whether a step of a start is about the user's own program, folders or working folder:
/// the platform's own worker is executed too.
fn is_program_of_user(step: &str) -> bool {
    if step == "enter the working folder" || step.starts_with(MAKE_WRITABLE) {
        return true;
    }
    step.strip_prefix("execute ")
        .is_some_and(|program| program != crate::process::limits::QUERY_PROGRAM)
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
