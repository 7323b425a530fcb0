//! `snowmelt du`: the disk use of the folders of the state, and the means to reduce each.
//!
//! Invariant: the command only reads, so it may run beside a server. A file with several links
//! counts once, in the first folder that has it.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use snowmelt_types::{ByteSize, Code, ErrorReport};

use crate::args::DuArgs;
use crate::config::Config;
use crate::output::list;
use crate::terminal::{CommandOutcome, Printer};

/// The parts of the state folder: name, content, means to make it smaller.
const KNOWN: [(&str, &str, &str); 19] = [
    ("packages", "packages of functions", "snowmelt prune; SNOWMELT_PACKAGES_MAX"),
    ("images", "images and code packages", "snowmelt prune, image rm"),
    ("blocks", "blocks of images in registries", "snowmelt prune; images.cache"),
    ("raw", "complete images, as the kernel mounts them", "snowmelt prune; images.raw"),
    ("tenants", "images of tenants, with raw files", "image rm, image prune --tenant"),
    ("starts", "which blocks starts read", "small"),
    ("debian", "Debian packages of image builds", "remove it while no image is built"),
    ("files", "files of functions, broadcast values", "snowmelt prune; SNOWMELT_FILES_MAX"),
    ("code", "code of functions", "snowmelt prune; a week after its use"),
    ("known", "signatures and other facts about code", "bounded"),
    ("footers", "footers of data files", "bounded by 256 MiB"),
    ("state.redb", "functions, calls and their results", "snowmelt prune --results; fn rm"),
    ("backups", "copies of the state", "the last five are kept"),
    ("audit", "who did what", "bounded by audit.file_size and audit.files"),
    ("logs", "what functions printed", "fn rm, --log"),
    ("udf-logs", "what functions of SQL printed", "udf rm; bounded"),
    ("bursts", "requests and answers of bursts", "10 minutes after their end"),
    ("pythons", "interpreters that uv fetched", "remove it while no server runs"),
    ("runtime", "the runtime for Python", "one for each version"),
];

/// The name of the row for everything that [`KNOWN`] does not name.
const REST: &str = "others";

/// A folder or another part of the state folder.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct FolderPart {
    name: &'static str,
    bytes: u64,
    files: u64,
    holds: &'static str,
    smaller: &'static str,
}

/// Prints what the parts of the state folder use, the largest first.
///
/// # Errors
/// `SM-0505` if a folder may not be read; `SM-0114` if stdout cannot be written to.
pub fn run(args: &DuArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let state = &config.state.value;
    if let Some(folder) = closed_to_us(state) {
        let message = format!("cannot read {}: permission denied", folder.display());
        let hint = "run it as root or as the user of the server; `snowmelt prune` shows what of your \
                    own tenant can be removed";
        return Err(ErrorReport::new(Code::STATE, message).hint(hint).into());
    }
    let parts = parts(state);
    let cells = |part: &FolderPart| {
        let size = ByteSize(part.bytes).to_string();
        [part.name, &size, part.holds, part.smaller].map(str::to_owned).to_vec()
    };
    let rows: Vec<Vec<String>> = parts.iter().map(cells).collect();
    list::print(args.output, &["folder", ">size", "holds", "made smaller by"], &rows, &parts)?;
    let all = parts.iter().map(|part| part.bytes).sum();
    printer.note(&format!("{} in {}", ByteSize(all), state.display()));
    Ok(0)
}

/// The state folder or one of its parts that this user may not read.
fn closed_to_us(state: &Path) -> Option<PathBuf> {
    let parts = KNOWN.iter().map(|(name, ..)| state.join(name));
    std::iter::once(state.to_owned()).chain(parts).find(|folder| {
        fs::read_dir(folder).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    })
}

fn parts(state: &Path) -> Vec<FolderPart> {
    let mut seen = HashSet::new();
    let mut parts: Vec<FolderPart> = KNOWN
        .iter()
        .map(|(name, holds, smaller)| {
            let (bytes, files) = used(&state.join(name), &mut seen);
            FolderPart { name, bytes, files, holds, smaller }
        })
        .collect();
    let entries = fs::read_dir(state).into_iter().flatten().flatten();
    let is_known = |path: &Path| KNOWN.iter().any(|(name, ..)| path.ends_with(name));
    let mut bytes = 0;
    let mut files = 0;
    for path in entries.map(|entry| entry.path()).filter(|path| !is_known(path)) {
        let (more, of) = used(&path, &mut seen);
        (bytes, files) = (bytes + more, files + of);
    }
    parts.push(FolderPart {
        name: REST,
        bytes,
        files,
        holds: "logs of the server, locks",
        smaller: "",
    });
    parts.retain(|part| part.files > 0);
    parts.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.name.cmp(b.name)));
    parts
}

/// Counts bytes on the disk and files; a path that cannot be read counts nothing.
fn used(path: &Path, seen: &mut HashSet<(u64, u64)>) -> (u64, u64) {
    let Ok(found) = fs::symlink_metadata(path) else { return (0, 0) };
    if !found.is_dir() {
        let is_new = found.nlink() < 2 || seen.insert((found.dev(), found.ino()));
        return (if is_new { found.blocks() * 512 } else { 0 }, 1);
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.fold((0, 0), |(bytes, files), entry| {
        let (more, of) = used(&entry.path(), seen);
        (bytes + more, files + of)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_count_once_and_unknown_files_are_shown() {
        let state = tempfile::tempdir().unwrap();
        let path = |name: &str| state.path().join(name);
        fs::create_dir_all(path("packages/wheels")).unwrap();
        fs::create_dir_all(path("packages/environments")).unwrap();
        fs::create_dir_all(path("logs/empty")).unwrap();
        fs::write(path("packages/wheels/a"), [1; 10_000]).unwrap();
        fs::hard_link(path("packages/wheels/a"), path("packages/environments/a")).unwrap();
        fs::write(path("state.redb"), [1; 100_000]).unwrap();
        fs::write(path("snowmelt.log"), "x").unwrap();
        let parts = parts(state.path());
        let shown: Vec<_> = parts.iter().map(|part| (part.name, part.files)).collect();
        assert_eq!(shown, [("state.redb", 1), ("packages", 2), (REST, 1)]);
        let one = fs::metadata(path("packages/wheels/a")).unwrap().blocks() * 512;
        assert_eq!(parts[1].bytes, one);
        assert!(super::parts(&path("none")).is_empty());
    }
}
