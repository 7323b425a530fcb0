//! The files of a function's code, as they are sent.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use snowmelt_types::{ByteSize, Code, ErrorReport};
use snowmelt_wire::{CodeFile, SourceCode};

use crate::terminal::text;

/// Size limit of all files together: encoded in base64 they fit into one request.
const MAX_BYTES: ByteSize = ByteSize::mib(180);

/// Reads one file, or all files of a folder.
///
/// # Errors
/// `SM-0110` with the path that cannot be read or sent.
pub fn source(path: &Path) -> Result<SourceCode, ErrorReport> {
    let mut found = CollectedFiles::default();
    if path.is_dir() {
        found.folder(path, "")?;
    } else {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        found.file(path, name)?;
    }
    if found.files.is_empty() {
        return Err(ErrorReport::new(Code::OPTION, format!("{} is empty", path.display())));
    }
    Ok(SourceCode::Files { files: found.files })
}

/// All files of a folder of Python code, without those that tools leave there: hidden ones, byte
/// code, virtual environments.
///
/// # Errors
/// `SM-0110` with the path that cannot be read or sent.
pub fn python_files(folder: &Path) -> Result<BTreeMap<String, CodeFile>, ErrorReport> {
    let mut found = CollectedFiles { of_python: true, ..CollectedFiles::default() };
    found.folder(folder, "")?;
    Ok(found.files)
}

/// Whether a path in a folder of Python code was left there by tools, so that no function needs it.
fn is_left_by_tools(name: &str, path: &Path) -> bool {
    name.starts_with('.')
        || name == "__pycache__"
        || name.ends_with(".pyc")
        || path.join("pyvenv.cfg").is_file()
}

#[derive(Default)]
struct CollectedFiles {
    of_python: bool,
    files: BTreeMap<String, CodeFile>,
    bytes: u64,
}

impl CollectedFiles {
    fn folder(&mut self, folder: &Path, prefix: &str) -> Result<(), ErrorReport> {
        let entries = std::fs::read_dir(folder).map_err(|error| unreadable(folder, &error))?;
        for entry in entries {
            let path = entry.map_err(|error| unreadable(folder, &error))?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                return Err(refused(&path, "its name is not UTF-8"));
            };
            if self.of_python && is_left_by_tools(name, &path) {
                continue;
            }
            let name = format!("{prefix}{name}");
            match (path.is_dir(), path.is_symlink()) {
                // The link may point to a parent folder, which would be a loop.
                (true, true) => return Err(refused(&path, "it is a symbolic link to a folder")),
                (true, false) => self.folder(&path, &format!("{name}/"))?,
                (false, _) => self.file(&path, name)?,
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, name: String) -> Result<(), ErrorReport> {
        let found = path.metadata().map_err(|error| unreadable(path, &error))?;
        if !found.is_file() {
            return Err(refused(path, "it is neither a file nor a folder"));
        }
        self.bytes += found.len();
        if self.bytes > MAX_BYTES.bytes() {
            let message = format!("the files are larger than {MAX_BYTES} together");
            return Err(ErrorReport::new(Code::OPTION, message)
                .hint("put large files into an image, and name it with --image"));
        }
        let bytes = std::fs::read(path).map_err(|error| unreadable(path, &error))?;
        let executable = found.permissions().mode() & 0o111 != 0;
        self.files.insert(name, CodeFile::new(&bytes, executable));
        Ok(())
    }
}

fn refused(path: &Path, reason: &str) -> ErrorReport {
    ErrorReport::new(Code::OPTION, format!("{} cannot be sent: {reason}", path.display()))
}

/// The error for a path that cannot be read.
pub fn unreadable(path: &Path, error: &std::io::Error) -> ErrorReport {
    let reason = text::reason(error);
    ErrorReport::new(Code::OPTION, format!("{} cannot be read: {reason}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_folder_includes_all_files_and_refuses_links_to_folders() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("lib/deep")).unwrap();
        std::fs::write(folder.path().join("main"), "#!").unwrap();
        std::fs::set_permissions(
            folder.path().join("main"),
            std::fs::Permissions::from_mode(0o755),
        )
        .unwrap();
        symlink("../../main", folder.path().join("lib/deep/linked")).unwrap();
        let SourceCode::Files { files } = super::source(folder.path()).unwrap() else { panic!() };
        let names: Vec<_> = files.iter().map(|(name, file)| (&**name, file.executable)).collect();
        assert_eq!(names, [("lib/deep/linked", true), ("main", true)]);
        symlink("..", folder.path().join("lib/up")).unwrap();
        let refused = super::source(folder.path()).unwrap_err();
        assert!(refused.message.contains("lib/up cannot be sent"), "{refused}");
    }
}
