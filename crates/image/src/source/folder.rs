//! A folder of files as an image of one layer.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use super::layer_archive::{PackOptions, write};
use super::{ConversionSource, Described};
use crate::{Error, Result};

/// A folder, which is read when its layer is read.
pub struct FolderOrigin {
    root: PathBuf,
    shape: PackOptions,
}

impl FolderOrigin {
    /// Opens an existing folder with the default shape.
    pub fn open(root: &Path) -> Result<Self> {
        Self::shaped(root, PackOptions::default())
    }

    /// Opens an existing folder with a shape.
    pub fn shaped(root: &Path, shape: PackOptions) -> Result<Self> {
        if !root.is_dir() {
            return Err(Error::missing(format!("the folder {}", root.display())));
        }
        Ok(Self { root: root.to_owned(), shape })
    }
}

impl ConversionSource for FolderOrigin {
    fn describe(&self) -> Result<Described> {
        Ok(Described { config: None, layers: 1, original: None })
    }

    fn layer(&self, _index: usize) -> Result<Box<dyn Read + '_>> {
        let failed = |source| Error::io("read", &self.root)(source);
        let (reader, writer) = io::pipe().map_err(failed)?;
        let root = self.root.clone();
        let shape = self.shape.clone();
        let thread = std::thread::Builder::new().name("image-folder".to_owned());
        let thread = thread.spawn(move || write(&root, &shape, writer)).map_err(failed)?;
        Ok(Box::new(FolderStream { reader, thread: Some(thread) }))
    }
}

/// The archive of a folder, written by another thread; an error of that thread is returned at the
/// end.
struct FolderStream {
    reader: io::PipeReader,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Read for FolderStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        if count == 0
            && !buffer.is_empty()
            && let Some(thread) = self.thread.take()
        {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the writer stopped")))?;
        }
        Ok(count)
    }
}
