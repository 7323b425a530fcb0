//! `image ls` and `inspect`.

use snowmelt_api::{ImageBlob, ImageDetail, ImagePlace, ImageRequest, ImageSummary};
use snowmelt_image::source::Access;
use snowmelt_types::ByteSize;

use super::{asked, user_access, work};
use crate::args::{ImageInspectArgs, ImageLsArgs, ShowFormat};
use crate::config::Config;
use crate::output::{TableLayout, draw, list};
use crate::terminal::{CommandOutcome, Printer, printer, text};

pub(super) fn ls(args: &ImageLsArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let images = asked(config, printer, "listing", async |client, _| client.images().await)?;
    let headings = ["name", "manifest", ">stored", ">raw", ">layers", ">block"];
    let rows: Vec<_> = images.iter().map(row).collect();
    list::print(args.output, &headings, &rows, &images)?;
    if images.is_empty() {
        printer.note("no images; make one with `snowmelt image convert` or `image build`");
    }
    Ok(0)
}

fn row(image: &ImageSummary) -> Vec<String> {
    vec![
        image.name.clone(),
        short(&image.manifest),
        ByteSize(image.bytes).to_string(),
        ByteSize(image.raw_bytes).to_string(),
        image.layers.to_string(),
        ByteSize(image.block_size).to_string(),
    ]
}

/// The first digits of a digest.
fn short(digest: &str) -> String {
    digest.rsplit(':').next().unwrap_or_default().chars().take(12).collect()
}

pub(super) fn inspect(
    args: &ImageInspectArgs,
    config: &Config,
    printer: Printer,
) -> CommandOutcome {
    let label = format!("looking for {}", args.image);
    let image = match user_access::is_path(&args.image) {
        true => work(config, printer, &label, async |_| {
            let found = user_access::find(config, &args.image).await?;
            snowmelt_control::images::detail(&found, &Access::own()).await
        })?,
        false => {
            let access = user_access::access_of(config, &[&args.image])?;
            let request = ImageRequest { image: args.image.clone(), access };
            asked(config, printer, &label, async |client, _| client.image(&request).await)?
        }
    };
    printer::print(&match args.output {
        ShowFormat::Json => list::json(&image)?,
        ShowFormat::Table => lines(&image),
    })?;
    Ok(0)
}

fn lines(image: &ImageDetail) -> String {
    let of_config = |key: &str| match &image.config["config"][key] {
        serde_json::Value::Null => String::new(),
        value => value.to_string(),
    };
    let origin = match &image.origin {
        ImagePlace::Layout(place) | ImagePlace::Registry(place) => place.clone(),
    };
    let rows = [
        ("name", image.name.clone()),
        ("manifest", image.manifest.clone()),
        ("original", image.original.clone().unwrap_or_default()),
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
    let row = |blob: &ImageBlob| {
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
    format!("{head}\n{}", draw(&headings, &rows, TableLayout::unlimited()))
}
