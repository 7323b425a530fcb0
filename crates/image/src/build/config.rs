//! The configuration of a built image: the base's, with the new layers and the user's settings.
//!
//! The configuration contains no time and no host, so builds are reproducible.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::block::OciDigest;
use crate::source::Config;
use crate::{Error, Result};

/// The settings of a user; an empty field keeps the base's value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildSettings {
    /// Environment variables, as `NAME` and `value`; other variables of the base are kept.
    pub environment: Vec<(String, String)>,
    /// The program and its first arguments. Replaces the base's `Cmd` too.
    pub entrypoint: Option<Vec<String>>,
    /// The command, or more arguments of the entrypoint.
    pub command: Option<Vec<String>>,
    /// The working folder of the process.
    pub working_folder: Option<String>,
    /// The user of the process.
    pub user: Option<String>,
    /// Labels by name; other labels of the base are kept.
    pub labels: BTreeMap<String, String>,
}

/// Encodes the configuration. `base` is the base's configuration, `names` are the names of the
/// added layers.
pub(super) fn encode<'a>(
    base: Option<&[u8]>,
    diff_ids: &[OciDigest],
    names: impl Iterator<Item = &'a str>,
    settings: &BuildSettings,
) -> Result<Vec<u8>> {
    let refuse =
        |error: serde_json::Error| Error::refused("the base's configuration", error.to_string());
    let plain = Config::plain(diff_ids.to_vec()).encode()?;
    let mut config: Map<String, Value> =
        serde_json::from_slice(base.unwrap_or(&plain)).map_err(refuse)?;
    config.insert("rootfs".to_owned(), json!({"type": "layers", "diff_ids": diff_ids}));
    // A history needs an entry for every layer, so there is none if the base has none.
    if let Some(Value::Array(history)) = config.get_mut("history") {
        history.extend(
            names.map(|name| json!({"created_by": format!("snowmelt image build: {name}")})),
        );
    }
    let section = config.entry("config").or_insert_with(|| json!({}));
    if !section.is_object() {
        *section = json!({});
    }
    if let Value::Object(section) = section {
        settings.apply(section);
    }
    serde_json::to_vec(&config).map_err(refuse)
}

impl BuildSettings {
    fn apply(&self, section: &mut Map<String, Value>) {
        let mut set = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                section.insert(key.to_owned(), value);
            }
        };
        if self.entrypoint.is_some() {
            set("Cmd", Some(Value::Null));
        }
        set("Entrypoint", self.entrypoint.as_ref().map(|words| json!(words)));
        set("Cmd", self.command.as_ref().map(|words| json!(words)));
        set("WorkingDir", self.working_folder.as_ref().map(|folder| json!(folder)));
        set("User", self.user.as_ref().map(|user| json!(user)));
        if !self.environment.is_empty() {
            let existing =
                section.get("Env").and_then(Value::as_array).cloned().unwrap_or_default();
            section.insert("Env".to_owned(), json!(self.merged_environment(&existing)));
        }
        if !self.labels.is_empty() {
            let existing = section.get("Labels").and_then(Value::as_object).cloned();
            let mut labels = existing.unwrap_or_default();
            labels.extend(self.labels.iter().map(|(name, value)| (name.clone(), json!(value))));
            section.insert("Labels".to_owned(), Value::Object(labels));
        }
    }

    fn merged_environment(&self, existing: &[Value]) -> Vec<String> {
        let is_set = |line: &&str| {
            let name = line.split_once('=').map_or(*line, |(name, _)| name);
            self.environment.iter().any(|(set, _)| set == name)
        };
        let kept = existing.iter().filter_map(Value::as_str).filter(|line| !is_set(line));
        let set = self.environment.iter().map(|(name, value)| format!("{name}={value}"));
        kept.map(str::to_owned).chain(set).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_replace_values_of_the_base_and_keep_the_others() {
        let base = json!({
            "architecture": "amd64", "os": "linux", "created": "2024-01-01T00:00:00Z",
            "config": {"Env": ["A=1", "B=2"], "Cmd": ["sh"], "Entrypoint": ["old"], "User": "me",
                       "Labels": {"a": "1", "b": "2"}},
            "rootfs": {"type": "layers", "diff_ids": []}, "history": [{"created_by": "base"}],
        });
        let settings = BuildSettings {
            environment: vec![("B".to_owned(), "3".to_owned()), ("C".to_owned(), "4".to_owned())],
            entrypoint: Some(vec!["python3".to_owned()]),
            labels: [("b".to_owned(), "3".to_owned())].into(),
            ..BuildSettings::default()
        };
        let diff_ids = [OciDigest::of(b"layer")];
        let bytes =
            encode(Some(base.to_string().as_bytes()), &diff_ids, ["code"].into_iter(), &settings);
        let found: Value = serde_json::from_slice(&bytes.unwrap()).unwrap();
        assert_eq!(found["config"]["Env"], json!(["A=1", "B=3", "C=4"]));
        assert_eq!(found["config"]["Labels"], json!({"a": "1", "b": "3"}));
        assert_eq!(found["config"]["Cmd"], Value::Null, "arguments of another program");
        assert_eq!(found["config"]["Entrypoint"], json!(["python3"]));
        assert_eq!((&found["config"]["User"], &found["created"]), (&json!("me"), &base["created"]));
        assert_eq!(found["rootfs"]["diff_ids"], json!(diff_ids));
        assert_eq!(found["history"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn an_image_without_a_base_has_a_valid_configuration() {
        let bytes = encode(None, &[], [].into_iter(), &BuildSettings::default()).unwrap();
        Config::parse(&bytes).unwrap();
    }
}
