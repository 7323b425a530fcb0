//! Operations a second, moves and heights of trees whose hosts come and go: `churn` removes a host
//! and adds another one, again and again; `shrink` removes all. The numbers follow from one seed.

use std::num::NonZeroUsize;
use std::time::Instant;

use snowmelt_tree::{BINARY, Repair, Tree};

const OPERATIONS: u64 = 2_000_000;

fn main() {
    println!(
        "what    hosts   fanout repair  mln ops/s  moves/removal  most moves  levels too many"
    );
    for hosts in [100, 1_000, 10_000] {
        for (fanout, repair) in [(2, Repair::Refill), (2, Repair::Rotate), (4, Repair::Refill)] {
            churn(hosts, fanout, repair);
            shrink(hosts, fanout, repair);
        }
    }
}

/// Numbers that look random, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// What the removals of one run cost.
#[derive(Default)]
struct Cost {
    operations: u64,
    removals: u64,
    moves: usize,
    most: usize,
    /// Sum over the removals of the levels that a full tree does without.
    levels: usize,
}

impl Cost {
    fn remove(&mut self, tree: &mut Tree<u64>, host: u64) {
        let moved = tree.remove(&host).len();
        self.operations += 1;
        self.removals += 1;
        (self.moves, self.most) = (self.moves + moved, self.most.max(moved));
        self.levels += tree.height() - full(tree.len(), tree.fanout());
    }

    fn insert(&mut self, tree: &mut Tree<u64>, host: u64) {
        self.operations += 1;
        tree.insert(host);
    }

    fn print(&self, what: &str, hosts: u64, fanout: usize, repair: Repair, start: Instant) {
        let million = self.operations as f64 / start.elapsed().as_secs_f64() / 1e6;
        let each = self.moves as f64 / self.removals as f64;
        let levels = self.levels as f64 / self.removals as f64;
        let repair = format!("{repair:?}");
        let most = self.most;
        println!(
            "{what:<7} {hosts:<7} {fanout:<6} {repair:<7} {million:>9.2} {each:>14.2} {most:>11} {levels:>16.3}"
        );
    }
}

/// Levels of a tree whose levels are full but for the last.
fn full(hosts: usize, fanout: usize) -> usize {
    let mut levels = 0;
    let mut room = 0;
    let mut level = 1;
    while room < hosts {
        (levels, room, level) = (levels + 1, room + level, level * fanout);
    }
    levels
}

fn tree(fanout: usize, repair: Repair) -> Tree<u64> {
    Tree::with_repair(NonZeroUsize::new(fanout).unwrap_or(BINARY), repair)
}

fn churn(hosts: u64, fanout: usize, repair: Repair) {
    let mut tree = tree(fanout, repair);
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut present: Vec<u64> = (0..hosts).collect();
    let mut cost = Cost::default();
    let start = Instant::now();
    for &host in &present {
        cost.insert(&mut tree, host);
    }
    for host in hosts..hosts + OPERATIONS / 2 {
        let index = random.below(present.len());
        cost.remove(&mut tree, std::mem::replace(&mut present[index], host));
        cost.insert(&mut tree, host);
    }
    cost.print("churn", hosts, fanout, repair, start);
}

fn shrink(hosts: u64, fanout: usize, repair: Repair) {
    let mut tree = tree(fanout, repair);
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut cost = Cost::default();
    let start = Instant::now();
    for _ in 0..OPERATIONS / 2 / hosts {
        let mut present: Vec<u64> = (0..hosts).collect();
        for &host in &present {
            cost.insert(&mut tree, host);
        }
        while !present.is_empty() {
            let host = present.swap_remove(random.below(present.len()));
            cost.remove(&mut tree, host);
        }
    }
    cost.print("shrink", hosts, fanout, repair, start);
}
