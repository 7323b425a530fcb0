//! `snowmelt prune`: removes what nothing uses, and shows what that freed.
//!
//! Boundary: the platform decides what is in use and removes the rest.

use snowmelt_api::{PlatformPruneRequest, PrunedPart};
use snowmelt_types::ByteSize;

use crate::args::PruneArgs;
use crate::config::Config;
use crate::output::list;
use crate::platform::with_platform;
use crate::terminal::{CommandOutcome, Printer};

/// Asks the platform to remove what nothing uses, or what that would be.
///
/// # Errors
/// The errors of the platform.
pub fn run(args: &PruneArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let request = PlatformPruneRequest { dry_run: !args.yes, results: args.results };
    let label = if args.yes { "pruning" } else { "looking for what is not used" };
    let parts = with_platform(&args.platform, config, printer, label, async |client| {
        client.prune(&request).await
    })?;
    let bytes = if args.yes { ">freed" } else { ">would free" };
    let rows: Vec<Vec<String>> = parts.iter().map(row).collect();
    list::print(args.output, &["part", ">items", bytes, "what", "stays because"], &rows, &parts)?;
    let all = ByteSize(parts.iter().map(|part| part.bytes).sum());
    printer.note(&match args.yes {
        true => format!("freed {all}"),
        false => format!("{all} can be freed; `snowmelt prune --yes` removes it"),
    });
    Ok(0)
}

fn row(part: &PrunedPart) -> Vec<String> {
    let what = match part.name.as_str() {
        "versions" => "earlier versions of functions of SQL",
        "results" => "results of asynchronous calls",
        "files" => "files of functions, broadcast values",
        "code" => "code that is not deployed",
        "packages" => "packages that no function has",
        "images" => "blobs that no image has",
        "raw" => "complete images that are not mounted",
        "blocks" => "cached blocks of images in registries",
        _ => "",
    };
    let size = ByteSize(part.bytes).to_string();
    let kept = part.kept.clone().unwrap_or_default();
    vec![part.name.clone(), part.items.to_string(), size, what.to_owned(), kept]
}
