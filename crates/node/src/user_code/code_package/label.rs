//! The label in a package's configuration: the facts that are needed before it is mounted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use snowmelt_package::{Environment, Python, Wheel};

use crate::{Error, Result};

/// The name of the label in an image's configuration that makes the image a code package.
pub(super) const LABEL: &str = "dev.snowmelt.code-package";

/// The longest text of a label, in bytes: thousands of modules fit.
const LONGEST: usize = 1 << 20;

/// The description of a package, which its label holds as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Contents {
    /// The kind of Python that the package's wheels and byte code are made for.
    pub made_for: MadeFor,
    /// The name of the callable in the code that is called.
    pub handler: String,
    /// The modules that a zygote imports: those of the packages that the requirements name, and
    /// what the code imports at its top.
    pub modules: Vec<String>,
    /// The wheels in each layer below that of the code.
    pub layers: Vec<Vec<PackedWheel>>,
}

/// A kind of Python, for which wheels and byte code are made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct MadeFor {
    /// The major and minor version, such as `3.11`.
    pub version: String,
    /// The tag of the interpreter's binary interface, such as `cpython-311-x86_64-linux-gnu`.
    pub tag: String,
    /// The operating system and architecture, such as `linux-x86_64`.
    pub platform: String,
}

/// A wheel in a package, by the name and version of its distribution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PackedWheel {
    pub name: String,
    pub version: String,
    /// The top-level modules of the wheel: every name that `import` finds because of it.
    pub modules: Vec<String>,
}

#[derive(Deserialize)]
struct Configuration {
    #[serde(default)]
    config: LabelSection,
}

#[derive(Default, Deserialize)]
struct LabelSection {
    #[serde(default, rename = "Labels")]
    labels: Option<BTreeMap<String, String>>,
}

impl Contents {
    /// Describes an environment and the code for it. `is_one` says that all wheels are in one
    /// layer.
    pub fn new(
        handler: &str,
        modules: Vec<String>,
        environment: &Environment,
        is_one: bool,
        python: &Python,
    ) -> Self {
        let wheels = environment.wheels.iter().map(PackedWheel::from);
        let layers = match is_one {
            true => vec![wheels.collect()],
            false => wheels.map(|wheel| vec![wheel]).collect(),
        };
        Self { made_for: MadeFor::from(python), handler: handler.to_owned(), modules, layers }
    }

    /// Reads the description from the configuration of the image `name`, which has `layers` layers.
    ///
    /// # Errors
    /// `Error::CodePackage` for an image without the label, or whose label is damaged or names
    /// another number of layers.
    pub fn read(name: &str, configuration: &[u8], layers: usize) -> Result<Self> {
        let refuse = |reason: String, hint: &str| Error::CodePackage {
            name: name.to_owned(),
            reason,
            hint: hint.to_owned(),
        };
        let damaged = |reason: String| refuse(reason, "pack it again (snowmelt fn pack)");
        let found: Configuration =
            serde_json::from_slice(configuration).map_err(|error| damaged(error.to_string()))?;
        let Some(text) = found.config.labels.unwrap_or_default().remove(LABEL) else {
            let reason = format!("it is an image without the label {LABEL}");
            let hint = "make one with `snowmelt fn pack`; a program runs in an image with --image";
            return Err(refuse(reason, hint));
        };
        if text.len() > LONGEST {
            return Err(damaged(format!("its label has more than {LONGEST} bytes")));
        }
        let contents: Self =
            serde_json::from_str(&text).map_err(|error| damaged(format!("its label: {error}")))?;
        if contents.layers.len() + 1 != layers {
            let named = contents.layers.len() + 1;
            return Err(damaged(format!("it has {layers} layers and its label names {named}")));
        }
        Ok(contents)
    }

    /// Refuses, with both named in the error, a package that was made for another Python.
    pub fn check_fits(&self, name: &str, python: &Python) -> Result<()> {
        let here = MadeFor::from(python);
        if self.made_for == here {
            return Ok(());
        }
        Err(Error::CodePackage {
            name: name.to_owned(),
            reason: format!("it is made for {}, and this platform runs {here}", self.made_for),
            hint: format!(
                "pack it with Python {} on a machine like this one, or start the platform with \
                 Python {} (SNOWMELT_PYTHON)",
                here.version, self.made_for.version
            ),
        })
    }
}

impl From<&Python> for MadeFor {
    fn from(python: &Python) -> Self {
        let tag = python.tag.clone();
        let platform = python.platform.clone();
        Self { version: python.minor_version(), tag, platform }
    }
}

impl std::fmt::Display for MadeFor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Python {} ({}, {})", self.version, self.tag, self.platform)
    }
}

impl From<&Wheel> for PackedWheel {
    fn from(wheel: &Wheel) -> Self {
        let Wheel { name, version, modules, .. } = wheel.clone();
        Self { name, version, modules }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn contents() -> Contents {
        let wheel = |name: &str| PackedWheel {
            name: name.to_owned(),
            version: "1".to_owned(),
            modules: vec![name.to_owned()],
        };
        Contents {
            made_for: MadeFor {
                version: "3.99".to_owned(),
                tag: "cpython-399-riscv64-linux-gnu".to_owned(),
                platform: "linux-riscv64".to_owned(),
            },
            handler: "handler".to_owned(),
            modules: vec!["json".to_owned()],
            layers: vec![vec![wheel("numpy")], vec![wheel("six")]],
        }
    }

    fn configuration(label: &str) -> Vec<u8> {
        json!({"os": "linux", "config": {"Labels": {LABEL: label}}}).to_string().into_bytes()
    }

    #[test]
    fn a_label_is_read_as_it_was_written() {
        let text = serde_json::to_string(&contents()).unwrap();
        assert_eq!(Contents::read("app", &configuration(&text), 3).unwrap(), contents());
    }

    #[test]
    fn an_image_that_is_not_a_package_is_refused_by_name() {
        let text = serde_json::to_string(&contents()).unwrap();
        let large = text.replace("json", &"x".repeat(LONGEST));
        for (configuration, layers, reason) in [
            (b"{}".to_vec(), 3, "without the label"),
            (json!({"config": {"Labels": null}}).to_string().into_bytes(), 3, "without the label"),
            (b"[".to_vec(), 3, "EOF"),
            (configuration("{}"), 3, "missing field"),
            (configuration(&text), 2, "2 layers and its label names 3"),
            (configuration(&large), 3, "more than"),
        ] {
            let error = Contents::read("team/app:v1", &configuration, layers).unwrap_err();
            let text = error.to_string();
            assert!(text.contains("team/app:v1") && text.contains(reason), "{text}");
        }
    }

    #[test]
    fn a_package_for_another_python_names_both() {
        let folder = tempfile::tempdir().unwrap();
        let python = Python::discover(None, folder.path()).unwrap();
        let error = contents().check_fits("app", &python).unwrap_err().to_string();
        assert!(error.contains("3.99 (cpython-399-riscv64-linux-gnu, linux-riscv64)"), "{error}");
        assert!(error.contains(&python.tag), "{error}");
        let fits = Contents { made_for: MadeFor::from(&python), ..contents() };
        fits.check_fits("app", &python).unwrap();
    }
}
