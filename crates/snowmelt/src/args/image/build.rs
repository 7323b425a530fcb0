//! The grammar of `snowmelt image build`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use snowmelt_image::block::BlockSize;
use snowmelt_image::source::{ImageLocation, Reference};

use crate::args::ShowFormat;
use crate::args::functions::variable;
use crate::args::values::{SOURCES, block_size, name, place};

const EXAMPLES: &str = "\
Examples:
  snowmelt image build app:v1 --debian python3 --python numpy==2.4.6 --code ./app
  snowmelt image build app:v2 --base app:v1 --model ./weights:/opt/weights
  snowmelt image build app:v1 --base docker.io/library/debian:12 --code ./app \\
      --entrypoint 'python3 /app/main.py' --push registry.example/team/app:v1-blocks

Layers, from the lowest: base, Debian packages, Python packages, models, code. An unchanged layer is
neither read nor pushed again. Debian packages are those of this machine's release; their scripts do
not run.";

/// `snowmelt image build`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ImageBuildArgs {
    /// Local name
    #[arg(value_parser = name)]
    pub name: Reference,
    // Not a doc comment: rustdoc would take the brackets for links.
    #[arg(long, value_name = "IMAGE", value_parser = place, help = format!("Base: a local image, {SOURCES} [default: none]"))]
    pub base: Option<ImageLocation>,
    /// Debian packages, with the dependencies that the base lacks (repeatable)
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub debian: Vec<String>,
    /// A Python package, for example `numpy==2.*` (repeatable)
    #[arg(long, value_name = "REQ")]
    pub python: Vec<String>,
    /// requirements.txt with Python packages
    #[arg(long, value_name = "FILE")]
    pub python_file: Option<PathBuf>,
    /// Path of the Python packages in the image [default: where Debian's Python searches]
    #[arg(long, value_name = "PATH")]
    pub python_path: Option<String>,
    /// Folder with a model, and its path in the image [default: /model] (repeatable)
    #[arg(long, value_name = "FOLDER[:PATH]")]
    pub model: Vec<Content>,
    /// Folder with code, and its path in the image [default: /app] (repeatable)
    #[arg(long, value_name = "FOLDER[:PATH]")]
    pub code: Vec<Content>,
    /// Set an environment variable of the image (repeatable)
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    pub environment: Vec<(String, String)>,
    /// Program to run, with arguments
    #[arg(long, value_name = "COMMAND")]
    pub entrypoint: Option<String>,
    /// Default arguments of the program, which a deployment can replace
    #[arg(long, value_name = "WORDS")]
    pub command: Option<String>,
    /// Working folder of the program
    #[arg(long, value_name = "PATH")]
    pub working_folder: Option<String>,
    /// User that runs the program
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Block size, a power of two from 64KiB to 4MiB [default: 512KiB]
    #[arg(long, value_name = "SIZE", value_parser = block_size)]
    pub block_size: Option<BlockSize>,
    /// Resolve the Debian packages again, even if they were resolved before
    #[arg(long)]
    pub refresh: bool,
    /// Push the image to a registry under this name
    #[arg(long, value_name = "IMAGE", value_parser = name)]
    pub push: Option<Reference>,
    /// Format of the result
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ShowFormat,
}

/// A local folder, and optionally its path in the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The local folder.
    pub folder: PathBuf,
    /// The path in the image.
    pub at: Option<String>,
}

impl FromStr for Content {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.rsplit_once(":/") {
            Some((folder, at)) => Self { folder: folder.into(), at: Some(format!("/{at}")) },
            None => Self { folder: text.into(), at: None },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_follows_the_last_colon_before_a_slash() {
        let of = |text: &str| text.parse::<Content>().unwrap();
        let content = |folder: &str, at: Option<&str>| Content {
            folder: folder.into(),
            at: at.map(str::to_owned),
        };
        assert_eq!(of("./app"), content("./app", None));
        assert_eq!(of("odd:dir"), content("odd:dir", None));
        assert_eq!(of("a:/b:/srv/app"), content("a:/b", Some("/srv/app")));
    }
}
