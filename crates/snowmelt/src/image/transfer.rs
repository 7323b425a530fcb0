//! `image convert`, `push` and `pull`.

use std::sync::Arc;

use snowmelt_image::exchange::Sent;
use snowmelt_image::source::{ImageLocation, Reference};
use snowmelt_image::{Converted, Options, exchange};
use snowmelt_types::{ByteSize, Code, ErrorReport};

use super::watched::{WatchedOrigin, blocking};
use super::{display_name, failure, layout, stores, work};
use crate::args::{ImageConvertArgs, ImagePullArgs, ImagePushArgs};
use crate::config::Config;
use crate::failure::Outcome;
use crate::printer::Printer;
use crate::progress::Progress;
use crate::text;

pub(super) fn convert(args: &ImageConvertArgs, config: &Config, printer: Printer) -> Outcome {
    let source = &args.source;
    let name = match (&args.name, source) {
        (Some(name), _) => name,
        (None, ImageLocation::Registry(name)) => name,
        (None, _) => return Err(name_required("convert", source).into()),
    };
    let options = Options { block_size: args.block_size.unwrap_or_default(), ..Options::default() };
    convert_source(source, name, options, config, printer)
}

fn name_required(verb: &str, source: &ImageLocation) -> ErrorReport {
    let message = format!("the image of {source} needs a local name");
    let hint = format!("for example: snowmelt image {verb} {source} app:v1");
    ErrorReport::new(Code::OPTION, message).hint(hint)
}

fn convert_source(
    source: &ImageLocation,
    name: &Reference,
    options: Options,
    config: &Config,
    printer: Printer,
) -> Outcome {
    let layout = layout(config).map_err(failure)?;
    let label = format!("reading {source}");
    let converted = work(config, printer, &label, async |progress| {
        let (origin, layout) = (source.open().await?, layout.clone());
        let convert = move |watch| {
            let origin = WatchedOrigin::new(origin.into(), watch);
            snowmelt_image::convert(&origin, &layout, options)
        };
        blocking(progress, convert).await
    })?;
    layout.tag(&name.to_string(), &converted.manifest).map_err(failure)?;
    printer.note(&summary(&converted, &display_name(name)));
    Ok(0)
}

pub(super) fn summary(converted: &Converted, name: &str) -> String {
    let image = &converted.image;
    let (stored, raw) =
        image.blobs().fold((0, 0), |(stored, raw), blob| (stored + blob.size, raw + blob.raw_size));
    let layers = text::counted(image.layers.len() as u64, "layer");
    let reused = match converted.reused {
        0 => String::new(),
        reused => format!(", {reused} of them already here"),
    };
    let devices = match converted.devices {
        0 => String::new(),
        devices => format!("; {} omitted", text::counted(devices, "device node")),
    };
    format!("{name}: {layers}{reused}, {} of {}{devices}", ByteSize(stored), ByteSize(raw))
}

pub(super) fn push(args: &ImagePushArgs, config: &Config, printer: Printer) -> Outcome {
    let to = args.to.as_ref().unwrap_or(&args.name);
    let layout = layout(config).map_err(failure)?;
    let manifest = layout.find(Some(&args.name.to_string())).map_err(failure)?;
    let image = exchange::read(&layout, &manifest).map_err(failure)?;
    let stores = stores(config);
    let label = format!("querying {}", to.registry);
    let (sent, has_start) = work(config, printer, &label, async |progress| {
        let sent =
            exchange::push(&layout, &image, to, &progress_callback(progress, "sending")).await?;
        Ok((sent, stores.publish_start(to, &manifest).await?))
    })?;
    let start = if has_start { ", with its start profile" } else { "" };
    printer.note(&format!("pushed {to}@{}: {}{start}", manifest.digest, amount(&sent)));
    Ok(0)
}

pub(super) fn pull(args: &ImagePullArgs, config: &Config, printer: Printer) -> Outcome {
    let from = match (&args.from, &args.name) {
        (ImageLocation::Registry(from), _) => from,
        // The source is local, and an image of another kind.
        (source, Some(name)) => {
            return convert_source(source, name, Options::default(), config, printer);
        }
        (source, None) => return Err(name_required("pull", source).into()),
    };
    let layout = layout(config).map_err(failure)?;
    let label = format!("querying {}", from.registry);
    let pulled = work(config, printer, &label, async |progress| {
        exchange::pull(from, &layout, &progress_callback(progress, "fetching")).await
    })?;
    let name = args.name.as_ref().unwrap_or(from);
    layout.tag(&name.to_string(), &pulled.manifest).map_err(failure)?;
    printer.note(&format!("fetched {} as {}", pulled.manifest.digest, display_name(name)));
    Ok(0)
}

/// The amount of data that the registry did not have.
pub(super) fn amount(sent: &Sent) -> String {
    match sent.blobs.len() as u64 {
        0 => "all blobs already existed".to_owned(),
        blobs => format!("{} of {}", text::counted(blobs, "new blob"), ByteSize(sent.bytes)),
    }
}

pub(super) fn progress_callback(
    progress: &Arc<Progress>,
    verb: &'static str,
) -> impl Fn(usize, usize, u64) + Sync {
    let progress = Arc::clone(progress);
    move |blob, blobs, bytes| {
        progress.set_label(format!("{verb} blob {blob} of {blobs} · {}", ByteSize(bytes)));
    }
}
