//! `image warm`.

use snowmelt_api::WarmRequest;
use snowmelt_types::ByteSize;

use super::{asked, user_access};
use crate::args::ImageWarmArgs;
use crate::config::Config;
use crate::terminal::{CommandOutcome, Printer, text};

pub(super) fn warm(args: &ImageWarmArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let label = format!("looking for {}", args.image);
    let image = args.image.clone();
    let all = args.all;
    if user_access::is_path(&image) {
        printer.note(&format!("the blocks of {image} are already on this machine"));
        return Ok(0);
    }
    let request = WarmRequest { access: user_access::access_of(config, &[&image])?, image, all };
    let warmed = asked(config, printer, &label, async |client, progress| {
        client.warm_image(&request, &mut |text| progress.set_label(text)).await
    })?;
    let name = warmed.name;
    printer.note(&match warmed.fetched {
        None => format!("the blocks of {name} are already on this machine"),
        Some(fetched) => format!(
            "{name}: {} fetched by {}, {} already here",
            ByteSize(fetched.bytes),
            text::counted(fetched.requests, "request"),
            text::counted(fetched.cached, "block")
        ),
    });
    Ok(0)
}
