//! `snowmelt store copy`: the records of a platform, from its state folder to etcd or back.

use std::sync::Arc;

use serde_json::json;
use snowmelt_control::server::store_copy::{CopyStep, StoreEnd, copy_store};
use snowmelt_types::{ByteSize, ErrorReport};

use crate::args::{CopyStoreArgs, StoreCommand};
use crate::config::Config;
use crate::output::list;
use crate::platform;
use crate::terminal::{CommandOutcome, Printer, ProgressDisplay};

/// Copies a store, and prints how much it has.
///
/// # Errors
/// `SM-0541` for a target that is not empty, `SM-0504` and `SM-0529` for a store that is in use,
/// `SM-0540` for records of a newer version.
pub fn run(command: &StoreCommand, config: &Config, printer: Printer) -> CommandOutcome {
    let StoreCommand::Copy(args) = command;
    let from = end(&args.from, args, config)?;
    let to = end(&args.to, args, config)?;
    let user = config.user.as_ref().map(|user| &user.value);
    let done = platform::without_platform(printer, async || {
        let progress = ProgressDisplay::start(config.progress.value, printer, "opening the stores");
        let progress = Arc::new(progress);
        let shown = Arc::clone(&progress);
        let watch = Arc::new(move |step| shown.set_label(label(step)));
        copy_store(&from, &to, user, watch).await
    })?;
    let row = vec![done.records.to_string(), done.digest.to_string(), done.files.to_string()];
    let value = json!({
        "records": done.records,
        "digest": done.digest,
        "files": done.files,
        "files_digest": done.files_digest,
    });
    list::print(args.output, &[">records", "digest", ">files"], &[row], &value)?;
    printer.note(&format!("both stores have the same; start servers with {} only", args.to));
    Ok(0)
}

fn end(text: &str, args: &CopyStoreArgs, config: &Config) -> Result<StoreEnd, ErrorReport> {
    if !text.contains("://") {
        return Ok(StoreEnd::Folder(text.into()));
    }
    config.store.at(text, args.folder.as_deref()).map(StoreEnd::Etcd)
}

fn label(step: CopyStep) -> String {
    match step {
        CopyStep::Files(files, bytes) => format!("{files} files copied · {}", ByteSize(bytes)),
        CopyStep::Records(records, bytes) => {
            format!("{records} records copied · {}", ByteSize(bytes))
        }
        CopyStep::Compared(count) => format!("{count} compared"),
    }
}
