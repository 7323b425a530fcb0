//! How a stage writes its output for other stages, as planned. What the user chooses is `MediumChoice` of
//! `crates/wire`.

use snowmelt_wire::ObjectsAt;

use super::levels::Level;

/// Medium and level of the exchange of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The storage of the rows.
    pub medium: StageMedium,
    /// The level of the exchange, of those between two stages.
    pub level: Level,
    /// Why the output is stored although the query exchanges by streams. `None` if there is no such
    /// reason.
    pub not_streamed: Option<&'static str>,
}

/// The storage of the output of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StageMedium {
    /// Files that the platform grants.
    Files,
    /// Streams to the tasks of the stage's only reader, if there is room for all of them at once;
    /// files otherwise.
    Streams,
    /// Objects on S3.
    Objects(ObjectsAt),
}

/// The hosts of the tasks that exchange rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeReach {
    /// All tasks are on one host.
    OneHost,
    /// The tasks may be on several hosts.
    Hosts,
}

impl ExchangeReach {
    /// Returns the name, in EXPLAIN, of an exchange by files between such tasks.
    pub fn files(self) -> &'static str {
        match self {
            Self::OneHost => "files",
            Self::Hosts => "hosts",
        }
    }

    fn streams(self) -> &'static str {
        match self {
            Self::OneHost => "streams",
            Self::Hosts => "streams between hosts",
        }
    }
}

impl Exchange {
    /// Describes the exchange in a line of EXPLAIN: `objects (level 1 of 2, combined)`. `stored`
    /// says where files are, and `streamed` where the tasks are that stream.
    pub fn text(&self, stored: ExchangeReach, streamed: ExchangeReach) -> String {
        let Level { number, of, .. } = self.level;
        let files = stored.files();
        match &self.medium {
            StageMedium::Files => match self.not_streamed {
                Some(why) => format!("{files} ({why})"),
                None => files.to_owned(),
            },
            StageMedium::Streams => streamed.streams().to_owned(),
            StageMedium::Objects(at) => {
                let level = match of {
                    1 => "1 level".to_owned(),
                    of => format!("level {number} of {of}"),
                };
                let written = if at.combined { "combined" } else { "not combined" };
                format!("objects ({level}, {written})")
            }
        }
    }

    /// True if the rows of the exchange are to be streamed.
    pub fn is_streamed(&self) -> bool {
        self.medium == StageMedium::Streams
    }

    /// Returns where the objects are, if the medium is objects.
    pub fn objects(&self) -> Option<&ObjectsAt> {
        match &self.medium {
            StageMedium::Files | StageMedium::Streams => None,
            StageMedium::Objects(at) => Some(at),
        }
    }
}
