//! Files of UDFs: models, data and modules that travel with the code. Requests name them by content;
//! the content is sent once.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The files of a piece of code by their names: relative paths, `model.pkl` or `data/words.txt`.
pub type FileRefs = BTreeMap<String, FileRef>;

/// The most files of a piece of code.
pub const MAX_FILES: usize = 1000;

/// The most bytes of all files of a piece of code together, 4 GiB.
pub const MAX_FILE_BYTES: u64 = 4 << 30;

/// The most bytes of a file's name, and of one part of it.
const MAX_NAME: usize = 512;
const MAX_PART: usize = 255;

/// A reference to a file by its content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileRef {
    /// SHA-256 of the file's bytes, as 64 lower-case hexadecimal characters.
    pub digest: String,
    /// The length of the file in bytes.
    pub size: u64,
}

/// Asks which contents the platform does not have.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FilesRequest {
    /// SHA-256 of each file's bytes, as 64 lower-case hexadecimal characters.
    pub digests: Vec<String>,
}

/// The contents that have to be sent.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct MissingFiles {
    /// Digests of the requested contents that the platform does not have, each once.
    pub missing: Vec<String>,
}

/// Returns whether a text can be the digest of a file. Digests become parts of paths.
pub fn is_file_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Checks the name of a file: a path that stays in its folder.
///
/// # Errors
/// The rule that the name breaks.
pub fn check_file_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("it is empty");
    }
    if name.len() > MAX_NAME || name.split('/').any(|part| part.len() > MAX_PART) {
        return Err("it is too long: 512 bytes are allowed, and 255 between two slashes");
    }
    if name.starts_with('/') {
        return Err("it is an absolute path");
    }
    if name.chars().any(char::is_control) {
        return Err("it has a control character");
    }
    if name.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(
            "it does not stay in the folder of the files: no part may be empty, `.` or `..`",
        );
    }
    Ok(())
}

/// Checks names, number and size of the files of a piece of code.
///
/// # Errors
/// The first file with a wrong name or digest, and the rule that it breaks.
pub fn check_files(files: &FileRefs) -> Result<(), String> {
    if files.len() > MAX_FILES {
        return Err(format!("there are {} files, and {MAX_FILES} are the most", files.len()));
    }
    let mut total = 0_u64;
    for (name, file) in files {
        check_file_name(name).map_err(|reason| format!("the name `{name}`: {reason}"))?;
        if !is_file_digest(&file.digest) {
            return Err(format!("the digest of `{name}` is not a SHA-256"));
        }
        if let Some(folder) = folders(name).find(|folder| files.contains_key(*folder)) {
            return Err(format!("`{folder}` is a file and also the folder of `{name}`"));
        }
        total = total.saturating_add(file.size);
    }
    if total > MAX_FILE_BYTES {
        let most = MAX_FILE_BYTES >> 30;
        return Err(format!("the files have {total} bytes together, and {most} GiB are the most"));
    }
    Ok(())
}

/// The folders above a file.
fn folders(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('/').map(|(at, _)| &name[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(size: u64) -> FileRef {
        FileRef { digest: "0123456789abcdef".repeat(4), size }
    }

    fn files(names: &[&str]) -> FileRefs {
        names.iter().map(|name| ((*name).to_owned(), file(1))).collect()
    }

    #[test]
    fn names_stay_in_their_folder() {
        for good in ["model.pkl", "data/words.txt", "ü ß.bin", "a/..b/c.", ".hidden"] {
            assert_eq!(check_file_name(good), Ok(()), "{good}");
        }
        let long = "x".repeat(256);
        let deep = "abcdefg/".repeat(70) + "x";
        for bad in [
            "",
            "/etc/passwd",
            "..",
            "../x",
            "a/../b",
            "a//b",
            "a/",
            "./a",
            "a/.",
            "a\0b",
            "a\nb",
            &long,
            &deep,
        ] {
            assert!(check_file_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn number_size_and_folders_are_checked() {
        assert_eq!(check_files(&files(&["a", "b/c", "b/d"])), Ok(()));
        let both = check_files(&files(&["b", "b/c/d"])).unwrap_err();
        assert!(both.contains("`b` is a file and also the folder of `b/c/d`"), "{both}");
        let many = (0..=MAX_FILES).map(|n| (n.to_string(), file(1))).collect();
        assert!(check_files(&many).unwrap_err().contains("1001 files, and 1000"));
        let large = (0..2).map(|n| (n.to_string(), file(MAX_FILE_BYTES / 2 + 1))).collect();
        assert!(check_files(&large).unwrap_err().contains("4 GiB are the most"));
        let huge = (0..2).map(|n| (n.to_string(), file(u64::MAX))).collect();
        assert!(check_files(&huge).is_err(), "the sum does not wrap");
        let wrong = FileRef { digest: "../../etc".to_owned(), size: 1 };
        let wrong = [("a".to_owned(), wrong)].into_iter().collect();
        assert!(check_files(&wrong).unwrap_err().contains("not a SHA-256"));
    }

    #[test]
    fn digests_are_parts_of_paths() {
        assert!(is_file_digest(&"0f".repeat(32)));
        for bad in ["", "0f", &"0F".repeat(32), &"./".repeat(32), &"0f".repeat(33)] {
            assert!(!is_file_digest(bad), "{bad}");
        }
    }
}
