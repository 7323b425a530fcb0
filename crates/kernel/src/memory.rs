//! Memory that this process uses, and free memory that its allocator holds.

use std::fs::File;
use std::io::{self, Read};

/// Returns free memory to the kernel, so that an idle server is as small as it was before its last
/// query. Costs a walk over the heap; does nothing unless the allocator is glibc's.
pub fn release_free() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes the allocator's own locks and touches only memory that is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns free memory to the kernel in a process whose allocator is mimalloc, which keeps it for a
/// second and across threads. Costs a walk over the heap, and faults when the memory is used again.
pub fn release_free_of_mimalloc() {
    // SAFETY: it takes the allocator's own locks and touches only memory that is free.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

/// A guard: while it exists, mimalloc keeps the memory that becomes free, whatever its setting is.
/// Memory that the next task uses again need not be taken back and cleared by the kernel.
/// [`release_free_of_mimalloc`] returns it, if it is called before this is dropped.
#[derive(Debug)]
pub struct KeepFree {
    before: libc::c_long,
}

impl KeepFree {
    /// The number of `mi_option_purge_delay`, which is in milliseconds.
    const OPTION: libmimalloc_sys::mi_option_t = 15;
    const LONG: libc::c_long = 30_000;

    /// Begins to keep free memory.
    #[must_use]
    pub fn begin() -> Self {
        // SAFETY: these functions read and write one number of the allocator's settings.
        let before = unsafe {
            let before = libmimalloc_sys::mi_option_get(Self::OPTION);
            libmimalloc_sys::mi_option_set(Self::OPTION, before.max(Self::LONG));
            before
        };
        Self { before }
    }
}

impl Drop for KeepFree {
    fn drop(&mut self) {
        // SAFETY: the same.
        unsafe { libmimalloc_sys::mi_option_set(Self::OPTION, self.before) };
    }
}

/// The peak memory of this process, in bytes.
pub fn peak_resident() -> u64 {
    let mut used = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes the structure, which is valid as zeros too.
    let used = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, used.as_mut_ptr());
        used.assume_init()
    };
    u64::try_from(used.ru_maxrss).unwrap_or(0) * 1024
}

/// The memory of this process that belongs to no file, in bytes: that of its allocator and its
/// stacks.
///
/// # Errors
/// `/proc` is not mounted.
pub fn anonymous() -> io::Result<u64> {
    let mut buffer = [0; 128];
    let length = File::open("/proc/self/statm")?.read(&mut buffer)?;
    let text = str::from_utf8(&buffer[..length]).map_err(io::Error::other)?;
    let mut pages = text.split(' ').skip(1).map(str::parse::<u64>);
    let (Some(Ok(resident)), Some(Ok(of_files))) = (pages.next(), pages.next()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    // SAFETY: the call takes and returns numbers.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Ok(resident.saturating_sub(of_files) * u64::try_from(page).map_err(io::Error::other)?)
}

/// Allows or forbids transparent huge pages in memory that this process touches from now on,
/// whatever was advised for it. A new process forbids them if its parent did.
///
/// # Errors
/// The kernel has no such setting.
pub fn set_huge_pages(are_allowed: bool) -> io::Result<()> {
    let forbidden = libc::c_ulong::from(!are_allowed);
    // SAFETY: this request takes numbers only.
    match unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, forbidden, 0_u64, 0_u64, 0_u64) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether this process may have transparent huge pages.
///
/// # Errors
/// The kernel has no such setting.
pub fn has_huge_pages() -> io::Result<bool> {
    // SAFETY: this request takes numbers only.
    match unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0_u64, 0_u64, 0_u64, 0_u64) } {
        0 => Ok(true),
        1.. => Ok(false),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_counts_memory_that_was_written() {
        let before = peak_resident();
        assert!(before > 0);
        let written = std::hint::black_box(vec![1_u8; 256 << 20]);
        assert!(peak_resident() >= before.max(256 << 20), "{} bytes", written.len());
        drop(written);
        assert!(peak_resident() >= 256 << 20, "it stays");
        release_free_of_mimalloc();
    }

    /// Allocates in mimalloc, which is not the allocator of these tests, writes, and frees.
    fn use_and_free(blocks: usize) {
        const SIZE: usize = 64 << 10;
        // SAFETY: each block is written within its size and freed once.
        unsafe {
            let all: Vec<_> = (0..blocks).map(|_| libmimalloc_sys::mi_malloc(SIZE)).collect();
            all.iter().for_each(|block| block.cast::<u8>().write_bytes(1, SIZE));
            all.into_iter().for_each(|block| libmimalloc_sys::mi_free(block));
        }
    }

    #[test]
    fn free_memory_is_kept_meanwhile_and_released_when_asked() {
        const BLOCKS: usize = 1024;
        // SAFETY: these functions read and write one number.
        let set = |delay| unsafe { libmimalloc_sys::mi_option_set(KeepFree::OPTION, delay) };
        let get = || unsafe { libmimalloc_sys::mi_option_get(KeepFree::OPTION) };
        set(0);
        release_free_of_mimalloc();
        let before = anonymous().unwrap();
        use_and_free(BLOCKS);
        let after = anonymous().unwrap();
        assert!(
            after < before + (32 << 20),
            "{before} bytes became {after}: it is returned at once"
        );
        let kept = KeepFree::begin();
        use_and_free(BLOCKS);
        let after = anonymous().unwrap();
        assert!(after > before + (32 << 20), "{before} bytes became {after}: it is kept");
        release_free_of_mimalloc();
        let after = anonymous().unwrap();
        assert!(after < before + (32 << 20), "{before} bytes became {after}: it is returned");
        drop(kept);
        assert_eq!(get(), 0);
    }

    #[test]
    fn memory_of_files_is_not_anonymous() {
        let before = anonymous().unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let length = file.metadata().unwrap().len();
        let mapped = crate::files::mapping::Mapping::of(&file, 0..length).unwrap();
        let sum: u64 = mapped.as_ref().iter().step_by(4096).map(|byte| u64::from(*byte)).sum();
        assert!(sum > 0);
        let mapped = anonymous().unwrap();
        assert!(mapped < before + length / 2, "{length} bytes are mapped, {mapped} are used");
        let written = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(anonymous().unwrap() > before + (60 << 20), "{} are written", written.len());
    }
}
