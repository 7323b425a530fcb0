//! Memory that this process uses, and free memory that its allocator holds.

use std::io;

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

/// The most bytes of memory that this process has had at once.
pub fn peak_resident() -> u64 {
    let mut used = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes the structure, which is valid as zeros too.
    let used = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, used.as_mut_ptr());
        used.assume_init()
    };
    u64::try_from(used.ru_maxrss).unwrap_or(0) * 1024
}

/// Bytes of memory of this process that belong to no file: those of its allocator and its stacks.
///
/// # Errors
/// `/proc` is not mounted, or the kernel is older than 4.5.
pub fn anonymous() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Allows or forbids transparent huge pages in memory that this process touches from now on, whatever
/// was advised for it. A new process forbids them if its parent did.
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

    #[test]
    fn memory_of_files_is_not_anonymous() {
        let before = anonymous().unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let length = file.metadata().unwrap().len();
        let mapped = crate::mapping::Mapping::of(&file, 0..length).unwrap();
        let sum: u64 = mapped.as_ref().iter().step_by(4096).map(|byte| u64::from(*byte)).sum();
        assert!(sum > 0);
        let mapped = anonymous().unwrap();
        assert!(mapped < before + length / 2, "{length} bytes are mapped, {mapped} are used");
        let written = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(anonymous().unwrap() > before + (60 << 20), "{} are written", written.len());
    }
}
