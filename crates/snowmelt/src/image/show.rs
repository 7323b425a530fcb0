//! `image ls` and `inspect`.

use serde::Serialize;
use snowmelt_image::block::{BlobSummary, OciDigest};
use snowmelt_image::{Image, Result, exchange};
use snowmelt_node::{Found, ImageOrigin};
use snowmelt_types::ByteSize;

use super::{failure, layout, short_name, work};
use crate::args::{ImageInspectArgs, ImageLsArgs, ShowFormat};
use crate::config::Config;
use crate::failure::Outcome;
use crate::output::{Layout, draw};
use crate::printer::{self, Printer};
use crate::{list, text};

/// An image in the list.
#[derive(Serialize)]
struct Listed {
    name: String,
    manifest: OciDigest,
    /// Stored bytes; a shared layer counts in each image.
    bytes: u64,
    raw_bytes: u64,
    layers: usize,
    block_size: u64,
    original: Option<OciDigest>,
}

pub(super) fn ls(args: &ImageLsArgs, config: &Config, printer: Printer) -> Outcome {
    let mut images = listed(config).map_err(failure)?;
    images.sort_by(|a, b| a.name.cmp(&b.name));
    let headings = ["name", "manifest", ">stored", ">raw", ">layers", ">block"];
    let rows: Vec<_> = images.iter().map(row).collect();
    list::print(args.output, &headings, &rows, &images)?;
    if images.is_empty() {
        printer.note("no images; make one with `snowmelt image convert` or `image build`");
    }
    Ok(0)
}

fn listed(config: &Config) -> Result<Vec<Listed>> {
    let layout = layout(config)?;
    let one = |(name, manifest): (Option<String>, _)| {
        let image = exchange::read(&layout, &manifest)?;
        let (bytes, raw_bytes) = sizes(&image);
        Ok(Listed {
            name: short_name(&name.unwrap_or_default()).to_owned(),
            manifest: manifest.digest,
            bytes,
            raw_bytes,
            layers: image.layers.len(),
            block_size: image.metadata.block_size.bytes() as u64,
            original: image.original.map(|original| original.digest),
        })
    };
    layout.list()?.into_iter().map(one).collect()
}

fn sizes(image: &Image) -> (u64, u64) {
    image.blobs().fold((0, 0), |(bytes, raw), blob| (bytes + blob.size, raw + blob.raw_size))
}

fn row(image: &Listed) -> Vec<String> {
    vec![
        image.name.clone(),
        short(&image.manifest),
        ByteSize(image.bytes).to_string(),
        ByteSize(image.raw_bytes).to_string(),
        image.layers.to_string(),
        ByteSize(image.block_size).to_string(),
    ]
}

fn short(digest: &OciDigest) -> String {
    digest.hex()[..12].to_owned()
}

/// An image with all its details.
#[derive(Serialize)]
struct Inspected {
    name: String,
    manifest: OciDigest,
    origin: ImageOrigin,
    original: Option<OciDigest>,
    blobs: Vec<Blob>,
    config: serde_json::Value,
}

#[derive(Serialize)]
struct Blob {
    part: String,
    digest: OciDigest,
    root: String,
    bytes: u64,
    raw_bytes: u64,
    blocks: u64,
    block_size: u64,
}

pub(super) fn inspect(args: &ImageInspectArgs, config: &Config, printer: Printer) -> Outcome {
    let label = format!("looking for {}", args.image);
    let (found, text) = work(config, printer, &label, async |_| {
        let found = snowmelt_node::find_image(&config.state.value, &args.image).await?;
        let text = found.config().await?;
        Ok((found, text))
    })?;
    let inspected = inspected(found, &text);
    printer::print(&match args.output {
        ShowFormat::Json => list::json(&inspected)?,
        ShowFormat::Table => lines(&inspected),
    })?;
    Ok(0)
}

fn inspected(found: Found, config: &[u8]) -> Inspected {
    let part = |index: usize| match index {
        0 => "metadata".to_owned(),
        layer => format!("layer {layer}"),
    };
    let blobs = found.image.blobs().enumerate().map(|(index, blob)| of_blob(part(index), blob));
    Inspected {
        name: short_name(&found.name).to_owned(),
        blobs: blobs.collect(),
        manifest: found.manifest,
        origin: found.origin,
        original: found.image.original.map(|original| original.digest),
        config: serde_json::from_slice(config).unwrap_or_default(),
    }
}

fn of_blob(part: String, blob: &BlobSummary) -> Blob {
    let block_size = blob.block_size.bytes() as u64;
    Blob {
        part,
        digest: blob.digest.clone(),
        root: blob.root.to_string(),
        bytes: blob.size,
        raw_bytes: blob.raw_size,
        blocks: blob.raw_size.div_ceil(block_size),
        block_size,
    }
}

fn lines(image: &Inspected) -> String {
    let of_config = |key: &str| match &image.config["config"][key] {
        serde_json::Value::Null => String::new(),
        value => value.to_string(),
    };
    let origin = match &image.origin {
        ImageOrigin::Layout(folder) => folder.display().to_string(),
        ImageOrigin::Registry(name) => name.clone(),
    };
    let rows = [
        ("name", image.name.clone()),
        ("manifest", image.manifest.to_string()),
        ("original", image.original.as_ref().map(OciDigest::to_string).unwrap_or_default()),
        ("blocks", origin),
        ("entrypoint", of_config("Entrypoint")),
        ("command", of_config("Cmd")),
        ("environment", of_config("Env")),
        ("user", of_config("User")),
    ];
    let present = rows.iter().filter(|(_, value)| !value.is_empty());
    let head: String =
        present.map(|(name, value)| format!("{name:<12} {}\n", text::visible(value))).collect();
    let headings = ["part", "digest", ">stored", ">raw", ">blocks", ">block"];
    let row = |blob: &Blob| {
        let cells = [
            blob.part.clone(),
            short(&blob.digest),
            ByteSize(blob.bytes).to_string(),
            ByteSize(blob.raw_bytes).to_string(),
            blob.blocks.to_string(),
            ByteSize(blob.block_size).to_string(),
        ];
        cells.map(Some).to_vec()
    };
    let rows: Vec<_> = image.blobs.iter().map(row).collect();
    format!("{head}\n{}", draw(&headings, &rows, Layout::unlimited()))
}
