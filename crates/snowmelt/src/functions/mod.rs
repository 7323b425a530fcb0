//! `snowmelt fn`, `udf`, `burst` and `run`: functions of users.
//!
//! | member | job |
//! |---|---|
//! | here | `fn`: list, call, show and remove functions |
//! | `code` | the code of a function, from files |
//! | `deployment` | `fn deploy`: a function from options and a path |
//! | `package` | `fn pack`: a code package of a Python file |
//! | `template` | `fn new`: a folder with an example |
//! | `run` | `run`: one call without a deployment |
//! | `burst` | `fn burst` and `burst`: concurrent calls |
//! | `udfs` | `udf`: functions that SQL calls by name |
//! | `answer` | the answer of a function, as printed |
//! | `logs`, `log_stream` | logs as printed: those of ended calls, and each as a call ends |

mod answer;
pub mod burst;
mod code;
mod deployment;
mod log_stream;
mod logs;
mod package;
pub mod run;
mod template;
pub mod udfs;

use std::time::Duration;

use snowmelt_api::{
    ColdReason, FunctionSummary, Invocation, InvocationState, InvokeRequest, LogEntry, Runtime,
};
use snowmelt_control::client::ApiClient;
use snowmelt_types::{Code, ErrorReport, InvocationId};

use crate::args::{
    CallArgs, FunctionCommand, ListArgs, ListFormat, LogArgs, RemoveArgs, ResultArgs, ShowFormat,
    ShowFunctionArgs,
};
use crate::config::Config;
use crate::input::{self, environment};
use crate::output::{TableLayout, draw, list};
use crate::platform::{self, CommandPlatform, with_platform};
use crate::terminal::{CommandOutcome, Printer, ProgressDisplay, printer, text};

/// First and longest interval between two polls of `fn result --wait`.
const POLL_INTERVALS: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];
/// Exit code of `fn result` for a call that is still running.
const STILL_RUNNING: u8 = 3;

/// Runs one of the commands.
///
/// # Errors
/// Errors of the platform, and `SM-0110` or `SM-0222` for wrong input.
pub fn run(command: &FunctionCommand, config: &Config, printer: Printer) -> CommandOutcome {
    match command {
        FunctionCommand::Deploy(args) => deployment::run(args, config, printer),
        FunctionCommand::Pack(args) => package::run(args, config, printer),
        FunctionCommand::New(args) => template::run(args, printer),
        FunctionCommand::Ls(args) => ls(args, config, printer),
        FunctionCommand::Show(args) => show(args, config, printer),
        FunctionCommand::Call(args) => call(args, config, printer),
        FunctionCommand::Burst(args) => burst::run(args, config, printer),
        FunctionCommand::Result(args) => result(args, config, printer),
        FunctionCommand::Logs(args) => logs(args, config, printer),
        FunctionCommand::Rm(args) => rm(args, config, printer),
    }
}

fn ls(args: &ListArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let mut functions =
        with_platform(&args.platform, config, printer, "listing", async |client| {
            client.functions().await
        })?;
    functions.iter_mut().for_each(environment::hide);
    let shown = match args.output {
        ListFormat::Json => list::json(&functions)?,
        ListFormat::Csv => list::csv(&HEADINGS, &functions.iter().map(row).collect::<Vec<_>>()),
        ListFormat::Table => table(&functions),
    };
    printer::print(&shown)?;
    if functions.is_empty() {
        printer.note("no functions; deploy one with `snowmelt fn deploy NAME FILE`");
    }
    Ok(0)
}

const HEADINGS: [&str; 9] = [
    "name",
    "runtime",
    "handler",
    "memory",
    "cpu",
    "timeout",
    ">instances",
    "packages",
    "deployed",
];

fn table(functions: &[FunctionSummary]) -> String {
    if functions.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = functions
        .iter()
        .map(|function| {
            let mut cells = row(function);
            cells[8] = text::ago(function.deployed_ms);
            cells.into_iter().map(Some).collect()
        })
        .collect();
    draw(&HEADINGS, &rows, TableLayout::stdout(0))
}

fn row(function: &FunctionSummary) -> Vec<String> {
    let options = &function.options;
    vec![
        function.name.to_string(),
        runtime(function.runtime).to_owned(),
        function.handler.clone(),
        options.memory.to_string(),
        options.cpu.to_string(),
        text::setting(Duration::from_millis(options.timeout_ms)),
        function.instances.to_string(),
        function.packages.join(" "),
        text::moment(function.deployed_ms),
    ]
}

fn runtime(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Python => "python",
        Runtime::Node => "node",
        Runtime::Java => "java",
        Runtime::Go => "go",
        Runtime::Command => "command",
    }
}

fn show(args: &ShowFunctionArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let label = format!("showing {}", args.name);
    let mut function = with_platform(&args.platform, config, printer, &label, async |client| {
        client.function(&args.name).await
    })?;
    if !args.values {
        environment::hide(&mut function);
    }
    printer::print(&match args.output {
        ShowFormat::Json => list::json(&function)?,
        ShowFormat::Table => lines(&function),
    })?;
    Ok(0)
}

/// All settings, given or default, one per line; empty ones are omitted.
fn lines(function: &FunctionSummary) -> String {
    let options = &function.options;
    let time = |ms| text::setting(Duration::from_millis(ms));
    let root = function.root.as_ref().map(|root| root.display().to_string());
    let variables = options.environment.iter().map(|(name, value)| format!("{name}={value}"));
    let folders = options.writable.iter().map(|folder| folder.display().to_string());
    let secrets = function.secrets.iter().map(|(name, reference)| format!("{name}={reference}"));
    let rows = [
        ("name", function.name.to_string()),
        ("version", function.version.clone()),
        ("deployed", text::ago(function.deployed_ms)),
        ("runtime", runtime(function.runtime).to_owned()),
        ("handler", function.handler.clone()),
        ("command", function.command.join(" ")),
        ("root", root.unwrap_or_default()),
        ("image", function.image.clone().unwrap_or_default()),
        ("package", function.packed.clone().unwrap_or_default()),
        ("packages", function.packages.join(" ")),
        ("secrets", secrets.collect::<Vec<_>>().join(" ")),
        ("environment", variables.collect::<Vec<_>>().join(" ")),
        ("tenant", function.tenant.to_string()),
        ("memory", options.memory.to_string()),
        ("cpu", options.cpu.to_string()),
        ("timeout", time(options.timeout_ms)),
        ("instances", format!("{} alive, at most {}", function.instances, options.instances)),
        ("concurrency", options.concurrency.to_string()),
        ("prewarmed", options.prewarmed.to_string()),
        ("idle", time(options.idle_ms)),
        ("keep", time(options.keep_ms)),
        ("scratch", options.scratch.to_string()),
        ("writable", folders.collect::<Vec<_>>().join(" ")),
        ("pids", options.pids.to_string()),
        ("open files", options.open_files.to_string()),
        ("log", options.log.to_string()),
    ];
    let present = rows.iter().filter(|(_, value)| !value.is_empty());
    present.map(|(name, value)| format!("{name:<12} {}\n", text::visible(value))).collect()
}

fn call(args: &CallArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let event = input::event(args.data.as_deref())?;
    let request = InvokeRequest { event, asynchronous: args.asynchronous };
    if args.asynchronous && args.platform.server.is_none() {
        needs_server(config)?;
    }
    let label = format!("calling {}", args.name);
    let invocation = with_platform(&args.platform, config, printer, &label, async |client| {
        client.invoke(&args.name, &request).await
    })?;
    if args.asynchronous {
        printer::print(&format!("{}\n", invocation.id))?;
        return Ok(0);
    }
    finish(invocation, printer)
}

fn needs_server(config: &Config) -> Result<(), ErrorReport> {
    if platform::answers(&config.socket.value)? {
        return Ok(());
    }
    let message = "an asynchronous call needs a server that outlives this command";
    Err(ErrorReport::new(Code::SERVER_UNREACHABLE, message)
        .hint("start one with `snowmelt up`, or call without --async"))
}

fn result(args: &ResultArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let id = InvocationId::from(args.id.clone());
    let platform = CommandPlatform::server(args.server.as_deref(), config)?;
    let invocation = platform::with(platform, printer, async |client, _| {
        let label = format!("waiting for {id}");
        let _progress = ProgressDisplay::on_terminal(config.progress.value, printer, label);
        poll(client, &id, args.wait).await
    })?;
    finish(invocation, printer)
}

async fn poll(
    client: &ApiClient,
    id: &InvocationId,
    wait: bool,
) -> Result<Invocation, ErrorReport> {
    let [mut pause, longest] = POLL_INTERVALS;
    loop {
        let invocation = client.invocation(id).await?;
        if !wait || invocation.state != InvocationState::Running {
            return Ok(invocation);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}

/// Prints the result of a finished call, or returns the error of a failed one.
pub(crate) fn finish(invocation: Invocation, printer: Printer) -> CommandOutcome {
    invocation.warnings.iter().for_each(|warning| printer.warning(warning));
    match invocation.state {
        InvocationState::Running => {
            printer.line(&format!("{} is still running (--wait waits for it)", invocation.id));
            Ok(STILL_RUNNING)
        }
        InvocationState::Failed => {
            let silent = || ErrorReport::new(Code::PROTOCOL, "the call failed without a reason");
            Err(invocation.error.unwrap_or_else(silent).into())
        }
        InvocationState::Succeeded => {
            printer::print(&list::value(&answer::value(&invocation.result.unwrap_or_default()))?)?;
            let wall = text::micros(invocation.wall_us.unwrap_or_default());
            let start = if invocation.cold { "cold" } else { "warm" };
            let why = invocation.cold_because.map(|reason| format!(": {}", cold_reason(reason)));
            let host = invocation.host.map(|host| format!(" on {host}"));
            printer.note(&format!(
                "{} · {wall}{} · {start}{}",
                invocation.id,
                host.unwrap_or_default(),
                why.unwrap_or_default()
            ));
            Ok(0)
        }
    }
}

fn cold_reason(reason: ColdReason) -> String {
    let hint = reason.hint.map(|hint| format!(" ({hint})"));
    reason.text + &hint.unwrap_or_default()
}

fn logs(args: &LogArgs, config: &Config, printer: Printer) -> CommandOutcome {
    if args.follow {
        return log_stream::run(args, config, printer, log_text);
    }
    let id = args.invocation.clone().map(InvocationId::from);
    let entries = with_platform(&args.platform, config, printer, "reading logs", async |client| {
        client.logs(&args.name, id.as_ref(), args.tail).await
    })?;
    logs::print(&entries, args.output, log_text)?;
    if entries.is_empty() {
        printer.note(&match &id {
            Some(id) => format!("no log is kept for {id}"),
            None => format!("{} has written nothing", args.name),
        });
    }
    Ok(0)
}

fn log_text(entry: &LogEntry) -> String {
    let cold = entry.cold_because.as_ref().map(|why| format!(" cold: {why}"));
    let cold = cold.unwrap_or_default();
    let heading = format!("{} {}{cold}", entry.invocation, text::moment(entry.accepted_ms));
    let mut shown = logs::entry(&heading, &entry.text);
    if entry.dropped_bytes > 0 {
        shown
            .push_str(&format!("… {} more bytes were dropped\n", text::count(entry.dropped_bytes)));
    }
    shown
}

fn rm(args: &RemoveArgs, config: &Config, printer: Printer) -> CommandOutcome {
    with_platform(&args.platform, config, printer, "removing", async |client| {
        client.remove(&args.name).await
    })?;
    printer.note(&format!("removed {}", args.name));
    Ok(0)
}
