//! `snowmelt fn pack`: the platform builds a code package from a Python file.

use std::path::Path;

use snowmelt_api::{PackRequest, Packed};
use snowmelt_types::ByteSize;

use super::code::python;
use super::deployment::code_and_handler;
use crate::args::PackArgs;
use crate::config::Config;
use crate::input;
use crate::platform::with_platform;
use crate::terminal::{CommandOutcome, Printer, text};

/// Builds a code package.
///
/// # Errors
/// Errors of the platform, and `SM-0110` for code that cannot be read.
pub fn run(args: &PackArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let (path, handler) = code_and_handler(&args.code);
    let read = python::read(Path::new(path))?;
    let mut packages = input::requirements(&args.needs)?;
    packages.extend(read.packages);
    let handler = handler.to_owned();
    let request = PackRequest { name: args.name.clone(), code: read.code, handler, packages };
    let label = format!("packing {}", args.name);
    let platform = &args.platform;
    let packed = with_platform(platform, config, printer, &label, async |client| {
        client.pack(&request).await
    })?;
    printer.note(&summary(&packed, &args.name));
    Ok(0)
}

fn summary(packed: &Packed, name: &str) -> String {
    let layers = text::counted(packed.layers, "layer");
    let reused = match packed.reused {
        0 => String::new(),
        reused => format!(", {reused} of them already here"),
    };
    let stored = ByteSize(packed.bytes);
    let raw = ByteSize(packed.raw_bytes);
    let sent =
        if packed.sent { format!("; pushed {name}@{}", packed.manifest) } else { String::new() };
    format!("{name}: {layers}{reused}, {stored} of {raw}{sent}")
}
