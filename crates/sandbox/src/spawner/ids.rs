//! User ids on the host: 256 for each sandbox, none shared by two that live.
//!
//! The range begins above what distributions and other container engines hand out
//! (0x70000000 to 0x7fffffff). Each spawner takes a part of it by its process id; two spawners
//! on one part would do no harm, since isolation does not rest on ids alone.

/// Ids that one sandbox gets.
pub(super) const IDS_PER_SLOT: u32 = 256;

const FIRST_ID: u32 = 0x7000_0000;
const PARTS: u32 = 120;
const SLOTS: u32 = 8192;

/// The ids of one spawner. A slot goes back when its [`Slot`] is returned.
pub(super) struct Slots {
    first: u32,
    taken: Vec<bool>,
    /// Where the search goes on, so that ids are reused as late as possible.
    next: usize,
}

/// A range of [`IDS_PER_SLOT`] user ids.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Slot {
    index: usize,
    /// The first id, on the host.
    pub first_id: u32,
}

impl Slots {
    /// The part of the spawner with this process id.
    pub fn of_process(pid: u32) -> Self {
        let first = FIRST_ID + (pid % PARTS) * SLOTS * IDS_PER_SLOT;
        Self { first, taken: vec![false; SLOTS as usize], next: 0 }
    }

    /// A free range; none when 8,192 sandboxes live.
    pub fn take(&mut self) -> Option<Slot> {
        let count = self.taken.len();
        let index = (0..count).map(|step| (self.next + step) % count).find(|i| !self.taken[*i])?;
        self.taken[index] = true;
        self.next = (index + 1) % count;
        Some(Slot { index, first_id: self.first + index as u32 * IDS_PER_SLOT })
    }

    /// Takes a range back.
    pub fn give_back(&mut self, slot: &Slot) {
        self.taken[slot.index] = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_never_overlap_and_stay_below_the_sign_bit() {
        let mut slots = Slots::of_process(PARTS - 1);
        let mut all: Vec<_> = std::iter::from_fn(|| slots.take()).collect();
        assert_eq!(all.len(), SLOTS as usize);
        assert!(all.windows(2).all(|pair| pair[1].first_id - pair[0].first_id == IDS_PER_SLOT));
        assert!(all.last().unwrap().first_id + IDS_PER_SLOT < 0x8000_0000);
        slots.give_back(&all.remove(7));
        assert_eq!(slots.take().unwrap().index, 7);
    }
}
