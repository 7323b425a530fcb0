//! The choice of how the node enforces that the functions of a job use their own addresses only.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use snowmelt_network::{HostNetworks, Options};

use crate::{Error, Result};

/// The method by which the node keeps the functions of a job to their own addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EnforcementChoice {
    /// By programs on control groups where the host has version 2 of them, by a seccomp notifier
    /// elsewhere.
    #[default]
    Auto,
    /// By programs on control groups; without them jobs have no networks.
    Groups,
    /// By a seccomp notifier, which answers the system calls of the functions.
    Notifier,
}

const ALL: [(EnforcementChoice, &str); 3] = [
    (EnforcementChoice::Auto, "auto"),
    (EnforcementChoice::Groups, "groups"),
    (EnforcementChoice::Notifier, "notifier"),
];

impl EnforcementChoice {
    /// Opens the networks of this host by `open`; `control_group` is the parent of the groups of all
    /// functions.
    pub(crate) fn open(
        self,
        control_group: &str,
        options: &Options,
        open: impl Fn(Options) -> snowmelt_network::Result<HostNetworks>,
    ) -> Result<HostNetworks> {
        let by_notifier = || Ok(open(options.clone())?);
        let by_groups = || -> Result<HostNetworks> {
            let group = Some(unified(control_group)?);
            Ok(open(Options { group, ..options.clone() })?)
        };
        match self {
            Self::Notifier => by_notifier(),
            Self::Groups => by_groups(),
            Self::Auto => by_groups().or_else(|error| {
                tracing::info!(%error, "addresses are enforced by a seccomp notifier");
                by_notifier()
            }),
        }
    }
}

fn unified(control_group: &str) -> Result<PathBuf> {
    snowmelt_sandbox::unified_group(control_group).ok_or_else(|| Error::Job {
        step: "find control groups of version 2 for the functions of a job".to_owned(),
        source: std::io::ErrorKind::Unsupported.into(),
    })
}

impl FromStr for EnforcementChoice {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let known = ALL.iter().find(|(_, name)| *name == text);
        known.map(|(choice, _)| *choice).ok_or_else(|| {
            let names = ALL.map(|(_, name)| name);
            format!("`{text}` is not one of {}", names.join(", "))
        })
    }
}

impl fmt::Display for EnforcementChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = ALL.iter().find(|(choice, _)| choice == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_parsed_as_it_is_displayed() {
        for (choice, name) in ALL {
            assert_eq!((name.parse(), choice.to_string()), (Ok(choice), name.to_owned()));
        }
        assert!(
            "cgroup".parse::<EnforcementChoice>().unwrap_err().contains("auto, groups, notifier")
        );
    }
}
