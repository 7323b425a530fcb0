//! `snowmelt image`: local block images, and their transfer from and to registries.
//!
//! | part | file |
//! |---|---|
//! | `convert`, `push`, `pull` | `transfer` |
//! | `build`: an image from a base, packages and code | `build`, `base`, `report` |
//! | progress and cancellation of blocking work | `watched` |
//! | `ls`, `inspect` | `show` |
//! | `warm`: prefetch of blocks into the cache | `warm` |
//! | `verify` | `check` |
//! | `diff` | `compare` |
//!
//! Boundary: these commands need no platform; the work itself is in `snowmelt_image`.

mod base;
mod build;
mod check;
mod compare;
mod report;
mod show;
mod transfer;
mod warm;
mod watched;

use std::sync::Arc;

use snowmelt_image::Result;
use snowmelt_image::source::{Layout, Reference, trust_authorities};
use snowmelt_node::{Found, ImageStores};
use snowmelt_types::{ByteSize, Report};

use crate::args::{ImageCommand, ImagePruneArgs, ImageRmArgs};
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::platform;
use crate::printer::{self, Printer};
use crate::progress::Progress;
use crate::signals::Signals;
use crate::text;

/// Runs one of the commands.
///
/// # Errors
/// `SM-1001` to `SM-1004` for images that are refused, damaged, missing or cannot be fetched.
pub fn run(command: &ImageCommand, config: &Config, printer: Printer) -> Outcome {
    if let Some(file) = &config.ca_file {
        trust_authorities(&file.value).map_err(failure)?;
    }
    match command {
        ImageCommand::Convert(args) => transfer::convert(args, config, printer),
        ImageCommand::Build(args) => build::build(args, config, printer),
        ImageCommand::Push(args) => transfer::push(args, config, printer),
        ImageCommand::Pull(args) => transfer::pull(args, config, printer),
        ImageCommand::Warm(args) => warm::warm(args, config, printer),
        ImageCommand::Ls(args) => show::ls(args, config, printer),
        ImageCommand::Inspect(args) => show::inspect(args, config, printer),
        ImageCommand::Verify(args) => check::verify(args, config, printer),
        ImageCommand::Diff(args) => compare::diff(args, config, printer),
        ImageCommand::Rm(args) => rm(args, config),
        ImageCommand::Prune(args) => prune(args, config, printer),
        ImageCommand::Key => key(config),
    }
}

fn rm(args: &ImageRmArgs, config: &Config) -> Outcome {
    let untagged = layout(config).and_then(|layout| layout.untag(&args.name.to_string()));
    untagged.map(|()| 0).map_err(failure)
}

fn prune(args: &ImagePruneArgs, config: &Config, printer: Printer) -> Outcome {
    let collect = |layout: Layout| snowmelt_image::collect(&layout, args.dry_run);
    let collected = layout(config).and_then(collect).map_err(failure)?;
    let blobs = text::counted(collected.blobs, "blob");
    let verb = if args.dry_run { "would remove" } else { "removed" };
    printer.note(&format!("{verb} {blobs}, {}", ByteSize(collected.bytes)));
    let collected = stores(config).raw().prune(args.dry_run).map_err(failure)?;
    if collected.blobs > 0 {
        let files = text::counted(collected.blobs, "raw file");
        printer.note(&format!("{verb} {files}, {}", ByteSize(collected.bytes)));
    }
    if args.blocks {
        // The lock of the cache guarantees that no mounted image needs its blocks.
        let cache = stores(config).cache().map_err(failure)?;
        let bytes = ByteSize(cache.bytes());
        if !args.dry_run {
            cache.empty();
        }
        printer.note(&format!("{verb} {bytes} of cached blocks of registry images"));
    }
    Ok(0)
}

fn key(config: &Config) -> Outcome {
    let key = stores(config).key().map_err(failure)?;
    printer::print(&format!("{key}\n"))?;
    Ok(0)
}

/// The stores of registry images on this machine.
fn stores(config: &Config) -> ImageStores {
    ImageStores::new(&config.state.value, config.images())
}

/// The folder of local images; created if it does not exist.
fn layout(config: &Config) -> Result<Layout> {
    Layout::create(&Found::local_folder(&config.state.value))
}

/// A name without the prefix `docker.io/library/`, which names without a registry get.
fn short_name(name: &str) -> &str {
    let short = name.strip_prefix("docker.io/").unwrap_or(name);
    short.strip_prefix("library/").unwrap_or(short)
}

fn display_name(name: &Reference) -> String {
    short_name(&name.to_string()).to_owned()
}

fn failure(error: snowmelt_image::Error) -> Failure {
    error.report().into()
}

/// Runs work in a runtime, with a progress display, until it ends or a signal arrives.
fn work<T>(
    config: &Config,
    printer: Printer,
    label: &str,
    work: impl AsyncFnOnce(&Arc<Progress>) -> Result<T>,
) -> std::result::Result<T, Failure> {
    work_of_several(config, printer, label, work)
}

/// [`work`] for errors of several crates.
fn work_of_several<T, E: Report>(
    config: &Config,
    printer: Printer,
    label: &str,
    work: impl AsyncFnOnce(&Arc<Progress>) -> std::result::Result<T, E>,
) -> std::result::Result<T, Failure> {
    let runtime = platform::server_runtime()?;
    let done = runtime.block_on(async {
        let signals = Signals::listen(printer)?;
        let progress = Arc::new(Progress::on_terminal(config.progress.value, printer, label));
        tokio::select! {
            biased;
            () = signals.token().cancelled() => Err(signals.failure()),
            done = work(&progress) => done.map_err(|error| error.report().into()),
        }
    });
    // A blocking read of a layer must not delay the exit.
    runtime.shutdown_background();
    done
}
