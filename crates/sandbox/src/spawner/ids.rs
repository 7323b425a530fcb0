//! User ids on the host: a range for each sandbox, none shared by two that live.
//!
//! The ranges begin above what distributions and other container engines hand out (0x70000000 to
//! 0x7fffffff). Each spawner takes a part of it by the process id of its first lane; two spawners
//! on one part would do no harm, since isolation does not rest on ids alone. Of that part each lane
//! has a share of its own, so that lanes need not agree on anything.

use crate::message::{MOST_LANES, ZYGOTES};

/// The ids of a program: its own, and room so that the next one's is far from it.
const PROGRAM_IDS: u32 = 16;
/// The ids of a zygote that is not below another: its children's, and those of the zygotes below.
const ZYGOTE_IDS: u32 = 1 << 19;

/// Of each lane.
const PROGRAMS: u32 = 8192;

const FIRST_ID: u32 = 0x7000_0000;
const PARTS: u32 = 2;
const LANE_IDS: u32 = PROGRAMS * PROGRAM_IDS + ZYGOTES * ZYGOTE_IDS;
const PART_IDS: u32 = MOST_LANES * LANE_IDS;

/// Whose ids a slot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Program,
    Zygote,
}

/// A range of user ids.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Slot {
    holder: Holder,
    index: usize,
    /// The first id, on the host.
    pub first_id: u32,
    /// How many.
    pub count: u32,
}

/// The ids of one lane. A slot goes back by [`Slots::give_back`].
pub(super) struct Slots {
    /// The first id of the spawner's part.
    part: u32,
    programs: Pool,
    zygotes: Pool,
}

struct Pool {
    first: u32,
    count: u32,
    numbers: Numbers,
}

impl Slots {
    /// The share of the first lane of the spawner with this process id.
    pub fn of_process(pid: u32) -> Self {
        Self::of_part(FIRST_ID + (pid % PARTS) * PART_IDS, 0)
    }

    /// The share of another lane of the same spawner.
    pub fn of_lane(&self, lane: u32) -> Self {
        Self::of_part(self.part, lane)
    }

    fn of_part(part: u32, lane: u32) -> Self {
        let first = part + lane % MOST_LANES * LANE_IDS;
        let pool = |first, count, most| Pool { first, count, numbers: Numbers::new(0, most) };
        Self {
            part,
            programs: pool(first, PROGRAM_IDS, PROGRAMS),
            zygotes: pool(first + PROGRAMS * PROGRAM_IDS, ZYGOTE_IDS, ZYGOTES),
        }
    }

    /// A free range; none when 8,192 programs live in this lane, or 60 zygotes
    /// that are not below another.
    pub fn take(&mut self, holder: Holder) -> Option<Slot> {
        let pool = self.pool(holder);
        let number = pool.numbers.take()?;
        let (first_id, count) = (pool.first + number * pool.count, pool.count);
        Some(Slot { holder, index: number as usize, first_id, count })
    }

    /// Takes a range back.
    pub fn give_back(&mut self, slot: &Slot) {
        self.pool(slot.holder).numbers.give_back(slot.index as u32);
    }

    fn pool(&mut self, holder: Holder) -> &mut Pool {
        match holder {
            Holder::Program => &mut self.programs,
            Holder::Zygote => &mut self.zygotes,
        }
    }
}

/// Small numbers, each taken by one at a time and reused as late as possible.
pub(super) struct Numbers {
    first: u32,
    taken: Vec<bool>,
    /// Where the search goes on.
    next: usize,
    live: usize,
}

impl Numbers {
    /// The numbers from `first` up to `end`, which is not one of them.
    pub fn new(first: u32, end: u32) -> Self {
        let count = end.saturating_sub(first) as usize;
        Self { first, taken: vec![false; count], next: 0, live: 0 }
    }

    /// A free one.
    pub fn take(&mut self) -> Option<u32> {
        let count = self.taken.len();
        let index = (0..count).map(|step| (self.next + step) % count).find(|i| !self.taken[*i])?;
        self.taken[index] = true;
        self.next = (index + 1) % count;
        self.live += 1;
        Some(self.first + index as u32)
    }

    /// Takes one back.
    pub fn give_back(&mut self, number: u32) {
        let index = number.wrapping_sub(self.first) as usize;
        if let Some(taken) = self.taken.get_mut(index)
            && std::mem::take(taken)
        {
            self.live -= 1;
        }
    }

    /// Whether none is taken.
    pub fn is_unused(&self) -> bool {
        self.live == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(slots: &mut Slots, holder: Holder) -> Vec<Slot> {
        std::iter::from_fn(|| slots.take(holder)).collect()
    }

    #[test]
    fn ranges_never_overlap_and_stay_below_the_sign_bit() {
        let first = Slots::of_process(PARTS - 1);
        let mut lanes: Vec<_> = (0..MOST_LANES).map(|lane| first.of_lane(lane)).collect();
        let mut taken = Vec::new();
        for slots in &mut lanes {
            taken.extend(all(slots, Holder::Program));
            taken.extend(all(slots, Holder::Zygote));
        }
        assert_eq!(taken.len(), (MOST_LANES * (PROGRAMS + ZYGOTES)) as usize);
        assert!(taken.windows(2).all(|pair| pair[0].first_id + pair[0].count <= pair[1].first_id));
        let last = taken.last().unwrap();
        assert!(last.first_id + last.count < 0x8000_0000);
        lanes[0].give_back(&taken.remove(7));
        assert_eq!(lanes[0].take(Holder::Program).unwrap().index, 7);
    }

    #[test]
    fn a_number_comes_back_as_late_as_possible() {
        let mut numbers = Numbers::new(1, 4);
        assert_eq!(numbers.take(), Some(1));
        numbers.give_back(1);
        assert!(numbers.is_unused());
        let rest: Vec<_> = std::iter::from_fn(|| numbers.take()).collect();
        assert_eq!(rest, [2, 3, 1]);
    }
}
