//! `image diff`.

use snowmelt_api::{DifferenceRequest, ImageDifference, PartAmount, PathChange, SharedParts};
use snowmelt_image::source::Access;
use snowmelt_types::ByteSize;

use super::{asked, user_access, work};
use crate::args::{ImageDiffArgs, ShowFormat};
use crate::config::Config;
use crate::output::{TableLayout, draw, list};
use crate::terminal::{CommandOutcome, Printer, printer, text};

/// Exit code for images that differ.
const DIFFERENT: u8 = 1;

pub(super) fn diff(args: &ImageDiffArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let label = format!("comparing {} with {}", args.first, args.second);
    let found = match user_access::is_path(&args.first) || user_access::is_path(&args.second) {
        // Both are read by one process, so an image of the platform is read in the state folder.
        true => work(config, printer, &label, async |_| {
            let first = user_access::find(config, &args.first).await?;
            let second = user_access::find(config, &args.second).await?;
            snowmelt_control::images::compare(&first, &second, &Access::own()).await
        })?,
        false => {
            let first = args.first.clone();
            let second = args.second.clone();
            let access = user_access::access_of(config, &[&first, &second])?;
            let request = DifferenceRequest { first, second, access };
            asked(config, printer, &label, async |client, progress| {
                client.compare_images(&request, &mut |text| progress.set_label(text)).await
            })?
        }
    };
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

fn lines(found: &ImageDifference) -> String {
    let headings = ["", ">in both", ">bytes", ">first only", ">bytes", ">second only", ">bytes"];
    let rows = [row("blobs", &found.blobs), row("blocks", &found.blocks)];
    let change = |(path, change): &(String, PathChange)| {
        format!("{:<10} {}\n", word(*change), text::visible(path))
    };
    let changes: String = found.changes.iter().map(change).collect();
    let shares = draw(&headings, &rows, TableLayout::unlimited());
    if changes.is_empty() { shares } else { format!("{shares}\n{changes}") }
}

fn row(name: &str, shares: &SharedParts) -> Vec<Option<String>> {
    let of = |amount: &PartAmount| [text::count(amount.count), ByteSize(amount.bytes).to_string()];
    let cells = [&shares.both, &shares.first, &shares.second].into_iter().flat_map(of);
    std::iter::once(name.to_owned()).chain(cells).map(Some).collect()
}

fn word(change: PathChange) -> &'static str {
    match change {
        PathChange::Added => "added",
        PathChange::Removed => "removed",
        PathChange::Attributes => "attributes",
        PathChange::Content => "content",
    }
}
