//! User ids on the host: a range for each sandbox; no two live sandboxes share an id.
//!
//! The ranges are above those of distributions and other container engines (0x70000000 to
//! 0x7fffffff). Each spawner takes one part, by the process id of its first lane; two spawners with
//! the same part would do no harm, since isolation does not depend on ids alone. Each lane has its
//! own share of the part, so that lanes need no coordination.
//!
//! In the user namespace of an ordinary user there are fewer ids, or one. Then a program has one id,
//! and a zygote shares one with all its children. If there is one only, all sandboxes have it.

use snowmelt_kernel::rootless::NamespaceIds;

use crate::message::{MAX_LANES, ZYGOTES};

/// The number of ids per program: one is used, the others keep it away from the next program's id.
const PROGRAM_IDS: u32 = 16;
/// The number of ids of a zygote that was not forked from another: for its children, and for the
/// zygotes below it.
const ZYGOTE_IDS: u32 = 1 << 19;

/// The number of programs per lane.
const PROGRAMS: u32 = 8192;

const FIRST_ID: u32 = 0x7000_0000;
const PARTS: u32 = 2;
const LANE_IDS: u32 = PROGRAMS * PROGRAM_IDS + ZYGOTES * ZYGOTE_IDS;
const PART_IDS: u32 = MAX_LANES * LANE_IDS;

/// The kind of sandbox that a slot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Program,
    Zygote,
}

/// A range of user ids.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct IdSlot {
    holder: Holder,
    index: usize,
    /// The first id on the host.
    pub first_id: u32,
    /// The number of ids.
    pub count: u32,
    /// Whether the children of a zygote share the first id.
    pub is_shared: bool,
}

impl IdSlot {
    /// The number of ids that the user namespace of a zygote maps.
    pub fn mapped(&self) -> u32 {
        if self.is_shared { 1 } else { self.count }
    }
}

/// The ids of one lane. A slot is returned with [`IdSlots::give_back`].
pub(super) struct IdSlots {
    /// The first id of the spawner's part.
    part: u32,
    namespace: Option<NamespaceIds>,
    programs: IdPool,
    zygotes: IdPool,
}

struct IdPool {
    first: u32,
    /// The number of ids from one slot to the next: 0 if all have the same.
    step: u32,
    count: u32,
    numbers: Numbers,
}

impl IdSlots {
    /// The share of the first lane of the spawner with this process id; `namespace` has the ids of
    /// its user namespace, if it is not the machine's.
    pub fn of_process(pid: u32, namespace: Option<NamespaceIds>) -> Self {
        match namespace {
            None => Self::of_part(FIRST_ID + (pid % PARTS) * PART_IDS, 0),
            Some(ids) => Self::in_namespace(ids, 0),
        }
    }

    /// The share of another lane of the same spawner.
    pub fn of_lane(&self, lane: u32) -> Self {
        match self.namespace {
            None => Self::of_part(self.part, lane),
            Some(ids) => Self::in_namespace(ids, lane),
        }
    }

    fn of_part(part: u32, lane: u32) -> Self {
        let first = part + lane % MAX_LANES * LANE_IDS;
        let pool = |first, count, most| IdPool {
            first,
            step: count,
            count,
            numbers: Numbers::new(0, most),
        };
        Self {
            part,
            namespace: None,
            programs: pool(first, PROGRAM_IDS, PROGRAMS),
            zygotes: pool(first + PROGRAMS * PROGRAM_IDS, ZYGOTE_IDS, ZYGOTES),
        }
    }

    fn in_namespace(ids: NamespaceIds, lane: u32) -> Self {
        let lane = lane % MAX_LANES;
        let pool = |first, step, count, most| IdPool {
            first,
            step,
            count,
            numbers: Numbers::new(0, most),
        };
        // The number of slots of a zygote only counts its children here.
        let (programs, zygotes) = match ids {
            NamespaceIds::Own => (pool(0, 0, 1, PROGRAMS), pool(0, 0, ZYGOTE_IDS, ZYGOTES)),
            NamespaceIds::Subordinate(most) => {
                let share = most / MAX_LANES;
                // Id 0 is the user who runs the platform.
                let first = 1 + lane * share;
                let programs = share.saturating_sub(ZYGOTES).min(PROGRAMS);
                let zygotes = ZYGOTES.min(share - programs);
                (pool(first, 1, 1, programs), pool(first + programs, 1, ZYGOTE_IDS, zygotes))
            }
        };
        Self { part: 0, namespace: Some(ids), programs, zygotes }
    }

    /// A free range; `None` when 8,192 programs live in this lane, or 60 zygotes that were not
    /// forked from another zygote.
    pub fn take(&mut self, holder: Holder) -> Option<IdSlot> {
        let is_shared = self.namespace.is_some();
        let pool = self.pool(holder);
        let number = pool.numbers.take()?;
        let first_id = pool.first + number * pool.step;
        let count = pool.count;
        Some(IdSlot { holder, index: number as usize, first_id, count, is_shared })
    }

    /// Returns a range.
    pub fn give_back(&mut self, slot: &IdSlot) {
        self.pool(slot.holder).numbers.give_back(slot.index as u32);
    }

    fn pool(&mut self, holder: Holder) -> &mut IdPool {
        match holder {
            Holder::Program => &mut self.programs,
            Holder::Zygote => &mut self.zygotes,
        }
    }
}

/// Small numbers, each used by one owner at a time and reused as late as possible.
pub(super) struct Numbers {
    first: u32,
    taken: Vec<bool>,
    /// The position at which the next search starts.
    next: usize,
    live: usize,
}

impl Numbers {
    /// Makes a set of the numbers from `first` up to, but not including, `end`.
    pub fn new(first: u32, end: u32) -> Self {
        let count = end.saturating_sub(first) as usize;
        Self { first, taken: vec![false; count], next: 0, live: 0 }
    }

    /// Takes a free number.
    pub fn take(&mut self) -> Option<u32> {
        let count = self.taken.len();
        // The search goes on where the last one ended, so a number rests before it is used again.
        let index = (0..count).map(|step| (self.next + step) % count).find(|i| !self.taken[*i])?;
        self.taken[index] = true;
        self.next = (index + 1) % count;
        self.live += 1;
        Some(self.first + index as u32)
    }

    /// Returns a number.
    pub fn give_back(&mut self, number: u32) {
        let index = number.wrapping_sub(self.first) as usize;
        if let Some(taken) = self.taken.get_mut(index)
            && std::mem::take(taken)
        {
            self.live -= 1;
        }
    }

    /// Whether no number is taken.
    pub fn is_unused(&self) -> bool {
        self.live == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(slots: &mut IdSlots, holder: Holder) -> Vec<IdSlot> {
        std::iter::from_fn(|| slots.take(holder)).collect()
    }

    #[test]
    fn ranges_never_overlap_and_stay_below_the_sign_bit() {
        let first = IdSlots::of_process(PARTS - 1, None);
        let mut lanes: Vec<_> = (0..MAX_LANES).map(|lane| first.of_lane(lane)).collect();
        let mut taken = Vec::new();
        for slots in &mut lanes {
            taken.extend(all(slots, Holder::Program));
            taken.extend(all(slots, Holder::Zygote));
        }
        assert_eq!(taken.len(), (MAX_LANES * (PROGRAMS + ZYGOTES)) as usize);
        assert!(taken.windows(2).all(|pair| pair[0].first_id + pair[0].count <= pair[1].first_id));
        let last = taken.last().unwrap();
        assert!(last.first_id + last.count < 0x8000_0000);
        lanes[0].give_back(&taken.remove(7));
        assert_eq!(lanes[0].take(Holder::Program).unwrap().index, 7);
    }

    #[test]
    fn subordinate_ids_are_of_one_program_or_one_zygote_and_never_that_of_the_user() {
        for most in [4096, 65_000] {
            let first = IdSlots::of_process(7, Some(NamespaceIds::Subordinate(most)));
            let mut lanes: Vec<_> = (0..MAX_LANES).map(|lane| first.of_lane(lane)).collect();
            let mut taken = Vec::new();
            for slots in &mut lanes {
                taken.extend(all(slots, Holder::Program));
                let zygotes = all(slots, Holder::Zygote);
                assert!(zygotes.len() == ZYGOTES as usize);
                assert!(zygotes.iter().all(|slot| slot.is_shared && slot.mapped() == 1));
                taken.extend(zygotes);
            }
            assert!(taken.windows(2).all(|pair| pair[0].first_id < pair[1].first_id), "{most}");
            assert!(taken[0].first_id == 1 && taken.last().unwrap().first_id <= most);
        }
    }

    #[test]
    fn without_subordinate_ids_all_have_that_of_the_user() {
        let mut slots = IdSlots::of_process(7, Some(NamespaceIds::Own)).of_lane(3);
        let taken = [slots.take(Holder::Program), slots.take(Holder::Zygote)].map(Option::unwrap);
        assert!(taken.iter().all(|slot| slot.first_id == 0 && slot.mapped() == 1));
        assert_ne!(slots.take(Holder::Program).unwrap().index, taken[0].index);
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
