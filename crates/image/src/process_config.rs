//! The part of an image's configuration that describes its process (OCI image specification,
//! `config`).
//!
//! Invariant: the configuration is untrusted. Its strings contain no zero bytes; nothing else is
//! checked.

use serde::Deserialize;

use crate::{Error, Result};

/// Environment, command, folder and user of an image's process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunConfig {
    /// `NAME`, `value`, in the order of the configuration.
    pub environment: Vec<(String, String)>,
    /// The program and its first arguments.
    pub entrypoint: Vec<String>,
    /// More arguments, or program and arguments where there is no entrypoint.
    pub command: Vec<String>,
    /// The working folder.
    pub working_folder: Option<String>,
    /// User and group: `user`, `uid`, `user:group`, `uid:gid`.
    pub user: Option<String>,
}

#[derive(Deserialize)]
struct Document {
    config: Option<RunSection>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct RunSection {
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    working_dir: Option<String>,
    user: Option<String>,
}

impl RunConfig {
    /// Parses the bytes of a configuration.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let refuse = |reason: String| Error::refused("the image's configuration", reason);
        let document: Document =
            serde_json::from_slice(bytes).map_err(|error| refuse(error.to_string()))?;
        let section = document.config.unwrap_or_default();
        let environment: Vec<String> = section.env.unwrap_or_default();
        let (entrypoint, command) =
            (section.entrypoint.unwrap_or_default(), section.cmd.unwrap_or_default());
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let folder = given(section.working_dir);
        let user = given(section.user);
        let mut texts = environment.iter().chain(&entrypoint).chain(&command);
        if texts.any(|text| text.contains('\0'))
            || folder.iter().chain(&user).any(|text| text.contains('\0'))
        {
            return Err(refuse("a string has a zero byte".to_owned()));
        }
        let variable = |line: &String| {
            let (name, value) = line.split_once('=')?;
            (!name.is_empty()).then(|| (name.to_owned(), value.to_owned()))
        };
        let environment = environment.iter().filter_map(variable).collect();
        Ok(Self { environment, entrypoint, command, working_folder: folder, user })
    }

    /// Returns the program and its arguments; empty if the image does not define any.
    pub fn words(&self) -> Vec<String> {
        self.entrypoint.iter().chain(&self.command).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_docker_writes() {
        let text = r#"{"architecture": "amd64", "config": {"Env": ["PATH=/bin", "A=b=c", "odd", "=x"],
            "Entrypoint": ["/serve"], "Cmd": ["--fast"], "WorkingDir": "/app", "User": "web:7",
            "Labels": null}}"#;
        let found = RunConfig::parse(text.as_bytes()).unwrap();
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(found.environment, [variable("PATH", "/bin"), variable("A", "b=c")]);
        assert_eq!(found.words(), ["/serve", "--fast"]);
        assert_eq!(found.working_folder.as_deref(), Some("/app"));
        assert_eq!(found.user.as_deref(), Some("web:7"));
    }

    #[test]
    fn missing_and_empty_fields_are_unset() {
        for text in [
            "{}",
            r#"{"config": null}"#,
            r#"{"config": {"Env": null, "Cmd": null, "WorkingDir": "", "User": ""}}"#,
        ] {
            assert_eq!(RunConfig::parse(text.as_bytes()).unwrap(), RunConfig::default(), "{text}");
        }
    }

    #[test]
    fn refuses_zero_bytes_and_wrong_types() {
        for text in [
            r#"{"config": {"Env": ["A=\u0000"]}}"#,
            r#"{"config": {"Cmd": ["\u0000"]}}"#,
            r#"{"config": {"WorkingDir": "/\u0000"}}"#,
            r#"{"config": {"Env": "A=b"}}"#,
            "[]",
        ] {
            RunConfig::parse(text.as_bytes()).unwrap_err();
        }
    }
}
