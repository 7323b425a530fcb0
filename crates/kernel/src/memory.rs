//! Free memory that the allocator of this process holds.

/// Returns free memory to the kernel, so that an idle server is as small as it was before its last
/// query. Costs a walk over the heap; does nothing unless the allocator is glibc's.
pub fn release_free() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes the allocator's own locks and touches only memory that is free.
    unsafe {
        libc::malloc_trim(0);
    }
}
