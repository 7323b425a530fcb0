//! `image verify`.

use snowmelt_api::{DamagedBlock, ImageRequest, VerifiedImage};
use snowmelt_image::source::Access;
use snowmelt_types::{ByteSize, Code, ErrorReport};

use super::{asked, user_access, work};
use crate::args::ImageVerifyArgs;
use crate::config::Config;
use crate::output::list;
use crate::terminal::{CommandOutcome, Printer, text};

pub(super) fn verify(args: &ImageVerifyArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let label = format!("verifying {}", args.image);
    let verified = match user_access::is_path(&args.image) {
        true => work(config, printer, &label, async |_| {
            let found = user_access::find(config, &args.image).await?;
            snowmelt_control::images::verify(&found, &Access::own()).await
        })?,
        false => {
            let access = user_access::access_of(config, &[&args.image])?;
            let request = ImageRequest { image: args.image.clone(), access };
            asked(config, printer, &label, async |client, progress| {
                client.verify_image(&request, &mut |text| progress.set_label(text)).await
            })?
        }
    };
    report(args, &verified, printer)
}

fn report(args: &ImageVerifyArgs, verified: &VerifiedImage, printer: Printer) -> CommandOutcome {
    let VerifiedImage { name, damages, .. } = verified;
    let headings = ["blob", ">block", "reason"];
    let rows: Vec<_> = damages.iter().map(row).collect();
    list::print(args.output, &headings, &rows, damages)?;
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

fn row(damage: &DamagedBlock) -> Vec<String> {
    let block = damage.block.map_or_else(|| "table".to_owned(), |block| block.to_string());
    vec![damage.blob.clone(), block, damage.reason.clone()]
}
