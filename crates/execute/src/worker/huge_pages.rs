//! Huge pages only for workers that use much memory.
//!
//! The allocator advises huge pages for all of its memory. A task that reads a small file touches a
//! few regions of 2 MiB, and to clear these took more than half of the processor time of a cold
//! worker, and half of its memory (decision 073). A large task gains by huge pages.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use snowmelt_kernel::memory;

/// Memory, in addition to that at the start, from which a process gets huge pages. The pages of its
/// program, of which a worker reads more than this, do not count.
const LARGE: u64 = 16 << 20;

static AT_START: AtomicU64 = AtomicU64::new(0);
static ARE_OFF: AtomicBool = AtomicBool::new(false);

/// Turns huge pages off, at the start of the process. In a sandbox they are off before: the
/// allocator touches its first memory before this program's own first instruction.
pub fn turn_off() {
    turn_off_with(memory::anonymous());
}

/// Turns huge pages on if the process uses much memory. Costs three system calls until then.
pub(super) fn turn_on_if_large() {
    if ARE_OFF.load(Ordering::Relaxed) {
        turn_on_with(memory::anonymous());
    }
}

/// Turns huge pages off, given the memory in use. Memory that cannot be told at the start counts as
/// used later: it is small.
fn turn_off_with(used: io::Result<u64>) {
    if memory::set_huge_pages(false).is_ok() {
        AT_START.store(used.unwrap_or(0), Ordering::Relaxed);
        ARE_OFF.store(true, Ordering::Relaxed);
    }
}

/// Turns huge pages on if much memory is in use, or if it cannot be told: the task may be a large
/// one, which would stay slow without huge pages.
fn turn_on_with(used: io::Result<u64>) {
    let at_start = AT_START.load(Ordering::Relaxed);
    let is_large = used.map_or(true, |used| used.saturating_sub(at_start) > LARGE);
    if is_large && memory::set_huge_pages(true).is_ok() {
        ARE_OFF.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use snowmelt_kernel::mapping::Mapping;

    use super::*;

    #[test]
    fn they_are_on_again_when_much_memory_is_used() {
        turn_off();
        assert!(!memory::has_huge_pages().unwrap());
        turn_on_if_large();
        assert!(!memory::has_huge_pages().unwrap(), "nothing is used yet");
        let program = File::open("/proc/self/exe").unwrap();
        let length = program.metadata().unwrap().len();
        assert!(length > 2 * LARGE);
        let program = Mapping::of(&program, 0..length).unwrap();
        let read: u64 = program.as_ref().iter().step_by(4096).map(|byte| u64::from(*byte)).sum();
        assert!(read > 0);
        turn_on_if_large();
        assert!(!memory::has_huge_pages().unwrap(), "{length} bytes of a file are not its own");
        let large = std::hint::black_box(vec![1_u8; 2 * LARGE as usize]);
        turn_on_if_large();
        assert!(memory::has_huge_pages().unwrap(), "{} bytes are used", large.len());
        // Here and not in a test of its own, because the setting is that of the process.
        let unknown = || Err(io::ErrorKind::InvalidData.into());
        turn_off_with(unknown());
        assert!(!memory::has_huge_pages().unwrap());
        turn_on_if_large();
        assert!(memory::has_huge_pages().unwrap(), "all of its memory counts");
        turn_off_with(Ok(u64::MAX));
        turn_on_if_large();
        assert!(!memory::has_huge_pages().unwrap(), "it has not grown");
        turn_on_with(unknown());
        assert!(memory::has_huge_pages().unwrap(), "it may be large");
    }
}
