//! User code on disk, once by content, in the form in which the runtime inside a sandbox reads it.

use std::io::Write;
use std::path::{Path, PathBuf};

use snowmelt_types::Digest;
use snowmelt_wire::Code;

use crate::{Error, Result};

/// The name of the file in a code folder.
pub(crate) const CODE_FILE: &str = "code.json";

/// A folder with a folder for each piece of code, named by its digest.
#[derive(Clone, Debug)]
pub struct CodeStore {
    root: PathBuf,
}

impl CodeStore {
    /// Uses a folder; makes it where it is missing.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self> {
        let root = root.into();
        std::fs::create_dir_all(&root).map_err(state(&root))?;
        Ok(Self { root })
    }

    /// Puts code there unless it is there already; gives its digest and folder.
    pub fn put(&self, code: &Code) -> Result<(Digest, PathBuf)> {
        let text = serde_json::to_vec(code)
            .map_err(|error| state(&self.root)(std::io::Error::other(error)))?;
        let digest = Digest::of(&text);
        let folder = self.root.join(digest.as_str());
        if !folder.join(CODE_FILE).exists() {
            self.write(&folder, &text)?;
        }
        Ok((digest, folder))
    }

    /// Writes beside the place and renames: a crash leaves no half-written code that is trusted.
    fn write(&self, folder: &Path, text: &[u8]) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(state(folder))?;
        let mut file = tempfile::Builder::new()
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .tempfile_in(folder)
            .map_err(state(folder))?;
        file.write_all(text).and_then(|()| file.as_file().sync_all()).map_err(state(folder))?;
        file.persist(folder.join(CODE_FILE)).map_err(|error| state(folder)(error.error))?;
        Ok(())
    }
}

fn state(path: &Path) -> impl Fn(std::io::Error) -> Error + use<'_> {
    move |source| Error::State { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Code {
        Code::Source { file: "udfs.py".into(), text: text.into() }
    }

    #[test]
    fn the_same_code_has_one_folder() {
        let folder = tempfile::tempdir().unwrap();
        let store = CodeStore::open(folder.path()).unwrap();
        let (first, place) = store.put(&code("x = 1")).unwrap();
        assert_eq!(store.put(&code("x = 1")).unwrap().0, first);
        assert_ne!(store.put(&code("x = 2")).unwrap().0, first);
        let read: Code =
            serde_json::from_slice(&std::fs::read(place.join(CODE_FILE)).unwrap()).unwrap();
        assert_eq!(read, code("x = 1"));
    }
}
