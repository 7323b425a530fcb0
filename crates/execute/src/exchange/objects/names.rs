//! The names of the objects of an exchange.
//!
//! A name is used by one attempt of one task (Lambada 4.4.1: the name has sender and receiver), so
//! an object is written once and never replaced.

use object_store::path::Path;
use snowmelt_wire::{ObjectsAt, bucket_and_key};

use crate::scan::paths::object_path;

/// An object of an exchange.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::exchange) struct Object {
    task: u32,
    bucket: String,
    key: Path,
}

impl Object {
    /// Returns the task that writes the object.
    pub(in crate::exchange) fn task(&self) -> u32 {
        self.task
    }

    pub(super) fn bucket(&self) -> &str {
        &self.bucket
    }

    pub(super) fn key(&self) -> &Path {
        &self.key
    }
}

impl std::fmt::Display for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.key)
    }
}

/// Names the object with a number of an attempt. If partitions are not combined, each has objects
/// of its own. Objects are spread over the folders by their sender, or by sender and receiver.
pub(in crate::exchange) fn object(
    at: &ObjectsAt,
    task: u32,
    attempt: u32,
    partition: u32,
    number: u32,
) -> Object {
    let (spread, name) = match at.combined {
        true => (u64::from(task), number.to_string()),
        false => (u64::from(task) + u64::from(partition), format!("{partition}.{number}")),
    };
    let count = at.folders.len().max(1) as u64;
    let folder = at.folders.get((spread % count) as usize).map_or("", String::as_str);
    let (bucket, key) = bucket_and_key(folder).unwrap_or_default();
    let key = object_path(&format!("{key}/{task}.{attempt}/{name}"));
    Object { task, bucket: bucket.to_owned(), key }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(folders: &[&str], combined: bool) -> ObjectsAt {
        ObjectsAt { folders: folders.iter().map(|folder| (*folder).to_owned()).collect(), combined }
    }

    #[test]
    fn names_have_task_attempt_and_receiver() {
        let name = |combined| object(&at(&["s3://b/x/2"], combined), 7, 1, 5, 0).to_string();
        assert_eq!(name(true), "s3://b/x/2/7.1/0");
        assert_eq!(name(false), "s3://b/x/2/7.1/5.0");
        assert_eq!(object(&at(&["s3://b/2"], true), 0, 0, 0, 3).to_string(), "s3://b/2/0.0/3");
    }

    #[test]
    fn objects_are_spread_over_the_folders() {
        let folders = ["s3://a/1", "s3://b/1", "s3://b/x/1"];
        let folder = |combined, task, partition| {
            object(&at(&folders, combined), task, 0, partition, 0).to_string()
        };
        for task in 0..6 {
            assert!(folder(true, task, 9).starts_with(folders[task as usize % 3]));
            // The partitions of a task, and the senders of a partition, are spread.
            assert!(folder(false, task, 0).starts_with(folders[task as usize % 3]));
            assert!(folder(false, 0, task).starts_with(folders[task as usize % 3]));
        }
    }
}
