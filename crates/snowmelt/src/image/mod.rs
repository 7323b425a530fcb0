//! `snowmelt image`: local block images, and their transfer from and to registries.
//!
//! | part | file |
//! |---|---|
//! | `convert`, `push`, `pull` | `transfer` |
//! | files, credentials and certificates of the user | `user_access` |
//! | `build`: an image from a base, packages and code | `build`, `base`, `report` |
//! | progress and cancellation of blocking work of `build` | `progress_watch` |
//! | `ls`, `inspect` | `show` |
//! | `warm`: prefetch of blocks into the cache | `warm` |
//! | `verify` | `check` |
//! | `diff` | `compare` |
//!
//! Boundary: the platform does the work. This process opens what only its user may open: archives,
//! layout folders, credentials. `build` works in the state folder itself.

mod base;
mod build;
mod check;
mod compare;
mod progress_watch;
mod report;
mod show;
mod transfer;
mod user_access;
mod warm;

use std::sync::Arc;

use snowmelt_api::PruneRequest;
use snowmelt_control::client::ApiClient;
use snowmelt_image::Result;
use snowmelt_image::source::{OciLayout, Reference, trust_authorities};
use snowmelt_node::TenantImages;
use snowmelt_types::{ByteSize, ErrorReport, Report};

use crate::args::{ImageCommand, ImagePruneArgs, ImageRmArgs};
use crate::config::Config;
use crate::platform;
use crate::terminal::{
    CommandFailure, CommandOutcome, Printer, ProgressDisplay, Signals, printer, text,
};

/// Runs one of the commands.
///
/// # Errors
/// `SM-1001` to `SM-1004` for images that are refused, damaged, missing or cannot be fetched.
pub fn run(command: &ImageCommand, config: &Config, printer: Printer) -> CommandOutcome {
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
        ImageCommand::Rm(args) => rm(args, config, printer),
        ImageCommand::Prune(args) => prune(args, config, printer),
        ImageCommand::Key => key(config, printer),
    }
}

fn rm(args: &ImageRmArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let name = args.name.to_string();
    platform::with_images(config, printer, async |client| client.remove_image(&name).await)?;
    Ok(0)
}

fn prune(args: &ImagePruneArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let request = PruneRequest { dry_run: args.dry_run, blocks: args.blocks };
    let pruned =
        platform::with_images(config, printer, async |client| client.prune_images(&request).await)?;
    let blobs = text::counted(pruned.blobs, "blob");
    let verb = if args.dry_run { "would remove" } else { "removed" };
    printer.note(&format!("{verb} {blobs}, {}", ByteSize(pruned.bytes)));
    if pruned.raw_files > 0 {
        let files = text::counted(pruned.raw_files, "raw file");
        printer.note(&format!("{verb} {files}, {}", ByteSize(pruned.raw_bytes)));
    }
    if let Some(bytes) = pruned.block_bytes {
        let bytes = ByteSize(bytes);
        printer.note(&format!("{verb} {bytes} of cached blocks of registry images"));
    }
    Ok(0)
}

fn key(config: &Config, printer: Printer) -> CommandOutcome {
    let found = platform::with_images(config, printer, async |client| client.image_key().await)?;
    printer::print(&format!("{}\n", found.key))?;
    Ok(0)
}

/// The folder of local images of the command's tenant; created if it does not exist.
fn layout(config: &Config) -> Result<OciLayout> {
    OciLayout::create(&tenant_images(config).layout_folder())
}

/// The images of the tenant for which the command acts.
fn tenant_images(config: &Config) -> TenantImages {
    let tenant = config.tenant.as_ref().map(|tenant| tenant.value.clone()).unwrap_or_default();
    TenantImages::new(&config.state.value, &tenant)
}

/// A name without the prefix `docker.io/library/`, which names without a registry get.
fn short_name(name: &str) -> &str {
    let short = name.strip_prefix("docker.io/").unwrap_or(name);
    short.strip_prefix("library/").unwrap_or(short)
}

fn display_name(name: &Reference) -> String {
    short_name(&name.to_string()).to_owned()
}

fn failure(error: snowmelt_image::Error) -> CommandFailure {
    error.report().into()
}

/// Asks the platform for work on images, with a progress display.
fn asked<T>(
    config: &Config,
    printer: Printer,
    label: &str,
    work: impl AsyncFnOnce(&ApiClient, &ProgressDisplay) -> Result<T, ErrorReport>,
) -> Result<T, CommandFailure> {
    platform::with_images(config, printer, async |client| {
        let progress = ProgressDisplay::on_terminal(config.progress.value, printer, label);
        work(client, &progress).await
    })
}

/// Runs work in this process, with a progress display, until it ends or a signal arrives.
fn work<T>(
    config: &Config,
    printer: Printer,
    label: &str,
    work: impl AsyncFnOnce(&Arc<ProgressDisplay>) -> std::result::Result<T, ErrorReport>,
) -> std::result::Result<T, CommandFailure> {
    if let Some(file) = &config.ca_file {
        trust_authorities(&file.value).map_err(failure)?;
    }
    let runtime = platform::server_runtime()?;
    let done = runtime.block_on(async {
        let signals = Signals::listen(printer)?;
        let progress =
            Arc::new(ProgressDisplay::on_terminal(config.progress.value, printer, label));
        tokio::select! {
            biased;
            () = signals.token().cancelled() => Err(signals.failure()),
            done = work(&progress) => done.map_err(CommandFailure::from),
        }
    });
    // A blocking read of a layer must not delay the exit.
    runtime.shutdown_background();
    done
}
