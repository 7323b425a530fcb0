//! The grammar of `snowmelt image build`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use snowmelt_image::block::BlockSize;
use snowmelt_image::source::{ImageLocation, Reference};

use super::ShowFormat;
use super::function::variable;
use super::image::{SOURCES, block_size, name, place};

const EXAMPLES: &str = "\
Examples:
  snowmelt image build app:v1 --debian python3 --python numpy==2.4.6 --code ./app
  snowmelt image build app:v2 --base app:v1 --model ./weights:/opt/weights
  snowmelt image build app:v1 --base docker.io/library/debian:12 --code ./app \\
      --entrypoint 'python3 /app/main.py' --push registry.example/team/app:v1-blocks

Layers from below: base, packages of Debian, packages of Python, models, code. One whose content is
as before is neither read nor sent again. Packages of Debian are those of this machine's release;
no script of theirs runs.";

/// `snowmelt image build`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ImageBuildArgs {
    /// Its name here
    #[arg(value_parser = name)]
    pub name: Reference,
    // No comment of documentation, where the brackets would be links.
    #[arg(long, value_name = "IMAGE", value_parser = place, help = format!("What it stands on: an image of this machine, {SOURCES} [default: nothing]"))]
    pub base: Option<ImageLocation>,
    /// Packages of Debian, with all that they need and the base lacks (repeatable)
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub debian: Vec<String>,
    /// One package of Python, as `numpy==2.*` (repeatable)
    #[arg(long, value_name = "REQ")]
    pub python: Vec<String>,
    /// requirements.txt with packages of Python
    #[arg(long, value_name = "FILE")]
    pub python_file: Option<PathBuf>,
    /// Where packages of Python stand [default: where Debian's Python looks]
    #[arg(long, value_name = "PATH")]
    pub python_path: Option<String>,
    /// A folder with a model, and where it stands [default: /model] (repeatable)
    #[arg(long, value_name = "FOLDER[:PATH]")]
    pub model: Vec<Content>,
    /// A folder with code, and where it stands [default: /app] (repeatable)
    #[arg(long, value_name = "FOLDER[:PATH]")]
    pub code: Vec<Content>,
    /// Set an environment variable of the image (repeatable)
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    pub environment: Vec<(String, String)>,
    /// The program that it runs, with arguments
    #[arg(long, value_name = "COMMAND")]
    pub entrypoint: Option<String>,
    /// More arguments of the program, that others may replace
    #[arg(long, value_name = "WORDS")]
    pub command: Option<String>,
    /// Where the program starts
    #[arg(long, value_name = "PATH")]
    pub working_folder: Option<String>,
    /// As whom it runs
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Bytes of a block, a power of two from 64KiB to 4MiB [default: 512KiB]
    #[arg(long, value_name = "SIZE", value_parser = block_size)]
    pub block_size: Option<BlockSize>,
    /// Ask for the packages of Debian again, even if the same were asked for before
    #[arg(long)]
    pub refresh: bool,
    /// Send it to a registry under this name
    #[arg(long, value_name = "IMAGE", value_parser = name)]
    pub push: Option<Reference>,
    /// Format of what was made
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ShowFormat,
}

/// A folder here, and perhaps where it stands in the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Here.
    pub folder: PathBuf,
    /// There.
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
    fn a_place_stands_behind_the_last_colon_with_a_slash() {
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
