//! `image convert`, `push` and `pull`.

use std::sync::Arc;

use snowmelt_image::exchange::Sent;
use snowmelt_image::source::{ImageLocation, Reference};
use snowmelt_image::{Converted, Options, exchange};
use snowmelt_types::{ByteSize, Code, ErrorReport};

use super::watched::{WatchedOrigin, blocking};
use super::{failure, layout, shown, stores, work};
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
        (None, _) => return Err(nameless("convert", source).into()),
    };
    let options = Options { block_size: args.block_size.unwrap_or_default(), ..Options::default() };
    converted(source, name, options, config, printer)
}

fn nameless(verb: &str, source: &ImageLocation) -> ErrorReport {
    let message = format!("the image of {source} needs a name here");
    let hint = format!("for example: snowmelt image {verb} {source} app:v1");
    ErrorReport::new(Code::OPTION, message).hint(hint)
}

fn converted(
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
    printer.note(&summary(&converted, &shown(name)));
    Ok(0)
}

pub(super) fn summary(converted: &Converted, name: &str) -> String {
    let image = &converted.image;
    let (stored, raw) =
        image.blobs().fold((0, 0), |(stored, raw), blob| (stored + blob.size, raw + blob.raw_size));
    let layers = text::counted(image.layers.len() as u64, "layer");
    let reused = match converted.reused {
        0 => String::new(),
        reused => format!(", {reused} of them here already"),
    };
    let devices = match converted.devices {
        0 => String::new(),
        devices => format!("; {} left out", text::counted(devices, "device node")),
    };
    format!("{name}: {layers}{reused}, {} of {}{devices}", ByteSize(stored), ByteSize(raw))
}

pub(super) fn push(args: &ImagePushArgs, config: &Config, printer: Printer) -> Outcome {
    let to = args.to.as_ref().unwrap_or(&args.name);
    let layout = layout(config).map_err(failure)?;
    let manifest = layout.find(Some(&args.name.to_string())).map_err(failure)?;
    let image = exchange::read(&layout, &manifest).map_err(failure)?;
    let stores = stores(config);
    let asking = format!("asking {}", to.registry);
    let (sent, has_start) = work(config, printer, &asking, async |progress| {
        let sent = exchange::push(&layout, &image, to, &told(progress, "sending")).await?;
        Ok((sent, stores.publish_start(to, &manifest).await?))
    })?;
    let start = if has_start { ", and what its starts touched" } else { "" };
    printer.note(&format!("sent {to}@{}: {}{start}", manifest.digest, amount(&sent)));
    Ok(0)
}

pub(super) fn pull(args: &ImagePullArgs, config: &Config, printer: Printer) -> Outcome {
    let from = match (&args.from, &args.name) {
        (ImageLocation::Registry(from), _) => from,
        // All of it is on this machine, as an image of another kind.
        (source, Some(name)) => {
            return converted(source, name, Options::default(), config, printer);
        }
        (source, None) => return Err(nameless("pull", source).into()),
    };
    let layout = layout(config).map_err(failure)?;
    let label = format!("asking {}", from.registry);
    let pulled = work(config, printer, &label, async |progress| {
        exchange::pull(from, &layout, &told(progress, "fetching")).await
    })?;
    let name = args.name.as_ref().unwrap_or(from);
    layout.tag(&name.to_string(), &pulled.manifest).map_err(failure)?;
    printer.note(&format!("fetched {} as {}", pulled.manifest.digest, shown(name)));
    Ok(0)
}

/// How much of an image a registry did not have.
pub(super) fn amount(sent: &Sent) -> String {
    match sent.blobs.len() as u64 {
        0 => "all of its blobs were there".to_owned(),
        blobs => format!("{} of {}", text::counted(blobs, "new blob"), ByteSize(sent.bytes)),
    }
}

pub(super) fn told(
    progress: &Arc<Progress>,
    verb: &'static str,
) -> impl Fn(usize, usize, u64) + Sync {
    let progress = Arc::clone(progress);
    move |blob, blobs, bytes| {
        progress.doing(format!("{verb} blob {blob} of {blobs} · {}", ByteSize(bytes)));
    }
}
