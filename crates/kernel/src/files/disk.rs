//! Room on a disk: data that is stored for clients leaves a part of the disk free, so that writes
//! of the platform itself, and the work of others, go on.

use std::io;
use std::path::Path;

use rustix::fs::statvfs;

/// The greatest space that stays free, on a large disk, in bytes.
const MAX_FREE: u64 = 1 << 30;

/// The divisor of the size of a smaller disk: one byte in this many stays free.
const PART_FREE: u64 = 20;

/// Checks that a file of this size leaves the part of the disk free that must stay free.
///
/// # Errors
/// [`io::ErrorKind::StorageFull`], as if the disk were full; others if the disk cannot be asked.
pub fn check_room(folder: &Path, bytes: u64) -> io::Result<()> {
    let disk = statvfs(folder)?;
    let free = disk.f_bavail;
    let total = disk.f_blocks;
    if has_room(free.saturating_mul(disk.f_frsize), total.saturating_mul(disk.f_frsize), bytes) {
        return Ok(());
    }
    let message = "too little of the disk would stay free";
    Err(io::Error::new(io::ErrorKind::StorageFull, message))
}

fn has_room(free: u64, total: u64, bytes: u64) -> bool {
    free.saturating_sub(bytes) >= MAX_FREE.min(total / PART_FREE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_disk_stays_free() {
        assert!(has_room(5 << 30, 100 << 30, 4 << 30));
        assert!(!has_room(5 << 30, 100 << 30, (4 << 30) + 1));
        assert!(has_room(1 << 30, 10 << 30, 512 << 20), "of a small disk one part in 20");
        assert!(!has_room(1 << 30, 10 << 30, 513 << 20));
        assert!(!has_room(1 << 30, 10 << 30, u64::MAX));
    }

    #[test]
    fn a_full_disk_is_an_error_of_its_kind() {
        let refused = check_room(&std::env::temp_dir(), u64::MAX).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        assert!(check_room(Path::new("/nothing/here"), 0).is_err());
    }
}
