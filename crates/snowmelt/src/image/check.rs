//! `image verify`.

use serde::Serialize;
use snowmelt_image::Damage;
use snowmelt_types::{ByteSize, Code, ErrorReport};

use super::{short_name, work};
use crate::args::ImageVerifyArgs;
use crate::config::Config;
use crate::failure::Outcome;
use crate::printer::Printer;
use crate::{list, text};

/// A block, or a table of blocks, that does not match its digest.
#[derive(Serialize)]
struct Damaged {
    blob: String,
    /// None for the table of blocks.
    block: Option<usize>,
    reason: String,
}

pub(super) fn verify(args: &ImageVerifyArgs, config: &Config, printer: Printer) -> Outcome {
    let label = format!("verifying {}", args.image);
    let (found, verified) = work(config, printer, &label, async |_| {
        // The manifest and the configuration are compared with their digests while they are read.
        let found = snowmelt_node::find_image(&config.state.value, &args.image).await?;
        found.config().await?;
        let source = found.origin.source()?;
        let verified = snowmelt_image::verify_image(&found.image, &source).await?;
        Ok((found, verified))
    })?;
    let damages: Vec<Damaged> = verified.damages.iter().map(damaged).collect();
    let headings = ["blob", ">block", "reason"];
    let rows: Vec<_> = damages.iter().map(row).collect();
    list::print(args.output, &headings, &rows, &damages)?;
    let name = short_name(&found.name);
    if damages.is_empty() {
        let blocks = text::counted(verified.blocks, "block");
        printer.note(&format!("{name} is intact: {blocks}, {}", ByteSize(verified.bytes)));
        return Ok(0);
    }
    let places = text::counted(damages.len() as u64, "place");
    let message = format!("the image {name} is damaged in {places}");
    Err(ErrorReport::new(Code::IMAGE_DAMAGED, message)
        .hint("build the image again, or fetch it from another source")
        .into())
}

fn damaged(damage: &Damage) -> Damaged {
    Damaged { blob: damage.blob.to_string(), block: damage.block, reason: damage.reason.clone() }
}

fn row(damage: &Damaged) -> Vec<String> {
    let block = damage.block.map_or_else(|| "table".to_owned(), |block| block.to_string());
    vec![damage.blob.clone(), block, damage.reason.clone()]
}
