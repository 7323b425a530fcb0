//! `image convert`, `push` and `pull`.

use std::sync::Arc;

use snowmelt_api::{ConversionRequest, ConvertedImage, ImageSource, PullRequest, PushRequest};
use snowmelt_image::Converted;
use snowmelt_image::source::{ImageLocation, Reference};
use snowmelt_types::{ByteSize, Code, ErrorReport};

use super::{asked, display_name, user_access};
use crate::args::{ImageConvertArgs, ImagePullArgs, ImagePushArgs};
use crate::config::Config;
use crate::terminal::{CommandOutcome, Printer, ProgressDisplay, text};

pub(super) fn convert(
    args: &ImageConvertArgs,
    config: &Config,
    printer: Printer,
) -> CommandOutcome {
    let source = &args.source;
    let name = match (&args.name, source) {
        (Some(name), _) => name,
        (None, ImageLocation::Registry(name)) => name,
        (None, _) => return Err(name_required("convert", source).into()),
    };
    let block_size = args.block_size.map(|size| size.bytes() as u64);
    convert_source(source, name, block_size, config, printer)
}

fn name_required(verb: &str, source: &ImageLocation) -> ErrorReport {
    let message = format!("the image of {source} needs a local name");
    let hint = format!("for example: snowmelt image {verb} {source} app:v1");
    ErrorReport::new(Code::OPTION, message).hint(hint)
}

fn convert_source(
    source: &ImageLocation,
    name: &Reference,
    block_size: Option<u64>,
    config: &Config,
    printer: Printer,
) -> CommandOutcome {
    let access = match source {
        ImageLocation::Registry(from) => user_access::access(config, &[from])?,
        _ => user_access::access(config, &[])?,
    };
    let label = format!("reading {source}");
    let converted = asked(config, printer, &label, async |client, progress| {
        let (source, image) = match source {
            ImageLocation::Registry(from) => (ImageSource::Registry(from.to_string()), None),
            local => {
                let (described, image) = user_access::open(local).await?;
                (ImageSource::Client(described), Some(image))
            }
        };
        let request = ConversionRequest { name: name.to_string(), source, block_size, access };
        client.convert(&request, image, &mut |text| progress.set_label(text)).await
    })?;
    printer.note(&line(&converted, &display_name(name)));
    Ok(0)
}

/// The summary of an image that was built in this process.
pub(super) fn summary(converted: &Converted, name: &str) -> String {
    let image = &converted.image;
    let (bytes, raw_bytes) =
        image.blobs().fold((0, 0), |(stored, raw), blob| (stored + blob.size, raw + blob.raw_size));
    let layers = image.layers.len();
    let reused = converted.reused;
    let manifest = converted.manifest.digest.to_string();
    let devices = converted.devices;
    line(&ConvertedImage { manifest, layers, reused, devices, bytes, raw_bytes }, name)
}

fn line(converted: &ConvertedImage, name: &str) -> String {
    let layers = text::counted(converted.layers as u64, "layer");
    let reused = match converted.reused {
        0 => String::new(),
        reused => format!(", {reused} of them already here"),
    };
    let devices = match converted.devices {
        0 => String::new(),
        devices => format!("; {} omitted", text::counted(devices, "device node")),
    };
    let stored = ByteSize(converted.bytes);
    let raw = ByteSize(converted.raw_bytes);
    format!("{name}: {layers}{reused}, {stored} of {raw}{devices}")
}

pub(super) fn push(args: &ImagePushArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let to = args.to.as_ref().unwrap_or(&args.name);
    let access = user_access::access(config, &[to])?;
    let request = PushRequest { name: args.name.to_string(), to: to.to_string(), access };
    let label = format!("querying {}", to.registry);
    let pushed = asked(config, printer, &label, async |client, progress| {
        client.push_image(&request, &mut |text| progress.set_label(text)).await
    })?;
    let start = if pushed.has_start { ", with its start profile" } else { "" };
    let amount = amount(pushed.blobs, pushed.bytes);
    printer.note(&format!("pushed {to}@{}: {amount}{start}", pushed.manifest));
    Ok(0)
}

pub(super) fn pull(args: &ImagePullArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let from = match (&args.from, &args.name) {
        (ImageLocation::Registry(from), _) => from,
        // The source is local, and an image of another kind.
        (source, Some(name)) => return convert_source(source, name, None, config, printer),
        (source, None) => return Err(name_required("pull", source).into()),
    };
    let name = args.name.as_ref().unwrap_or(from);
    let access = user_access::access(config, &[from])?;
    let request = PullRequest { from: from.to_string(), name: name.to_string(), access };
    let label = format!("querying {}", from.registry);
    let pulled = asked(config, printer, &label, async |client, progress| {
        client.pull_image(&request, &mut |text| progress.set_label(text)).await
    })?;
    printer.note(&format!("fetched {} as {}", pulled.manifest, display_name(name)));
    Ok(0)
}

/// The amount of data that the registry did not have.
pub(super) fn amount(blobs: u64, bytes: u64) -> String {
    match blobs {
        0 => "all blobs already existed".to_owned(),
        blobs => format!("{} of {}", text::counted(blobs, "new blob"), ByteSize(bytes)),
    }
}

pub(super) fn progress_callback(
    progress: &Arc<ProgressDisplay>,
    verb: &'static str,
) -> impl Fn(usize, usize, u64) + Sync {
    let progress = Arc::clone(progress);
    move |blob, blobs, bytes| {
        progress.set_label(format!("{verb} blob {blob} of {blobs} · {}", ByteSize(bytes)));
    }
}
