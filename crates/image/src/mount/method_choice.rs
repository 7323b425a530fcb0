//! The choice of the method to mount images, by a trial of each on this machine.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Form, probe};
use crate::{Error, Result};

/// The configured method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MountChoice {
    /// Use EROFS if the machine supports it, and otherwise FUSE.
    #[default]
    Auto,
    /// Use EROFS, or fail.
    Erofs,
    /// Use FUSE only.
    Fuse,
}

/// The method that was chosen.
#[derive(Debug)]
pub struct Chosen {
    /// A method that works on this machine.
    pub form: Form,
    /// The reason why EROFS does not work, if it was tried.
    pub erofs_error: Option<Error>,
}

impl MountChoice {
    /// Tries methods by mounting an empty image. An error names the step that the machine does not
    /// support. Must not be called on a thread of an async runtime.
    pub fn choose(self) -> Result<Chosen> {
        let erofs_error = match self {
            Self::Fuse => None,
            Self::Auto | Self::Erofs => match probe(Form::Erofs) {
                Ok(()) => return Ok(Chosen { form: Form::Erofs, erofs_error: None }),
                Err(error) if self == Self::Erofs => return Err(error),
                Err(error) => Some(error),
            },
        };
        probe(Form::Fuse).map(|()| Chosen { form: Form::Fuse, erofs_error })
    }
}

impl FromStr for MountChoice {
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

impl fmt::Display for MountChoice {
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
    fn the_chosen_method_works() {
        if !rustix::process::geteuid().is_root() {
            drop(MountChoice::Auto.choose().unwrap_err());
            return;
        }
        for (choice, form) in [(MountChoice::Erofs, Form::Erofs), (MountChoice::Fuse, Form::Fuse)] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
            let chosen = choice.choose().unwrap();
            assert!(chosen.form == form && chosen.erofs_error.is_none(), "{chosen:?}");
        }
        "loop".parse::<MountChoice>().unwrap_err();
    }
}
