//! `snowmelt fn deploy`: builds a function specification from options and a path.

use std::path::Path;
use std::time::Duration;

use snowmelt_api::{CallMode, FileRefs, FunctionOptions, FunctionSpec, Runtime, no_code};
use snowmelt_types::ErrorReport;

use super::code::{files, program, python, shell};
use crate::args::{DeployArgs, RuntimeName};
use crate::config::Config;
use crate::input::{self, environment, function_files, secrets};
use crate::platform::with_platform;
use crate::terminal::{CommandOutcome, Printer};

/// Deploys a function.
///
/// # Errors
/// Errors of the platform, and `SM-0110` for code that cannot be read.
pub fn run(args: &DeployArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let files = function_files::collect(&args.files)?;
    let spec = FunctionSpec { files: function_files::refs(&files), ..spec(args)? };
    let label = format!("deploying {}", args.name);
    let platform = &args.platform;
    let deployed = with_platform(platform, config, printer, &label, async |client| {
        client.send_files(&files).await?;
        client.deploy(&spec).await
    })?;
    printer.note(&format!("deployed {} (version {})", deployed.name, deployed.version));
    Ok(0)
}

fn spec(args: &DeployArgs) -> Result<FunctionSpec, ErrorReport> {
    let secrets = secrets::given(&args.secrets, "--secret")?;
    let (path, handler) = args.code.as_deref().map_or(("", ""), code_and_handler);
    let path = Path::new(path);
    let is_script = match args.runtime {
        None => args.command.is_none() && shell::is_script(path),
        Some(named) => named == RuntimeName::Shell,
    };
    let mut packages = input::requirements(&args.needs)?;
    let (runtime, code) = match &args.packed {
        Some(_) => (Runtime::Python, no_code()),
        None => match program::runtime(args, path)? {
            // The code is in the image.
            Runtime::Command if args.code.is_none() => (Runtime::Command, no_code()),
            Runtime::Python if is_script => {
                (Runtime::Python, shell::read(path, handler, secrets.keys())?)
            }
            Runtime::Python => {
                let read = python::read(path)?;
                packages.extend(read.packages);
                (Runtime::Python, read.code)
            }
            other => (other, files::source(path)?),
        },
    };
    let default = FunctionOptions::default();
    let ms = |time: Option<Duration>, default: u64| time.map_or(default, millis);
    Ok(FunctionSpec {
        name: args.name.clone(),
        code,
        packed: args.packed.as_deref().map(program::place).transpose()?,
        handler: (if is_script { shell::HANDLER } else { handler }).to_owned(),
        runtime,
        command: program::command(args)?,
        root: program::root(args)?,
        image: program::image(args)?,
        mode: CallMode::Event,
        packages,
        files: FileRefs::new(),
        secrets,
        options: FunctionOptions {
            memory: args.memory.unwrap_or(default.memory),
            cpu: args.cpu.unwrap_or(default.cpu),
            timeout_ms: ms(args.timeout, default.timeout_ms),
            environment: environment::given(&args.environment)?,
            instances: args.instances.unwrap_or(default.instances),
            concurrency: args.concurrency.unwrap_or(default.concurrency),
            prewarmed: args.prewarmed.unwrap_or(default.prewarmed),
            pids: args.pids.unwrap_or(default.pids),
            scratch: args.scratch.unwrap_or(default.scratch),
            writable: args.writable.clone(),
            open_files: args.open_files.unwrap_or(default.open_files),
            log: args.log.unwrap_or(default.log),
            idle_ms: ms(args.idle, default.idle_ms),
            keep_ms: ms(args.keep, default.keep_ms),
        },
        tenant: None,
        expected: 1,
        ephemeral: false,
    })
}

/// `images.py:resize` names a callable, `app.jar:com.example.Resize` a class; a path may contain a
/// colon itself. Empty: the default of the runtime.
pub(crate) fn code_and_handler(code: &str) -> (&str, &str) {
    let identifier = |name: &str| {
        name.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '$'))
    };
    match code.rsplit_once(':') {
        Some((file, handler)) if !file.is_empty() && identifier(handler) => (file, handler),
        _ => (code, ""),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handler_follows_the_last_colon() {
        assert_eq!(code_and_handler("a.py"), ("a.py", ""));
        assert_eq!(code_and_handler("a.py:resize"), ("a.py", "resize"));
        assert_eq!(code_and_handler("a.jar:com.example.Resize"), ("a.jar", "com.example.Resize"));
        assert_eq!(code_and_handler("odd:dir/a.py"), ("odd:dir/a.py", ""));
        assert_eq!(code_and_handler("odd:dir/a.py:f"), ("odd:dir/a.py", "f"));
    }
}
