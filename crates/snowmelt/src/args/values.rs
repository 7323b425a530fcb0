//! Values of arguments that several grammars take: names, images and sizes of blocks.

use snowmelt_image::block::BlockSize;
use snowmelt_image::source::{ImageLocation, Reference};
use snowmelt_types::{ByteSize, FunctionName};

/// The sources of images, in help.
pub(super) const SOURCES: &str =
    "REGISTRY/REPOSITORY:TAG, oci:FOLDER[:TAG], docker-archive:FILE[:TAG] or dir:FOLDER";

/// Parses the name of a function.
pub(super) fn function_name(text: &str) -> Result<FunctionName, String> {
    text.parse()
}

/// Parses the location of an image.
pub(super) fn place(text: &str) -> Result<ImageLocation, String> {
    text.parse().map_err(|error: snowmelt_image::Error| error.to_string())
}

/// Parses the name of an image.
pub(super) fn name(text: &str) -> Result<Reference, String> {
    text.parse().map_err(|error: snowmelt_image::Error| error.to_string())
}

/// Parses the size of the blocks of an image.
pub(super) fn block_size(text: &str) -> Result<BlockSize, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    BlockSize::try_from(size.bytes()).map_err(|error| error.to_string())
}
