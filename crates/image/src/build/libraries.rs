//! Finds the shared libraries that packages need and an image lacks: a wheel contains most of its
//! libraries, but not those that every system is expected to have.
//!
//! Invariant: files of packages are untrusted. Each offset and length is checked against a limit
//! before anything is read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::filesystem::erofs;
use crate::filesystem::tree::{NodeId, Tree};
use crate::read::{BlobReader, BlockStore, LocalSource};
use crate::source::OciLayout;
use crate::{Error, Image, Result};

const MAX_SEGMENTS: u16 = 256;
const MAX_DYNAMIC_BYTES: u64 = 1 << 20;
const MAX_NAMES_BYTES: u64 = 16 << 20;
/// The maximum depth of folders in a package.
const MAX_DEPTH: usize = 64;

const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const NEEDED: u64 = 1;
const NAMES: u64 = 5;
const NAMES_BYTES: u64 = 10;

/// Libraries that wheels expect from the system, and the Debian packages that contain them.
const PACKAGES: &[(&str, &str)] = &[
    ("ld-linux-aarch64.so.1", "libc6"),
    ("ld-linux-x86-64.so.2", "libc6"),
    ("libGL.so.1", "libgl1"),
    ("libICE.so.6", "libice6"),
    ("libSM.so.6", "libsm6"),
    ("libX11.so.6", "libx11-6"),
    ("libXext.so.6", "libxext6"),
    ("libXrender.so.1", "libxrender1"),
    ("libatomic.so.1", "libatomic1"),
    ("libbz2.so.1.0", "libbz2-1.0"),
    ("libc.so.6", "libc6"),
    ("libcrypt.so.1", "libcrypt1"),
    ("libcrypto.so.3", "libssl3"),
    ("libdl.so.2", "libc6"),
    ("libexpat.so.1", "libexpat1"),
    ("libffi.so.8", "libffi8"),
    ("libgcc_s.so.1", "libgcc-s1"),
    ("libgfortran.so.5", "libgfortran5"),
    ("libglib-2.0.so.0", "libglib2.0-0"),
    ("libgobject-2.0.so.0", "libglib2.0-0"),
    ("libgomp.so.1", "libgomp1"),
    ("libgthread-2.0.so.0", "libglib2.0-0"),
    ("liblzma.so.5", "liblzma5"),
    ("libm.so.6", "libc6"),
    ("libncursesw.so.6", "libncursesw6"),
    ("libnsl.so.1", "libnsl2"),
    ("libpthread.so.0", "libc6"),
    ("libquadmath.so.0", "libquadmath0"),
    ("libresolv.so.2", "libc6"),
    ("librt.so.1", "libc6"),
    ("libssl.so.3", "libssl3"),
    ("libstdc++.so.6", "libstdc++6"),
    ("libtinfo.so.6", "libtinfo6"),
    ("libutil.so.1", "libc6"),
    ("libuuid.so.1", "libuuid1"),
    ("libxcb.so.1", "libxcb1"),
    ("libz.so.1", "zlib1g"),
];

/// Libraries that packages need but do not contain, each with a package that needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Libraries {
    needed: BTreeMap<String, String>,
    contained: BTreeSet<String>,
}

impl Libraries {
    /// Adds a package that is unpacked in a folder.
    pub fn add(&mut self, name: &str, folder: &Path) -> Result<()> {
        self.add_folder(name, folder, 0)
    }

    /// Returns the libraries that no package contains, each with a package that needs it.
    pub fn needed(&self) -> impl Iterator<Item = (&str, &str)> {
        let needed = self.needed.iter().filter(|(library, _)| !self.contained.contains(*library));
        needed.map(|(library, by)| (library.as_str(), by.as_str()))
    }

    /// Returns the Debian packages of the needed libraries, as far as they are known, without
    /// packages that every base has.
    pub fn packages(&self) -> BTreeSet<&'static str> {
        let packages = self.needed().filter_map(|(library, _)| debian_package(library));
        packages.filter(|package| *package != "libc6").collect()
    }

    /// Returns the needed libraries that an image of a layout folder does not contain under any
    /// path, each with a package that needs it.
    pub async fn missing(
        &self,
        layout: &OciLayout,
        image: &Image,
    ) -> Result<Vec<(String, String)>> {
        let source = Arc::new(LocalSource::new(layout.folder()));
        let blocks = Arc::new(BlockStore::new(source, None));
        let reader = BlobReader::new(blocks, image.metadata.clone())?;
        let metadata = reader.read(0..image.metadata.raw_size).await?;
        let (tree, _) = erofs::read(&metadata)?;
        let mut names = BTreeSet::new();
        collect(&tree, &mut names);
        let lacks = |library: &str| !names.contains(library.as_bytes());
        let missing = self.needed().filter(|(library, _)| lacks(library));
        Ok(missing.map(|(library, by)| (library.to_owned(), by.to_owned())).collect())
    }

    fn add_folder(&mut self, name: &str, folder: &Path, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Ok(());
        }
        for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
            let entry = entry.map_err(Error::io("read", folder))?;
            let path = entry.path();
            let file = entry.file_name();
            let kind = entry.file_type().map_err(Error::io("read", &path))?;
            let file = file.to_string_lossy();
            if kind.is_dir() {
                self.add_folder(name, &path, depth + 1)?;
            } else if kind.is_file() && file.contains(".so") {
                self.contained.insert(file.into_owned());
                // The content decides: only ELF files need libraries.
                let opened = File::open(&path).map_err(Error::io("open", &path))?;
                for library in needed_by(&opened).unwrap_or_default() {
                    self.needed.entry(library).or_insert_with(|| name.to_owned());
                }
            }
        }
        Ok(())
    }
}

/// Returns the Debian package of a library, if it is one that wheels expect from the system.
pub fn debian_package(library: &str) -> Option<&'static str> {
    let found = PACKAGES.binary_search_by(|(name, _)| (*name).cmp(library)).ok()?;
    Some(PACKAGES[found].1)
}

fn collect(tree: &Tree, names: &mut BTreeSet<Vec<u8>>) {
    let mut folders: Vec<NodeId> = vec![Tree::ROOT];
    while let Some(folder) = folders.pop() {
        for (name, child) in &tree.node(folder).children {
            names.insert(name.clone());
            folders.push(*child);
        }
    }
}

/// Reads the libraries that a 64-bit ELF file needs (`DT_NEEDED`).
fn needed_by(file: &File) -> io::Result<Vec<String>> {
    let bad = || io::Error::from(io::ErrorKind::InvalidData);
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0)?;
    if &header[..6] != b"\x7fELF\x02\x01" {
        return Err(bad());
    }
    let segments = Segments::read(file, &header)?;
    let (at, bytes) = segments.dynamic.ok_or_else(bad)?;
    let dynamic = piece(file, at, bytes, MAX_DYNAMIC_BYTES)?;
    let entries = || dynamic.chunks_exact(16).map(|entry| (number(entry, 0), number(entry, 8)));
    let value = |tag| entries().find(|(found, _)| *found == tag).map(|(_, value)| value);
    let names = value(NAMES).and_then(|address| segments.offset(address)).ok_or_else(bad)?;
    let names = piece(file, names, value(NAMES_BYTES).ok_or_else(bad)?, MAX_NAMES_BYTES)?;
    let name = |at: u64| {
        let text = names.get(usize::try_from(at).ok()?..)?;
        let text = text.split(|byte| *byte == 0).next()?;
        String::from_utf8(text.to_vec()).ok().filter(|name| !name.is_empty())
    };
    let needed = entries().filter(|(tag, _)| *tag == NEEDED);
    Ok(needed.filter_map(|(_, at)| name(at)).collect())
}

/// The segments of an ELF file.
struct Segments {
    /// Address, offset and size of each loaded segment, in bytes.
    loaded: Vec<(u64, u64, u64)>,
    /// Offset and size of the dynamic section, in bytes.
    dynamic: Option<(u64, u64)>,
}

impl Segments {
    fn read(file: &File, header: &[u8; 64]) -> io::Result<Self> {
        let at = number(header, 32);
        let size = u64::from(short(header, 54));
        let count = short(header, 56);
        if size < 56 || count > MAX_SEGMENTS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let table = piece(file, at, size * u64::from(count), size * u64::from(count))?;
        let mut segments = Self { loaded: Vec::new(), dynamic: None };
        for entry in table.chunks_exact(size as usize) {
            let offset = number(entry, 8);
            let address = number(entry, 16);
            let bytes = number(entry, 32);
            match u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]) {
                LOAD => segments.loaded.push((address, offset, bytes)),
                DYNAMIC => segments.dynamic = Some((offset, bytes)),
                _ => {}
            }
        }
        Ok(segments)
    }

    fn offset(&self, address: u64) -> Option<u64> {
        let inside = |(begin, _, bytes): &&(u64, u64, u64)| {
            address.checked_sub(*begin).is_some_and(|at| at < *bytes)
        };
        let (begin, offset, _) = self.loaded.iter().find(inside)?;
        offset.checked_add(address - begin)
    }
}

fn piece(file: &File, at: u64, bytes: u64, most: u64) -> io::Result<Vec<u8>> {
    // Checked before memory is allocated for it.
    let end = at.checked_add(bytes).filter(|_| bytes <= most);
    if end.is_none_or(|end| file.metadata().is_ok_and(|found| end > found.len())) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut piece = vec![0; bytes as usize];
    file.read_exact_at(&mut piece, at)?;
    Ok(piece)
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_table_is_sorted() {
        assert!(PACKAGES.is_sorted_by(|one, other| one.0 < other.0));
        assert_eq!(debian_package("libstdc++.so.6"), Some("libstdc++6"));
        assert_eq!(debian_package("libnone.so.1"), None);
    }

    #[test]
    fn finds_the_libraries_of_an_elf_file() {
        let ours = std::env::current_exe().unwrap();
        let needed = needed_by(&File::open(&ours).unwrap()).unwrap();
        assert!(needed.iter().any(|library| library == "libc.so.6"), "{needed:?}");
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("deep")).unwrap();
        fs::copy(&ours, folder.path().join("deep/_ours.so")).unwrap();
        fs::write(folder.path().join("libnone.so"), "no library").unwrap();
        let mut libraries = Libraries::default();
        libraries.add("ours", folder.path()).unwrap();
        assert!(libraries.needed().any(|found| found == ("libc.so.6", "ours")));
        // A library that a package contains is not needed from the system.
        fs::write(folder.path().join("libc.so.6"), "").unwrap();
        libraries.add("another", folder.path()).unwrap();
        assert!(libraries.needed().all(|(library, _)| library != "libc.so.6"));
        assert!(!libraries.packages().contains("libc6"));
    }

    #[test]
    fn damaged_files_are_handled_without_large_allocations() {
        let whole = fs::read(std::env::current_exe().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.so");
        let segments = number(&whole, 32) as usize;
        for at in (0..64).chain(segments..segments + 56 * 12) {
            let mut damaged = whole[..whole.len().min(1 << 20)].to_vec();
            damaged[at] = 0xff;
            fs::write(&path, &damaged).unwrap();
            // The result does not matter, but it must return quickly.
            let _ = needed_by(&File::open(&path).unwrap());
        }
        for size in [0, 1, 63, 64, 100] {
            fs::write(&path, &whole[..size]).unwrap();
            needed_by(&File::open(&path).unwrap()).unwrap_err();
        }
    }
}
