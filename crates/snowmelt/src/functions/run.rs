//! `snowmelt run`: calls a function once without deploying it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use snowmelt_api::{
    CallMode, FileRefs, FunctionOptions, FunctionSpec, Invocation, InvokeRequest, LogEntry, Runtime,
};
use snowmelt_control::client::ApiClient;
use snowmelt_types::{ErrorReport, FunctionName, InvocationId};

use super::code::{files, python};
use super::deployment::code_and_handler;
use super::finish;
use crate::args::RunArgs;
use crate::config::Config;
use crate::input::{self, environment};
use crate::platform::with_platform;
use crate::terminal::{CommandOutcome, Printer, text};

/// Calls a function in a file and prints its result; its output goes to stderr.
///
/// # Errors
/// Errors of the platform, and `SM-0110` or `SM-0222` for wrong input.
pub fn run(args: &RunArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let spec = spec(args)?;
    let event = input::event(args.data.as_deref())?;
    let request = InvokeRequest { event, asynchronous: false };
    let label = format!("running {}", args.code);
    let (invocation, log) =
        with_platform(&args.platform, config, printer, &label, async |client| {
            client.deploy(&spec).await?;
            let called = call(client, &spec.name, &request).await;
            let removed = client.remove(&spec.name).await;
            let called = called?;
            removed.map(|()| called)
        })?;
    for line in log.iter().flat_map(|entry| entry.text.lines()) {
        printer.line(&text::visible(line));
    }
    finish(invocation, printer)
}

async fn call(
    client: &ApiClient,
    name: &FunctionName,
    request: &InvokeRequest,
) -> Result<(Invocation, Vec<LogEntry>), ErrorReport> {
    let invocation = client.invoke(name, request).await?;
    let log = client.logs(name, Some(&invocation.id), None).await?;
    Ok((invocation, log))
}

fn spec(args: &RunArgs) -> Result<FunctionSpec, ErrorReport> {
    let (path, handler) = code_and_handler(&args.code);
    let path = Path::new(path);
    let runtime = match path.extension().and_then(|extension| extension.to_str()) {
        Some("mjs" | "cjs" | "js") => Runtime::Node,
        Some("java" | "jar") => Runtime::Java,
        _ => Runtime::Python,
    };
    let mut packages = input::requirements(&args.needs)?;
    let code = match runtime {
        Runtime::Python => {
            let read = python::read(path)?;
            packages.extend(read.packages);
            read.code
        }
        _ => files::source(path)?,
    };
    let default = FunctionOptions::default();
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Ok(FunctionSpec {
        name: temporary_name()?,
        code,
        packed: None,
        handler: handler.to_owned(),
        runtime,
        command: Vec::new(),
        root: None,
        image: None,
        mode: CallMode::Event,
        packages,
        files: FileRefs::new(),
        secrets: BTreeMap::new(),
        options: FunctionOptions {
            memory: args.memory.unwrap_or(default.memory),
            cpu: args.cpu.unwrap_or(default.cpu),
            timeout_ms: args.timeout.map_or(default.timeout_ms, ms),
            environment: environment::given(&args.environment)?,
            ..default
        },
        tenant: None,
        expected: 1,
        ephemeral: true,
    })
}

/// A unique name.
fn temporary_name() -> Result<FunctionName, ErrorReport> {
    let name = format!("run-{}", InvocationId::new().as_str());
    name.parse()
        .map_err(|message: String| ErrorReport::new(snowmelt_types::Code::INTERNAL, message))
}
