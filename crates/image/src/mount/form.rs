//! The two ways to mount an image, and which of them this machine can.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::probe;
use crate::{Error, Result};

/// How an image is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// The kernel's EROFS over FUSE with a file for each blob.
    Erofs,
    /// FUSE with the files of the image, for kernels that mount no EROFS on files (before Linux
    /// 6.12, or without its module). Each first use of a name asks the server.
    Fuse,
}

/// How images are to be mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// EROFS where the machine can.
    #[default]
    Auto,
    /// EROFS or an error.
    Erofs,
    /// FUSE alone.
    Fuse,
}

/// What was chosen.
#[derive(Debug)]
pub struct Chosen {
    /// What works here.
    pub form: Form,
    /// Why it is not EROFS, if that was tried.
    pub lacking: Option<Error>,
}

impl Choice {
    /// Tries by mounting an empty image; the error says which step the machine lacks. Must not be
    /// called on a thread of a runtime.
    pub fn choose(self) -> Result<Chosen> {
        let lacking = match self {
            Self::Fuse => None,
            Self::Auto | Self::Erofs => match probe(Form::Erofs) {
                Ok(()) => return Ok(Chosen { form: Form::Erofs, lacking: None }),
                Err(error) if self == Self::Erofs => return Err(error),
                Err(error) => Some(error),
            },
        };
        probe(Form::Fuse).map(|()| Chosen { form: Form::Fuse, lacking })
    }
}

/// Whether another process can go on with a mount: since Linux 6.9 the kernel asks again what was
/// taken and not answered. Where it does not, a connection that somebody keeps is one at which
/// readers wait for ever.
pub fn outlives_its_server() -> bool {
    let system = rustix::system::uname();
    is_from(&system.release().to_string_lossy(), (6, 9))
}

fn is_from(release: &str, least: (u32, u32)) -> bool {
    let mut numbers = release.split(|digit: char| !digit.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse().ok()).unwrap_or(0);
    (next(), next()) >= least
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "erofs" => Ok(Self::Erofs),
            "fuse" => Ok(Self::Fuse),
            _ => Err(format!("`{text}` is not one of auto, erofs, fuse")),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Auto => "auto",
            Self::Erofs => "erofs",
            Self::Fuse => "fuse",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_works_here() {
        if !rustix::process::geteuid().is_root() {
            drop(Choice::Auto.choose().unwrap_err());
            return;
        }
        for (choice, form) in [(Choice::Erofs, Form::Erofs), (Choice::Fuse, Form::Fuse)] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
            let chosen = choice.choose().unwrap();
            assert!(chosen.form == form && chosen.lacking.is_none(), "{chosen:?}");
        }
        "loop".parse::<Choice>().unwrap_err();
    }

    #[test]
    fn tells_kernels_apart() {
        for (release, later) in [
            ("6.9.0", true),
            ("6.18.44-x", true),
            ("7.0", true),
            ("6.8.12-9-pve", false),
            ("", false),
        ] {
            assert_eq!(is_from(release, (6, 9)), later, "{release}");
        }
    }
}
