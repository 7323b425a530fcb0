//! A part of a file as memory, of which the kernel keeps the used pages in memory.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// A mapped part of a file. Its pages count as those of the file: the kernel takes them back when
/// memory is needed, and reads them again.
///
/// Another process that writes to the file changes the bytes, and one that truncates it ends this
/// process when it reads a part that is gone (SIGBUS). So the reader checks, once it has read, that
/// the file has not changed.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<c_void>,
    mapped: usize,
    start: usize,
    length: usize,
}

// SAFETY: the memory is only read, and stays mapped until the value is dropped.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a part of a file.
    ///
    /// # Errors
    /// The kernel's, for example for a file system without mappings; `InvalidInput` for an empty
    /// part and for one that is not in the file.
    pub fn of(file: &File, range: Range<u64>) -> io::Result<Self> {
        if range.is_empty() || range.end > file.metadata()?.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: it only asks for a setting.
        let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(1 << 16);
        let begin = range.start - range.start % page;
        let size = |bytes: u64| usize::try_from(bytes).map_err(io::Error::other);
        let mapped = size(range.end - begin)?;
        let start = size(range.start - begin)?;
        let offset = libc::off_t::try_from(begin).map_err(io::Error::other)?;
        let access = libc::PROT_READ;
        let kind = libc::MAP_PRIVATE;
        let file = file.as_raw_fd();
        // SAFETY: a fresh mapping at an address that the kernel chooses overlaps no other.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), mapped, access, kind, file, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, mapped, start, length: mapped - start })
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the bytes from `start` on are in the mapping, which is readable while `self` is.
        unsafe {
            std::slice::from_raw_parts(self.base.as_ptr().cast::<u8>().add(self.start), self.length)
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows from it any more.
        unsafe { libc::munmap(self.base.as_ptr(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_part_of_a_file_is_mapped_wherever_it_begins() {
        let path = std::env::temp_dir().join(format!("snowmelt-mapping-{}", std::process::id()));
        let mut file = File::create_new(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        for range in [0..100_000, 0..1, 4096..8192, 12_345..67_890, 99_999..100_000] {
            let mapping = Mapping::of(&file, range.clone()).unwrap();
            let expected = &bytes[range.start as usize..range.end as usize];
            assert_eq!(mapping.as_ref(), expected, "{range:?}");
        }
        for wrong in [5..5, 0..100_001, 200_000..200_001] {
            assert!(Mapping::of(&file, wrong.clone()).is_err(), "{wrong:?}");
        }
    }
}
