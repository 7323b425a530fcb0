//! Files beside the records: code and files of functions, requests and answers of bursts, and the
//! authority of the cluster.
//!
//! Each is a unit, a file or a folder of files, which has its name once it is whole. Units of code and
//! files of functions are named by their content; such a one that is there already is the same.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use snowmelt_types::{Code, Digest, ErrorReport};

use super::{CopyStep, StepWatch};
use crate::access::permissions::failure;

/// The file with the authority of the cluster.
const AUTHORITY: &str = "cluster/authority.json";
/// The folder of requests and answers of bursts.
const BURSTS: &str = "bursts";
/// The prefix of the name of a unit that is not whole.
const PARTIAL: &str = ".copy-";
/// The bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// The files of a store as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileSum {
    pub files: u64,
    pub digest: Digest,
}

/// Copies all units that are not there.
pub(super) async fn copy(from: &Path, to: &Path, watch: StepWatch) -> Result<(), ErrorReport> {
    blocking(from, to, move |from, to| {
        let mut copied = 0;
        let mut bytes = 0;
        for unit in units(from)? {
            // The authority and what bursts wrote may differ from what an earlier attempt has copied.
            let target = to.join(&unit);
            let is_named_by_content = !unit.starts_with(BURSTS) && unit != Path::new(AUTHORITY);
            if !(is_named_by_content && target.exists()) {
                bytes += copy_unit(&from.join(&unit), &target)?;
            }
            copied += 1;
            watch(CopyStep::Files(copied, bytes));
        }
        // Those of bursts which the source has forgotten since an earlier attempt.
        for unit in bursts(to)?.into_iter().filter(|unit| !from.join(unit).exists()) {
            std::fs::remove_file(to.join(unit))?;
        }
        Ok(())
    })
    .await
}

/// Reads all units on both sides.
///
/// # Errors
/// `SM-0541` with the unit that differs.
pub(super) async fn compare(
    from: &Path,
    to: &Path,
    watch: StepWatch,
) -> Result<FileSum, ErrorReport> {
    let compared = blocking(from, to, move |from, to| {
        let mut sum = FileSum { files: 0, digest: Digest::of("") };
        for unit in units(from)? {
            let here = digest(&from.join(&unit))?;
            if digest(&to.join(&unit))? != here {
                return Ok(Err(unit));
            }
            let name = unit.as_os_str().as_encoded_bytes();
            let parts = [sum.digest.as_str().as_bytes(), name, here.as_str().as_bytes()];
            sum = FileSum { files: sum.files + 1, digest: Digest::of_parts(parts) };
            watch(CopyStep::Compared(sum.files));
        }
        Ok(Ok(sum))
    });
    compared.await?.map_err(|unit| {
        let message = format!("the copy of {} differs", from.join(&unit).display());
        ErrorReport::new(Code::STORE_COPY, message)
            .hint(format!("remove {}, and run the command again", to.join(&unit).display()))
    })
}

/// Refuses a target that has bursts, or the authority of another cluster.
pub(super) async fn refuse_others(from: &Path, to: &Path) -> Result<(), ErrorReport> {
    let other = blocking(from, to, |from, to| {
        if let Some(burst) = bursts(to)?.pop() {
            return Ok(Some(burst));
        }
        let authority = PathBuf::from(AUTHORITY);
        let is_other = to.join(&authority).exists()
            && (!from.join(&authority).exists()
                || digest(&from.join(&authority))? != digest(&to.join(&authority))?);
        Ok(is_other.then_some(authority))
    });
    let Some(unit) = other.await? else { return Ok(()) };
    let message = format!("{} is of another platform", to.join(unit).display());
    Err(ErrorReport::new(Code::STORE_COPY, message).hint("name a folder that is empty"))
}

/// The units of a folder, sorted.
fn units(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let is_digest = |name: &str| Digest::parse(name).is_some();
    let mut units = below(folder, Path::new("code"), is_digest)?;
    for tenant in below(folder, Path::new("files/own"), |name| !name.starts_with('.'))? {
        // The folders of links to them are made when they are used.
        units.extend(below(folder, &tenant.join("blobs"), is_digest)?);
    }
    units.extend(bursts(folder)?);
    units.extend(Some(PathBuf::from(AUTHORITY)).filter(|unit| folder.join(unit).exists()));
    units.sort();
    Ok(units)
}

fn bursts(folder: &Path) -> io::Result<Vec<PathBuf>> {
    below(folder, Path::new(BURSTS), |name| name.ends_with(".json") || name.ends_with(".request"))
}

/// The entries of a folder with such names; none where the folder is missing.
fn below(root: &Path, folder: &Path, is_such: impl Fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
    let read = match std::fs::read_dir(root.join(folder)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read?,
    };
    let mut found = Vec::new();
    for entry in read {
        if let Some(name) = entry?.file_name().to_str().filter(|name| is_such(name)) {
            found.push(folder.join(name));
        }
    }
    Ok(found)
}

/// Copies a unit, which gets its name when it is whole and on the disk; returns its bytes.
fn copy_unit(from: &Path, to: &Path) -> io::Result<u64> {
    let (Some(folder), Some(name)) = (to.parent(), to.file_name()) else {
        return Err(io::Error::other("a unit has no name"));
    };
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let partial = folder.join(format!("{PARTIAL}{}", name.to_string_lossy()));
    // What an attempt that was killed has left.
    let left = std::fs::remove_dir_all(&partial).or_else(|_| std::fs::remove_file(&partial));
    if let Err(error) = left
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let bytes = copy_tree(from, &partial)?;
    std::fs::rename(&partial, to)?;
    File::open(folder)?.sync_all()?;
    Ok(bytes)
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<u64> {
    let found = regular(from)?;
    let mode = found.permissions().mode() & 0o777;
    if !found.is_dir() {
        let mut options = OpenOptions::new();
        let mut copy = options.write(true).create_new(true).mode(0o600).open(to)?;
        let bytes = io::copy(&mut File::open(from)?, &mut copy)?;
        copy.set_permissions(Permissions::from_mode(mode))?;
        copy.sync_all()?;
        return Ok(bytes);
    }
    DirBuilder::new().mode(0o700).create(to)?;
    let mut bytes = 0;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        bytes += copy_tree(&entry.path(), &to.join(entry.file_name()))?;
    }
    std::fs::set_permissions(to, Permissions::from_mode(mode))?;
    File::open(to)?.sync_all()?;
    Ok(bytes)
}

/// The digest of a file, or of a folder with all names, modes and contents in it.
fn digest(path: &Path) -> io::Result<Digest> {
    let found = regular(path)?;
    let mode = format!("{:o}", found.permissions().mode() & 0o777);
    let mut sum = Digest::of(mode);
    if !found.is_dir() {
        let mut file = File::open(path)?;
        let mut chunk = vec![0; CHUNK];
        loop {
            let count = file.read(&mut chunk)?;
            if count == 0 {
                return Ok(sum);
            }
            sum = Digest::of_parts([sum.as_str().as_bytes(), &chunk[..count]]);
        }
    }
    let mut names = std::fs::read_dir(path)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    for name in names {
        let inside = digest(&path.join(&name))?;
        let parts = [sum.as_str().as_bytes(), name.as_encoded_bytes(), inside.as_str().as_bytes()];
        sum = Digest::of_parts(parts);
    }
    Ok(sum)
}

/// The metadata of a file or folder. Servers write nothing else.
fn regular(path: &Path) -> io::Result<Metadata> {
    let found = std::fs::symlink_metadata(path)?;
    if found.is_file() || found.is_dir() {
        return Ok(found);
    }
    let message = format!("{} is neither a file nor a folder", path.display());
    Err(io::Error::other(message))
}

async fn blocking<T: Send + 'static>(
    from: &Path,
    to: &Path,
    work: impl FnOnce(&Path, &Path) -> io::Result<T> + Send + 'static,
) -> Result<T, ErrorReport> {
    let here = from.to_owned();
    let there = to.to_owned();
    let done = tokio::task::spawn_blocking(move || work(&here, &there)).await;
    let done = done.unwrap_or_else(|error| Err(io::Error::other(error)));
    done.map_err(|error| failure(to, &error))
}
