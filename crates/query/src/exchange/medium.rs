//! How a stage writes its output for other stages.

use snowmelt_wire::ObjectsAt;

use super::levels::Level;

/// Medium and level of the exchange of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub(crate) medium: Medium,
    pub(crate) level: Level,
}

/// Where the output of a stage is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    /// In files that the platform grants.
    Files,
    /// In objects on S3.
    Objects(ObjectsAt),
}

impl Exchange {
    /// One line for EXPLAIN: `objects (level 1 of 2, combined)`; `files` is where files are.
    pub(crate) fn text(&self, files: &str) -> String {
        let Level { number, of, .. } = self.level;
        match &self.medium {
            Medium::Files => files.to_owned(),
            Medium::Objects(at) => {
                let level = match of {
                    1 => "1 level".to_owned(),
                    of => format!("level {number} of {of}"),
                };
                let written = if at.combined { "combined" } else { "not combined" };
                format!("objects ({level}, {written})")
            }
        }
    }

    /// The objects, if it has that medium.
    pub(crate) fn objects(&self) -> Option<&ObjectsAt> {
        match &self.medium {
            Medium::Files => None,
            Medium::Objects(at) => Some(at),
        }
    }
}
