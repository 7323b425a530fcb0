//! `image diff`.

use snowmelt_image::diff::{Amount, Change, Difference, Readable, Shares};
use snowmelt_types::ByteSize;

use super::work;
use crate::args::{ImageDiffArgs, ShowFormat};
use crate::config::Config;
use crate::failure::Outcome;
use crate::output::{Layout, draw};
use crate::printer::{self, Printer};
use crate::{list, text};

/// Exit code for images that differ.
const DIFFERENT: u8 = 1;

pub(super) fn diff(args: &ImageDiffArgs, config: &Config, printer: Printer) -> Outcome {
    let label = format!("comparing {} with {}", args.first, args.second);
    let found = work(config, printer, &label, async |_| {
        let open = async |name: &str| {
            let found = snowmelt_node::find_image(&config.state.value, name).await?;
            Readable::new(&found.image, found.origin.source()?)
        };
        let (first, second) = (open(&args.first).await?, open(&args.second).await?);
        snowmelt_image::diff::diff(&first, &second).await
    })?;
    printer::print(&match args.output {
        ShowFormat::Json => list::json(&found)?,
        ShowFormat::Table => lines(&found),
    })?;
    printer.note(&format!(
        "{} equal, {} not",
        text::counted(found.same, "path"),
        text::count(found.changes.len() as u64)
    ));
    Ok(if found.changes.is_empty() { 0 } else { DIFFERENT })
}

fn lines(found: &Difference) -> String {
    let headings = ["", ">in both", ">bytes", ">first only", ">bytes", ">second only", ">bytes"];
    let rows = [row("blobs", &found.blobs), row("blocks", &found.blocks)];
    let change = |(path, change): &(String, Change)| {
        format!("{:<10} {}\n", word(*change), text::visible(path))
    };
    let changes: String = found.changes.iter().map(change).collect();
    let shares = draw(&headings, &rows, Layout::unlimited());
    if changes.is_empty() { shares } else { format!("{shares}\n{changes}") }
}

fn row(name: &str, shares: &Shares) -> Vec<Option<String>> {
    let of = |amount: &Amount| [text::count(amount.count), ByteSize(amount.bytes).to_string()];
    let cells = [&shares.both, &shares.first, &shares.second].into_iter().flat_map(of);
    std::iter::once(name.to_owned()).chain(cells).map(Some).collect()
}

fn word(change: Change) -> &'static str {
    match change {
        Change::Added => "added",
        Change::Removed => "removed",
        Change::Attributes => "attributes",
        Change::Content => "content",
    }
}
