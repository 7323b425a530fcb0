//! The grammar of `snowmelt image`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use snowmelt_image::block::BlockSize;
use snowmelt_image::source::{ImageLocation, Reference};
use snowmelt_types::ByteSize;

use super::{ImageBuildArgs, ListFormat, ShowFormat};

pub(super) const EXAMPLES: &str = "\
Examples:
  snowmelt image convert registry.example/team/app:v1
  snowmelt image convert docker-archive:app.tar app:v1
  snowmelt image build app:v1 --debian python3 --code ./app
  snowmelt image push app:v1 registry.example/team/app:v1-blocks
  snowmelt fn deploy app ./app --command './serve' --image app:v1

An image is the name of one that was converted here, REGISTRY/REPOSITORY:TAG, or oci:FOLDER[:TAG].";

const CONVERT_EXAMPLES: &str = "\
Examples:
  snowmelt image convert registry.example/team/app:v1
  snowmelt image convert oci:layout:v1 app:v1
  snowmelt image convert docker-archive:app.tar app:v1          what docker save wrote
  snowmelt image convert dir:rootfs app:v1 --block-size 128KiB

Layers that were converted before are not read again.";

pub(super) const SOURCES: &str =
    "REGISTRY/REPOSITORY:TAG, oci:FOLDER[:TAG], docker-archive:FILE[:TAG] or dir:FOLDER";

const LS_EXAMPLES: &str = "\
Examples:
  snowmelt image ls
  snowmelt image ls -o json | jq -r '.[].name'";

const INSPECT_EXAMPLES: &str = "\
Examples:
  snowmelt image inspect app:v1
  snowmelt image inspect app:v1 -o json | jq .config.config.Cmd";

const PUSH_EXAMPLES: &str = "\
Examples:
  snowmelt image push registry.example/team/app:v1-blocks
  snowmelt image push app:v1 registry.example/team/app:v1-blocks

What starts of the image touched here is put beside it, signed. The credentials are those of docker
login. A tag with an image of another kind is left alone.";

const PULL_EXAMPLES: &str = "\
Examples:
  snowmelt image pull registry.example/team/app:v1-blocks
  snowmelt image pull registry.example/team/app:v1-blocks app:v1
  snowmelt image pull docker-archive:app.tar.gz app:v1     what docker save wrote, converted

Functions need no pull: --image fetches the blocks that are read.";

const WARM_EXAMPLES: &str = "\
Examples:
  snowmelt image warm registry.example/team/app:v1-blocks
  snowmelt image warm registry.example/team/app:v1-blocks --all

What starts of the image touched here is fetched, or all of it where none is known. A platform that
runs functions in images of a registry has the cache to itself.";

const VERIFY_EXAMPLES: &str = "\
Examples:
  snowmelt image verify app:v1
  snowmelt image verify registry.example/team/app:v1-blocks -o json

Every block is compared with its digest. Exit code 3 says that one differs.";

const DIFF_EXAMPLES: &str = "\
Examples:
  snowmelt image diff app:v1 app:v2
  snowmelt image diff app:v1 app:v2 -o json | jq '.blocks.second.bytes'

Two paths are equal if type, permissions, owner, attributes and content are. Exit code 1 says that
some are not.";

const PRUNE_EXAMPLES: &str = "\
Examples:
  snowmelt image prune --dry-run
  snowmelt image rm app:v1 && snowmelt image prune
  snowmelt image prune --blocks

A running platform that has images of registries mounted holds their blocks: end it first.";

const KEY_EXAMPLES: &str = "\
Examples:
  snowmelt image key
  SNOWMELT_IMAGES_TRUSTED_KEYS=$(ssh builder snowmelt image key) snowmelt up";

/// `snowmelt image`.
#[derive(Debug, Args)]
pub struct ImageArgs {
    /// Trust the authorities of registries in this file of PEM, beside those of the system
    #[arg(long, global = true, value_name = "FILE", help_heading = "Registries")]
    pub ca_file: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: ImageCommand,
}

/// The commands of `snowmelt image`.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Make a block image of any image, and keep it here
    Convert(ImageConvertArgs),
    /// Make a block image from a base, packages and code, and keep it here
    Build(Box<ImageBuildArgs>),
    /// Send an image that is here to a registry
    Push(ImagePushArgs),
    /// Fetch all of an image from a registry, an archive or a folder
    Pull(ImagePullArgs),
    /// Fetch the blocks of a start before it is asked for
    Warm(ImageWarmArgs),
    /// List the images of this machine
    #[command(after_help = LS_EXAMPLES)]
    Ls(ImageLsArgs),
    /// Show an image, its blobs and its configuration
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(ImageInspectArgs),
    /// Compare every block of an image with its digest
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(ImageVerifyArgs),
    /// Show what two images share, and in which paths they differ
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(ImageDiffArgs),
    /// Remove the name of an image
    Rm(ImageRmArgs),
    /// Remove what no image of this machine names
    #[command(after_help = PRUNE_EXAMPLES)]
    Prune(ImagePruneArgs),
    /// Print the key by which other platforms can trust the starts of this one
    #[command(after_help = KEY_EXAMPLES)]
    Key,
}

/// `snowmelt image convert`.
#[derive(Debug, Args)]
#[command(after_help = CONVERT_EXAMPLES)]
pub struct ImageConvertArgs {
    // No comment of documentation, where the brackets would be links.
    #[arg(value_parser = place, help = SOURCES)]
    pub source: ImageLocation,
    /// Its name here [default: that of the source, if it comes from a registry]
    #[arg(value_parser = name)]
    pub name: Option<Reference>,
    /// Bytes of a block, a power of two from 64KiB to 4MiB [default: 512KiB]
    #[arg(long, value_name = "SIZE", value_parser = block_size)]
    pub block_size: Option<BlockSize>,
}

/// `snowmelt image push`.
#[derive(Debug, Args)]
#[command(after_help = PUSH_EXAMPLES)]
pub struct ImagePushArgs {
    /// Its name here
    #[arg(value_parser = name)]
    pub name: Reference,
    /// Its name there [default: the same]
    #[arg(value_parser = name)]
    pub to: Option<Reference>,
}

/// `snowmelt image pull`.
#[derive(Debug, Args)]
#[command(after_help = PULL_EXAMPLES)]
pub struct ImagePullArgs {
    // No comment of documentation, where the brackets would be links.
    #[arg(value_parser = place, help = SOURCES)]
    pub from: ImageLocation,
    /// Its name here [default: that of the source, if it comes from a registry]
    #[arg(value_parser = name)]
    pub name: Option<Reference>,
}

/// `snowmelt image warm`.
#[derive(Debug, Args)]
#[command(after_help = WARM_EXAMPLES)]
pub struct ImageWarmArgs {
    /// The image
    pub image: String,
    /// Fetch every block
    #[arg(long)]
    pub all: bool,
}

/// `snowmelt image ls`.
#[derive(Debug, Args)]
pub struct ImageLsArgs {
    /// Format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ListFormat,
}

/// `snowmelt image inspect`.
#[derive(Debug, Args)]
pub struct ImageInspectArgs {
    /// The image
    pub image: String,
    /// Format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ShowFormat,
}

/// `snowmelt image verify`.
#[derive(Debug, Args)]
pub struct ImageVerifyArgs {
    /// The image
    pub image: String,
    /// Format of what is damaged
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ListFormat,
}

/// `snowmelt image diff`.
#[derive(Debug, Args)]
pub struct ImageDiffArgs {
    /// An image
    pub first: String,
    /// Another one
    pub second: String,
    /// Format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ShowFormat,
}

/// `snowmelt image rm`.
#[derive(Debug, Args)]
pub struct ImageRmArgs {
    /// Its name here
    #[arg(value_parser = name)]
    pub name: Reference,
}

/// `snowmelt image prune`.
#[derive(Debug, Args)]
pub struct ImagePruneArgs {
    /// Only say how much it would be
    #[arg(long)]
    pub dry_run: bool,
    /// And every cached block of images in registries, unless a platform holds them
    #[arg(long)]
    pub blocks: bool,
}

pub(super) fn place(text: &str) -> Result<ImageLocation, String> {
    text.parse().map_err(|error: snowmelt_image::Error| error.to_string())
}

pub(super) fn name(text: &str) -> Result<Reference, String> {
    text.parse().map_err(|error: snowmelt_image::Error| error.to_string())
}

pub(super) fn block_size(text: &str) -> Result<BlockSize, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    BlockSize::try_from(size.bytes()).map_err(|error| error.to_string())
}
