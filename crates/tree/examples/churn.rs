//! Operations a second, moves and heights of trees whose hosts come and go. Prints one line for
//! each way of repair; the numbers of a run come from one seed.

use std::num::NonZeroUsize;
use std::time::Instant;

use snowmelt_tree::{Repair, Tree};

const ROUNDS: u64 = 2_000_000;

fn main() {
    println!("hosts   fanout repair  mln ops/s  moves/removal  most moves  height");
    for hosts in [100, 1_000, 10_000] {
        churn(hosts, 2, Repair::Refill);
        churn(hosts, 2, Repair::Rotate);
        churn(hosts, 4, Repair::Refill);
    }
}

/// Removes a host and adds another one, again and again.
fn churn(hosts: u64, fanout: usize, repair: Repair) {
    let fanout = NonZeroUsize::new(fanout).unwrap_or(snowmelt_tree::BINARY);
    let mut tree = Tree::with_repair(fanout, repair);
    let mut present: Vec<u64> = (0..hosts).collect();
    for &host in &present {
        tree.insert(host);
    }
    let (mut random, mut moves, mut most) = (0x9E37_79B9_7F4A_7C15_u64, 0, 0);
    let start = Instant::now();
    for host in hosts..hosts + ROUNDS / 2 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let index = (random % hosts) as usize;
        let moved = tree.remove(&present[index]).len();
        (moves, most) = (moves + moved, most.max(moved));
        present[index] = host;
        tree.insert(host);
    }
    let seconds = start.elapsed().as_secs_f64();
    let (million, each) = (ROUNDS as f64 / seconds / 1e6, moves as f64 / (ROUNDS / 2) as f64);
    let repair = format!("{repair:?}");
    let height = tree.height();
    println!(
        "{hosts:<7} {fanout:<6} {repair:<7} {million:>9.2} {each:>14.2} {most:>11} {height:>7}"
    );
}
