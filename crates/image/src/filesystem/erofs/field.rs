//! Integers at fixed places of a structure.

/// Access to integers in bytes. Panics if there are too few bytes.
pub(super) trait Field {
    fn u16_at(&self, at: usize) -> u16;
    fn u32_at(&self, at: usize) -> u32;
    fn u64_at(&self, at: usize) -> u64;
}

impl Field for [u8] {
    fn u16_at(&self, at: usize) -> u16 {
        u16::from_le_bytes([self[at], self[at + 1]])
    }

    fn u32_at(&self, at: usize) -> u32 {
        u32::from(self.u16_at(at)) | u32::from(self.u16_at(at + 2)) << 16
    }

    fn u64_at(&self, at: usize) -> u64 {
        u64::from(self.u32_at(at)) | u64::from(self.u32_at(at + 4)) << 32
    }
}
