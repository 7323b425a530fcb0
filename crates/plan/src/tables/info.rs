//! Information about a table besides its columns: for the profile, and for progress.

use std::hash::{DefaultHasher, Hash, Hasher};

use datafusion::datasource::listing::PartitionedFile;
use object_store::ObjectMeta;

/// Information about a table for the profile.
#[derive(Clone, Debug)]
pub struct TableInfo {
    /// The name of the table in the SQL, or its location.
    pub name: String,
    /// Number of files.
    pub files: usize,
    /// Number of row groups in all files, or of pieces of files of other formats that workers can
    /// share.
    pub row_groups: usize,
    /// A digest of the names and versions of all files.
    pub version: u64,
}

/// A digest of the names and versions of files.
pub(crate) fn version_of<'a>(files: impl Iterator<Item = &'a ObjectMeta>) -> u64 {
    let mut digest = DefaultHasher::new();
    for file in files {
        let ObjectMeta { location, last_modified, size, e_tag, version } = file;
        (location.as_ref(), last_modified, size, e_tag, version).hash(&mut digest);
    }
    digest.finish()
}

/// Bytes of the columns that a query reads from a part of a file; stored with the part, for
/// progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadBytes(pub(crate) u64);

/// Bytes of a part of a file that a query reads: an upper bound where the columns are unknown.
pub(crate) fn read_bytes(part: &PartitionedFile) -> u64 {
    part.extension::<ReadBytes>().map_or(part.object_meta.size, |read| read.0)
}
