//! The exchange of rows between the stages of a query: the user's options, and the places of
//! objects.
//!
//! Invariant: options that passed [`ExchangeOptions::check`] name what an exchange needs.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use snowmelt_types::{ByteSize, Code, ErrorReport};
use utoipa::ToSchema;

/// The greatest number of levels of an exchange.
pub const MAX_LEVELS: u32 = 3;

/// The greatest number of locations over which an exchange spreads its objects.
pub const MAX_LOCATIONS: usize = 64;

/// The folder of all exchanges below a location. Each query has a folder in it, named by
/// [`exchange_folder`].
pub const EXCHANGES: &str = "snowmelt-exchange";

/// The medium that holds rows between two stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Medium)]
#[serde(rename_all = "kebab-case")]
pub enum MediumChoice {
    /// The medium that fits the hosts of the query.
    #[default]
    Auto,
    /// Files of one host, granted as descriptors.
    Files,
    /// Files of several hosts, which pass ranges of them to each other.
    Hosts,
    /// Streams between tasks that run at the same time, where that is possible; elsewhere the
    /// medium that fits the hosts of the query.
    Streams,
    /// Objects on S3 (Lambada 4.4).
    Objects,
}

/// The way in which a query exchanges rows between its stages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExchangeOptions {
    /// The medium of the exchanged rows.
    pub medium: MediumChoice,
    /// Places for `objects`, as `s3://bucket/prefix/`. Objects are spread over several places
    /// (Lambada 4.4.1).
    pub locations: Vec<String>,
    /// Levels of an exchange by objects, 1 to 3 (Lambada 4.4.2).
    pub levels: u32,
    /// True if a task writes all its partitions into one object (Lambada 4.4.3).
    pub combining: bool,
    /// The number of exchanged bytes that are worth a task: a stage that reads fewer has fewer
    /// tasks than workers.
    pub task_bytes: ByteSize,
}

impl Default for ExchangeOptions {
    fn default() -> Self {
        Self {
            medium: MediumChoice::Auto,
            locations: Vec::new(),
            levels: 1,
            combining: true,
            task_bytes: ByteSize::mib(16),
        }
    }
}

impl ExchangeOptions {
    /// True if rows are exchanged by objects.
    pub fn by_objects(&self) -> bool {
        self.medium == MediumChoice::Objects
    }

    /// True if rows are streamed between stages that can run at the same time.
    pub fn by_streams(&self) -> bool {
        self.medium == MediumChoice::Streams
    }

    /// Checks the options.
    ///
    /// # Errors
    /// `SM-0110`: no location, one that is not on S3, a wrong number of levels.
    pub fn check(&self) -> Result<(), ErrorReport> {
        let wrong = |message: String| ErrorReport::new(Code::OPTION, message);
        let example = "for example --exchange-location s3://bucket/prefix/";
        if !(1..=MAX_LEVELS).contains(&self.levels) {
            let message = format!("an exchange has 1 to {MAX_LEVELS} levels, not {}", self.levels);
            return Err(wrong(message));
        }
        if self.task_bytes.bytes() == 0 {
            return Err(wrong("a task of an exchange reads at least one byte".to_owned()));
        }
        if let Some(other) = self.locations.iter().find(|location| !is_bucket(location)) {
            let message = format!("`{other}` is not a location for an exchange by objects");
            return Err(wrong(message).hint(format!("write s3://BUCKET/PREFIX/, {example}")));
        }
        if self.locations.len() > MAX_LOCATIONS {
            let message = format!("an exchange has at most {MAX_LOCATIONS} locations");
            return Err(wrong(message));
        }
        if self.by_objects() && self.locations.is_empty() {
            let message = "an exchange by objects needs a location for them".to_owned();
            return Err(
                wrong(message).hint(format!("name a bucket that you may write to, {example}"))
            );
        }
        Ok(())
    }
}

/// True for `s3://bucket`, with or without a prefix of ordinary characters.
fn is_bucket(location: &str) -> bool {
    let Some((bucket, prefix)) = bucket_and_key(location) else { return false };
    let is_plain = |part: &str| !matches!(part, "." | "..") && !part.contains(['*', '?', '[']);
    !bucket.is_empty()
        && bucket.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
        && prefix.chars().all(|c| !c.is_control())
        && prefix.split('/').all(is_plain)
}

/// The bucket and the rest of an `s3://` location.
pub fn bucket_and_key(location: &str) -> Option<(&str, &str)> {
    let rest = location.strip_prefix("s3://").or_else(|| location.strip_prefix("s3a://"))?;
    Some(rest.split_once('/').unwrap_or((rest, "")))
}

/// The name of a query's folder: the time when the query was accepted, in seconds since 1970, and
/// its id. So a folder shows how long ago its query began.
pub fn exchange_folder(accepted_s: u64, query: &str) -> String {
    format!("{accepted_s}-{query}")
}

/// The objects that the tasks of one stage write for tasks of other stages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectsAt {
    /// The stage's folder in each location: `s3://bucket/prefix/…/2`. Not empty.
    pub folders: Vec<String>,
    /// True if a task writes all its partitions into one object.
    pub combined: bool,
}

impl ObjectsAt {
    /// The buckets of the folders.
    pub fn buckets(&self) -> BTreeSet<&str> {
        let all = self.folders.iter().filter_map(|folder| bucket_and_key(folder));
        all.map(|(bucket, _)| bucket).collect()
    }
}

/// The objects to which a task writes its batches, if it writes to no granted file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectOutput {
    /// The places of the objects.
    pub at: ObjectsAt,
    /// Partitions whose numbers agree but for the remainder by this go to the same cell of the
    /// level's grid (Lambada 4.4.2); 1 for the last level, whose cells are the partitions.
    pub unit: u32,
}

/// Removes what a query has left in the locations of its exchange.
#[derive(Clone, Serialize, Deserialize)]
pub struct Clean {
    /// The locations.
    pub locations: Vec<String>,
    /// The query's folder in each location.
    pub folder: String,
    /// The client's `AWS_*` variables.
    pub aws: std::collections::BTreeMap<String, String>,
}

impl std::fmt::Debug for Clean {
    // The values of `aws` are secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clean").field("folder", &self.folder).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(locations: &[&str]) -> ExchangeOptions {
        let locations = locations.iter().map(|location| (*location).to_owned()).collect();
        ExchangeOptions { medium: MediumChoice::Objects, locations, ..ExchangeOptions::default() }
    }

    fn refusal(options: &ExchangeOptions) -> String {
        options.check().unwrap_err().to_string()
    }

    #[test]
    fn objects_need_a_location_on_s3() {
        assert!(refusal(&objects(&[])).contains("--exchange-location s3://"));
        for wrong in ["data/", "s3://", "s3:///x", "http://x/", "s3://b/*.x", "s3://b/../c"] {
            assert!(refusal(&objects(&["s3://b", wrong])).contains(wrong), "{wrong}");
        }
        objects(&["s3://b", "s3://b/prefix/", "s3a://c/x/y"]).check().unwrap();
        ExchangeOptions::default().check().unwrap();
    }

    #[test]
    fn levels_are_one_to_three() {
        for (levels, right) in [(0, false), (1, true), (3, true), (4, false)] {
            let options = ExchangeOptions { levels, ..objects(&["s3://b/"]) };
            assert_eq!(options.check().is_ok(), right, "{levels}");
        }
    }

    #[test]
    fn the_buckets_of_an_exchange_are_those_of_its_folders() {
        let folders = ["s3://a/x/1", "s3://b/1", "s3://a/y/1"].map(str::to_owned).to_vec();
        let at = ObjectsAt { folders, combined: true };
        assert_eq!(at.buckets().into_iter().collect::<Vec<_>>(), ["a", "b"]);
    }
}
