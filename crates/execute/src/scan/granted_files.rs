//! A store of the files that a task was granted, as open descriptors.
//!
//! Invariant: no path is opened here. A file that was not granted does not exist.
//!
//! Reads run on the calling thread: most files are in the page cache, and a handover to another
//! thread costs more than the read. A long range is read piece by piece as its reader wants it: it
//! may be a whole file. Ranges that are wanted together, such as one for each column of a row
//! group, are mapped if they are many bytes for the memory of the task: the kernel keeps only the
//! pages that are used.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path as FilePath;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use snowmelt_kernel::mapping::Mapping;
use snowmelt_types::ErrorReport;
use snowmelt_wire::FileGrant;

use super::Counters;
use super::paths::local_path;
use crate::error::fault;

/// Bytes of a stream that are read at a time.
const STEP: u64 = 1 << 20;

/// The divisor of a task's memory that gives the most bytes that are read together into memory.
const READ_SHARE: u64 = 8;

/// The granted files by their name in the plan.
#[derive(Debug)]
pub struct GrantedFiles {
    files: HashMap<Path, GrantedFile>,
    counters: Arc<Counters>,
    /// The most bytes that are read together into memory.
    most_read: u64,
}

#[derive(Debug)]
struct GrantedFile {
    file: Arc<File>,
    path: String,
    version: String,
    meta: ObjectMeta,
}

impl GrantedFiles {
    /// Creates the store. A file that changed since planning is refused: its row groups would be at
    /// other offsets.
    pub fn new(grants: Vec<(FileGrant, File)>, counters: Arc<Counters>) -> crate::Result<Self> {
        let mut files = HashMap::with_capacity(grants.len());
        for (grant, file) in grants {
            let granted = GrantedFile::check(&grant, file)?;
            files.insert(granted.meta.location.clone(), granted);
        }
        Ok(Self { files, counters, most_read: u64::MAX })
    }

    /// Limits the bytes that are read together into memory to an eighth of `bytes`, the task's
    /// memory.
    pub(crate) fn for_memory(self, bytes: u64) -> Self {
        Self { most_read: bytes / READ_SHARE, ..self }
    }

    /// The report of the first file that changed since planning, if any.
    pub(crate) fn changed(&self) -> Option<ErrorReport> {
        let changed = |granted: &&GrantedFile| {
            !granted
                .file
                .metadata()
                .is_ok_and(|now| snowmelt_files::version(&now) == granted.version)
        };
        self.files.values().find(changed).map(|granted| fault::changed(&granted.path))
    }

    fn find(&self, location: &Path) -> Result<&GrantedFile> {
        self.files.get(location).ok_or_else(|| Error::NotFound {
            path: location.to_string(),
            source: "the task was not granted this file".into(),
        })
    }

    fn read(&self, location: &Path, range: Range<u64>) -> Result<Bytes> {
        read(&self.find(location)?.file, &self.counters, location, range)
    }

    /// Reads a range as far as the stream is polled.
    fn stream(
        &self,
        location: &Path,
        range: Range<u64>,
    ) -> Result<BoxStream<'static, Result<Bytes>>> {
        let file = Arc::clone(&self.find(location)?.file);
        let counters = Arc::clone(&self.counters);
        let location = location.clone();
        let steps = range.clone().step_by(STEP as usize);
        let piece = move |start| {
            let end = range.end.min(start + STEP);
            read(&file, &counters, &location, start..end)
        };
        Ok(stream::iter(steps.map(piece)).boxed())
    }
}

fn read(file: &File, counters: &Counters, location: &Path, range: Range<u64>) -> Result<Bytes> {
    let length = range.end.saturating_sub(range.start) as usize;
    let mut buffer = vec![0; length];
    file.read_exact_at(&mut buffer, range.start).map_err(|error| generic(location, error))?;
    counters.count(length as u64);
    Ok(buffer.into())
}

impl GrantedFile {
    fn check(grant: &FileGrant, file: File) -> crate::Result<Self> {
        let path = FilePath::new(&grant.path);
        let io = |source| snowmelt_files::Error::Io { path: path.to_owned(), source };
        let metadata = file.metadata().map_err(io)?;
        let version = snowmelt_files::version(&metadata);
        if metadata.len() != grant.bytes || version != grant.version {
            return Err(crate::Error::FileChanged { file: grant.path.clone() });
        }
        let meta = ObjectMeta {
            location: local_path(path)?,
            last_modified: metadata.modified().map_err(io)?.into(),
            size: metadata.len(),
            e_tag: None,
            version: None,
        };
        Ok(Self { file: Arc::new(file), path: grant.path.clone(), version, meta })
    }

    /// Maps a range of the file; `None` if that is not possible.
    fn map(&self, range: &Range<u64>) -> Option<Bytes> {
        Mapping::of(&self.file, range.clone()).ok().map(Bytes::from_owner)
    }
}

fn generic(location: &Path, error: std::io::Error) -> Error {
    Error::Generic { store: "GrantedFiles", source: format!("{location}: {error}").into() }
}

fn resolve(range: Option<GetRange>, size: u64) -> Range<u64> {
    match range {
        None => 0..size,
        Some(GetRange::Bounded(range)) => range.start..range.end.min(size),
        Some(GetRange::Offset(start)) => start.min(size)..size,
        Some(GetRange::Suffix(length)) => size.saturating_sub(length)..size,
    }
}

fn read_only<T>() -> Result<T> {
    let source = "granted files can only be read".into();
    Err(Error::NotSupported { source })
}

impl fmt::Display for GrantedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GrantedFiles({})", self.files.len())
    }
}

#[async_trait]
impl ObjectStore for GrantedFiles {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let meta = self.find(location)?.meta.clone();
        options.check_preconditions(&meta)?;
        let range = resolve(options.range, meta.size);
        let data = match options.head {
            true => stream::empty().boxed(),
            false => self.stream(location, range.clone())?,
        };
        let payload = GetResultPayload::Stream(data);
        Ok(GetResult { payload, meta, range, attributes: Attributes::default() })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let together: u64 = ranges.iter().map(|range| range.end.saturating_sub(range.start)).sum();
        let file = self.find(location)?;
        let read = |range: &Range<u64>| {
            // Some file systems have no mappings.
            let mapped = (together > self.most_read).then(|| file.map(range)).flatten();
            match mapped {
                Some(bytes) => {
                    self.counters.count(bytes.len() as u64);
                    Ok(bytes)
                }
                None => self.read(location, range.clone()),
            }
        };
        ranges.iter().map(read).collect()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let below = |path: &Path| prefix.is_none_or(|prefix| path.prefix_matches(prefix));
        let metas = self.files.values().map(|file| file.meta.clone());
        let found: Vec<_> = metas.filter(|meta| below(&meta.location)).map(Ok).collect();
        stream::iter(found).boxed()
    }

    async fn list_with_delimiter(&self, _prefix: Option<&Path>) -> Result<ListResult> {
        read_only()
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        read_only()
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        read_only()
    }

    fn delete_stream(
        &self,
        _: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        stream::once(async { read_only() }).boxed()
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        read_only()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use object_store::ObjectStoreExt;

    use super::*;

    fn store(announced: u64) -> crate::Result<(GrantedFiles, Arc<Counters>)> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let version = snowmelt_files::version(&file.metadata().unwrap());
        let path = "/data/a b.parquet".to_owned();
        let grant = FileGrant { path, bytes: announced, version };
        let counters = Arc::new(Counters::default());
        Ok((GrantedFiles::new(vec![(grant, file)], Arc::clone(&counters))?, counters))
    }

    #[tokio::test]
    async fn granted_files_are_served_and_counted() {
        let (store, counters) = store(10).unwrap();
        let path = local_path(FilePath::new("/data/a b.parquet")).unwrap();
        assert_eq!(store.get_range(&path, 2..5).await.unwrap().as_ref(), b"234");
        let ranges = store.get_ranges(&path, &[0..1, 9..10]).await.unwrap();
        assert_eq!(ranges.concat(), b"09");
        assert_eq!(store.head(&path).await.unwrap().size, 10);
        assert_eq!(counters.read(), (5, 3));
    }

    #[tokio::test]
    async fn many_bytes_that_are_read_together_are_mapped() {
        let path = local_path(FilePath::new("/data/a b.parquet")).unwrap();
        for (memory, mapped) in [(63, true), (64, false)] {
            let (store, counters) = store(10).unwrap();
            let store = store.for_memory(memory);
            let read = store.get_ranges(&path, &[1..4, 5..10]).await.unwrap();
            assert_eq!(read.concat(), b"12356789");
            assert_eq!(counters.read(), (8, 2));
            // What is written afterwards is seen in a mapping only.
            store.files.values().next().unwrap().file.write_all_at(b"x", 2).unwrap();
            assert_eq!(read[0][1] == b'x', mapped, "{memory}");
        }
    }

    #[tokio::test]
    async fn a_long_range_is_read_piece_by_piece() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..2 * STEP + 10).map(|at| at as u8).collect();
        file.write_all(&bytes).unwrap();
        let version = snowmelt_files::version(&file.metadata().unwrap());
        let grant = FileGrant { path: "/x".to_owned(), bytes: bytes.len() as u64, version };
        let counters = Arc::new(Counters::default());
        let store = GrantedFiles::new(vec![(grant, file)], Arc::clone(&counters)).unwrap();
        let mut pieces = store.get(&"x".into()).await.unwrap().into_stream();
        let first = pieces.next().await.unwrap().unwrap();
        assert_eq!((first.len() as u64, counters.read()), (STEP, (STEP, 1)));
        let rest: Vec<Bytes> = pieces.map(Result::unwrap).collect().await;
        assert_eq!([first.to_vec(), rest.concat()].concat(), bytes);
    }

    #[tokio::test]
    async fn other_files_do_not_exist_in_the_store() {
        let (store, _) = store(10).unwrap();
        let path = local_path(FilePath::new("/etc/passwd")).unwrap();
        assert!(matches!(store.get_range(&path, 0..1).await, Err(Error::NotFound { .. })));
        assert!(store.put(&path, "x".into()).await.is_err());
    }

    #[test]
    fn a_changed_file_is_refused() {
        assert!(matches!(store(11), Err(crate::Error::FileChanged { .. })));
    }

    #[test]
    fn a_change_of_an_open_file_is_detected() {
        let (store, _) = store(10).unwrap();
        assert!(store.changed().is_none());
        store.files.values().next().unwrap().file.write_all_at(b"x", 10).unwrap();
        let report = store.changed().unwrap().to_string();
        assert!(report.contains("SM-0116") && report.contains("/data/a b.parquet"), "{report}");
    }
}
