//! The grammar of `snowmelt image`.

mod build;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use snowmelt_image::block::BlockSize;
use snowmelt_image::source::{ImageLocation, Reference};

use super::values::{SOURCES, block_size, name, place};
use super::{ListFormat, ShowFormat};
pub use build::{Content, ImageBuildArgs};

pub(super) const EXAMPLES: &str = "\
Examples:
  snowmelt image convert registry.example/team/app:v1
  snowmelt image convert docker-archive:app.tar app:v1
  snowmelt image build app:v1 --debian python3 --code ./app
  snowmelt image push app:v1 registry.example/team/app:v1-blocks
  snowmelt fn deploy app ./app --command './serve' --image app:v1

IMAGE is the name of a local image, REGISTRY/REPOSITORY:TAG, or oci:FOLDER[:TAG].";

const CONVERT_EXAMPLES: &str = "\
Examples:
  snowmelt image convert registry.example/team/app:v1
  snowmelt image convert oci:layout:v1 app:v1
  snowmelt image convert docker-archive:app.tar app:v1          written by docker save
  snowmelt image convert dir:rootfs app:v1 --block-size 128KiB

Layers that were converted before are not read again.";

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

The blocks that starts of the image read on this machine are recorded in a signed start profile,
which is pushed with the image. The credentials are those of docker login. A tag of an image of
another kind is not overwritten.";

const PULL_EXAMPLES: &str = "\
Examples:
  snowmelt image pull registry.example/team/app:v1-blocks
  snowmelt image pull registry.example/team/app:v1-blocks app:v1
  snowmelt image pull docker-archive:app.tar.gz app:v1     written by docker save, converted

A function does not need a pull: --image fetches blocks when they are read.";

const WARM_EXAMPLES: &str = "\
Examples:
  snowmelt image warm registry.example/team/app:v1-blocks
  snowmelt image warm registry.example/team/app:v1-blocks --all

The blocks that earlier starts of the image read are fetched, or all blocks if no start is known.
While a platform runs, no other blocks are evicted for them.";

const VERIFY_EXAMPLES: &str = "\
Examples:
  snowmelt image verify app:v1
  snowmelt image verify registry.example/team/app:v1-blocks -o json

Every block is compared with its digest. Exit code 3 means that a block differs.";

const DIFF_EXAMPLES: &str = "\
Examples:
  snowmelt image diff app:v1 app:v2
  snowmelt image diff app:v1 app:v2 -o json | jq '.blocks.second.bytes'

Two paths are equal if their type, permissions, owner, attributes and content are equal. Exit code 1
means that some paths differ.";

const PRUNE_EXAMPLES: &str = "\
Examples:
  snowmelt image prune --dry-run
  snowmelt image rm app:v1 && snowmelt image prune
  snowmelt image prune --blocks

A running platform locks the blocks of the registry images that it has mounted: stop it first.";

const KEY_EXAMPLES: &str = "\
Examples:
  snowmelt image key
  SNOWMELT_IMAGES_TRUSTED_KEYS=$(ssh builder snowmelt image key) snowmelt up";

/// `snowmelt image`.
#[derive(Debug, Args)]
pub struct ImageArgs {
    /// PEM file of certificate authorities to trust for registries, besides the system's
    #[arg(long, global = true, value_name = "FILE", help_heading = "Registries")]
    pub ca_file: Option<PathBuf>,
    /// The subcommand.
    #[command(subcommand)]
    pub command: ImageCommand,
}

/// The commands of `snowmelt image`.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Convert any image to a local block image
    Convert(ImageConvertArgs),
    /// Build a local block image from a base, packages and code
    Build(Box<ImageBuildArgs>),
    /// Push a local image to a registry
    Push(ImagePushArgs),
    /// Fetch a whole image from a registry, an archive or a folder
    Pull(ImagePullArgs),
    /// Prefetch the blocks that a start of an image reads
    Warm(ImageWarmArgs),
    /// List the local images
    #[command(after_help = LS_EXAMPLES)]
    Ls(ImageLsArgs),
    /// Show an image, its blobs and its configuration
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(ImageInspectArgs),
    /// Compare every block of an image with its digest
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(ImageVerifyArgs),
    /// Show which blocks two images share, and which paths differ
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(ImageDiffArgs),
    /// Remove the name of an image
    Rm(ImageRmArgs),
    /// Remove data that no local image refers to
    #[command(after_help = PRUNE_EXAMPLES)]
    Prune(ImagePruneArgs),
    /// Print the key with which other platforms verify start profiles of this one
    #[command(after_help = KEY_EXAMPLES)]
    Key,
}

/// `snowmelt image convert`.
#[derive(Debug, Args)]
#[command(after_help = CONVERT_EXAMPLES)]
pub struct ImageConvertArgs {
    // Not a doc comment: rustdoc would take the brackets for links.
    #[arg(value_parser = place, help = SOURCES)]
    pub source: ImageLocation,
    /// Local name [default: that of the source, if it is in a registry]
    #[arg(value_parser = name)]
    pub name: Option<Reference>,
    /// Block size, a power of two from 64KiB to 4MiB [default: 512KiB]
    #[arg(long, value_name = "SIZE", value_parser = block_size)]
    pub block_size: Option<BlockSize>,
}

/// `snowmelt image push`.
#[derive(Debug, Args)]
#[command(after_help = PUSH_EXAMPLES)]
pub struct ImagePushArgs {
    /// Local name
    #[arg(value_parser = name)]
    pub name: Reference,
    /// Name in the registry [default: the same]
    #[arg(value_parser = name)]
    pub to: Option<Reference>,
}

/// `snowmelt image pull`.
#[derive(Debug, Args)]
#[command(after_help = PULL_EXAMPLES)]
pub struct ImagePullArgs {
    // Not a doc comment: rustdoc would take the brackets for links.
    #[arg(value_parser = place, help = SOURCES)]
    pub from: ImageLocation,
    /// Local name [default: that of the source, if it is in a registry]
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
    /// Format of the list of damaged blocks
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ListFormat,
}

/// `snowmelt image diff`.
#[derive(Debug, Args)]
pub struct ImageDiffArgs {
    /// First image
    pub first: String,
    /// Second image
    pub second: String,
    /// Format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ShowFormat,
}

/// `snowmelt image rm`.
#[derive(Debug, Args)]
pub struct ImageRmArgs {
    /// Local name
    #[arg(value_parser = name)]
    pub name: Reference,
}

/// `snowmelt image prune`.
#[derive(Debug, Args)]
pub struct ImagePruneArgs {
    /// Only print how much would be removed
    #[arg(long)]
    pub dry_run: bool,
    /// Also remove all cached blocks of registry images, unless a platform uses them
    #[arg(long)]
    pub blocks: bool,
}
