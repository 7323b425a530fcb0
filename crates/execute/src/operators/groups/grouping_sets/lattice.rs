//! The grouping sets of an aggregation, and from which one each is derived.

use std::collections::BTreeSet;

use datafusion::physical_plan::aggregates::PhysicalGroupBy;

/// The largest number of sets: each has a table of its own, which takes up to a quarter of a MiB when
/// it is small.
const MAX_SETS: usize = 16;

/// A grouping set.
#[derive(Debug)]
pub(super) struct GroupingSet {
    /// The columns that its groups have, by their places in the whole key.
    pub(super) columns: Vec<usize>,
    /// The set from whose groups this one's are merged, by its place. `None` if rows are added to
    /// it.
    pub(super) parent: Option<usize>,
    /// The number that stands for the set in the output: a bit for each column that it lacks, the
    /// last column's lowest.
    pub(super) id: u64,
}

/// All sets, each behind the one from which it is derived.
#[derive(Debug)]
pub(super) struct Lattice(Vec<GroupingSet>);

impl Lattice {
    /// Finds the sets that contain others. `None` if there is none, if a set occurs twice, or if they
    /// are too many.
    pub(super) fn of(groups: &PhysicalGroupBy) -> Option<Self> {
        if !groups.has_grouping_set() {
            return None;
        }
        Self::new(groups.groups())
    }

    /// Finds the sets that contain others. A set says of each column whether it lacks it.
    fn new(lacking: &[Vec<bool>]) -> Option<Self> {
        let distinct: BTreeSet<&Vec<bool>> = lacking.iter().collect();
        let width = lacking.first()?.len();
        let is_supported = lacking.len() <= MAX_SETS && width <= u64::BITS as usize;
        if distinct.len() < lacking.len() || !is_supported {
            return None;
        }
        let mut sets: Vec<GroupingSet> =
            lacking.iter().map(|lacks| GroupingSet::new(lacks)).collect();
        sets.sort_by_key(|set| std::cmp::Reverse(set.columns.len()));
        for place in 1..sets.len() {
            let (before, rest) = sets.split_at_mut(place);
            let contains = |other: &&GroupingSet| {
                rest[0].columns.iter().all(|column| other.columns.contains(column))
            };
            let has_another = |place: &usize| before.iter().any(|set| set.parent == Some(*place));
            // The last one has the fewest columns, and so the fewest groups.
            let mut parents = (0..place).filter(|place| contains(&&before[*place]));
            rest[0].parent = parents.rfind(|place| !has_another(place));
        }
        sets.iter().any(|set| set.parent.is_some()).then_some(Self(sets))
    }

    pub(super) fn sets(&self) -> &[GroupingSet] {
        &self.0
    }

    /// The set that is derived from another one, if one is.
    pub(super) fn derived_from(&self, parent: usize) -> Option<usize> {
        self.0.iter().position(|set| set.parent == Some(parent))
    }

    /// The sets to which rows are added.
    pub(super) fn of_rows(&self) -> impl Iterator<Item = usize> {
        (0..self.0.len()).filter(|place| self.0[*place].parent.is_none())
    }
}

impl GroupingSet {
    fn new(lacks: &[bool]) -> Self {
        let columns = (0..lacks.len()).filter(|column| !lacks[*column]).collect();
        let id = lacks.iter().fold(0, |id, lacks| id << 1 | u64::from(*lacks));
        Self { columns, parent: None, id }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The columns, the parent and the number of a set.
    type Found = (Vec<usize>, Option<usize>, u64);

    /// The sets of a text such as `ab a -` of three columns, each behind its parent.
    fn parents(sets: &str) -> Option<Vec<Found>> {
        let set = |set: &str| "abc".chars().map(|column| !set.contains(column)).collect();
        let lacking: Vec<Vec<bool>> = sets.split(' ').map(set).collect();
        let lattice = Lattice::new(&lacking)?;
        Some(lattice.0.into_iter().map(|set| (set.columns, set.parent, set.id)).collect())
    }

    #[test]
    fn each_set_is_derived_from_the_smallest_that_contains_it_and_has_no_other() {
        let rollup = [
            (vec![0, 1, 2], None, 0b000),
            (vec![0, 1], Some(0), 0b001),
            (vec![0], Some(1), 0b011),
            (vec![], Some(2), 0b111),
        ];
        assert_eq!(parents("abc ab a -").unwrap(), rollup);
        assert_eq!(parents("- a ab abc").unwrap(), rollup);
        let cube = [
            (vec![0, 1], None, 0b001),
            (vec![0], Some(0), 0b011),
            (vec![1], None, 0b101),
            (vec![], Some(2), 0b111),
        ];
        assert_eq!(parents("ab a b -").unwrap(), cube);
        let two = [(vec![0, 1], None, 0b001), (vec![2], None, 0b110), (vec![1], Some(0), 0b101)];
        assert_eq!(parents("ab c b").unwrap(), two);
    }

    #[test]
    fn sets_that_do_not_contain_each_other_and_equal_sets_are_left_alone() {
        assert_eq!(parents("a b c"), None);
        assert_eq!(parents("ab a a"), None);
        let width = |count: usize| {
            (0..count).map(|set| (0..count).map(|column| column < set).collect()).collect()
        };
        let many: Vec<Vec<bool>> = width(MAX_SETS + 1);
        assert!(Lattice::new(&many).is_none() && Lattice::new(&many[1..]).is_some());
    }
}
