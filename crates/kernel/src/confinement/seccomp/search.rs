//! A binary search tree over call numbers, instead of a comparison for each.

use seccompiler::sock_filter;

use super::{ALLOW, RETURN, jump};

const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_GREATER: u16 = 0x25;
const JUMP_IF_GREATER_OR_EQUAL: u16 = 0x35;

/// The first instructions of `seccompiler`: load and check the architecture, then load the number.
const PREAMBLE: usize = 4;

/// Rewrites a program of `seccompiler` that allows calls only by their number: allowed calls return
/// immediately, the others continue after the program's end.
pub(super) fn allow_numbers(program: &[sock_filter]) -> Vec<sock_filter> {
    answer_numbers(&[(program, ALLOW)])
}

/// Rewrites several programs of `seccompiler` that compare calls only by their number, into one
/// program. The numbers of each program have one result.
pub(super) fn answer_numbers(programs: &[(&[sock_filter], u32)]) -> Vec<sock_filter> {
    let Some((first, _)) = programs.first() else { return Vec::new() };
    let preamble = &first[..PREAMBLE.min(first.len())];
    let numbers = programs.iter().flat_map(|(program, answer)| {
        let compared = program.iter().skip(PREAMBLE).filter(|one| one.code == JUMP_IF_EQUAL);
        compared.map(|instruction| (instruction.k, *answer))
    });
    let mut tree = tree(&merge(numbers.collect()));
    let length = tree.len();
    for (index, instruction) in tree.iter_mut().enumerate() {
        if *instruction == jump(LEAVE) {
            *instruction = jump(length - index - 1);
        }
    }
    preamble.iter().cloned().chain(tree).collect()
}

/// A placeholder for the distance to the end until that is known.
const LEAVE: usize = u32::MAX as usize;

/// Consecutive numbers, both ends included, and their result.
type Range = (u32, u32, u32);

fn merge(mut numbers: Vec<(u32, u32)>) -> Vec<Range> {
    // Of two results for one number the first one counts.
    numbers.sort_by_key(|(number, _)| *number);
    numbers.dedup_by_key(|(number, _)| *number);
    let mut ranges: Vec<Range> = Vec::new();
    for (number, answer) in numbers {
        match ranges.last_mut() {
            Some((_, last, same)) if number == *last + 1 && *same == answer => *last = number,
            _ => ranges.push((number, number, answer)),
        }
    }
    ranges
}

/// Every path through it ends in a result or in [`LEAVE`].
fn tree(ranges: &[Range]) -> Vec<sock_filter> {
    let compare = |code, k, jt, jf| sock_filter { code, jt, jf, k };
    match ranges {
        [] => vec![jump(LEAVE)],
        [(first, last, answer)] => vec![
            compare(JUMP_IF_GREATER_OR_EQUAL, *first, 0, 2),
            compare(JUMP_IF_GREATER, *last, 1, 0),
            compare(RETURN, *answer, 0, 0),
            jump(LEAVE),
        ],
        _ => {
            let (low, high) = ranges.split_at(ranges.len() / 2);
            let low = tree(low);
            let border = high[0].0;
            // A comparison jumps at most 255 instructions, so the long distance is a plain jump.
            let choose = [compare(JUMP_IF_GREATER_OR_EQUAL, border, 0, 1), jump(low.len())];
            choose.into_iter().chain(low).chain(tree(high)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confinement::seccomp::JUMP;

    /// Runs the tree as the kernel would; true for "allow".
    fn allows(program: &[sock_filter], number: u32) -> bool {
        let mut at = PREAMBLE;
        while let Some(instruction) = program.get(at) {
            let holds = match instruction.code {
                RETURN => return instruction.k == ALLOW,
                JUMP => {
                    at += 1 + instruction.k as usize;
                    continue;
                }
                JUMP_IF_GREATER => number > instruction.k,
                JUMP_IF_GREATER_OR_EQUAL => number >= instruction.k,
                other => panic!("{other:#x}"),
            };
            at += 1 + usize::from(if holds { instruction.jt } else { instruction.jf });
        }
        false
    }

    #[test]
    fn the_tree_allows_exactly_the_numbers_it_was_made_of() {
        for step in [1, 2, 3, 7, 500] {
            let numbers: Vec<u32> = (0..450).filter(|n| n % step == 0 || n % 11 == 0).collect();
            let plain = sock_filter { code: 0, jt: 0, jf: 0, k: 0 };
            let blocks =
                numbers.iter().map(|k| sock_filter { code: JUMP_IF_EQUAL, jt: 0, jf: 0, k: *k });
            let program: Vec<_> = std::iter::repeat_n(plain, PREAMBLE).chain(blocks).collect();
            let program = allow_numbers(&program);
            for number in 0..600 {
                assert_eq!(allows(&program, number), numbers.contains(&number), "{step} {number}");
            }
        }
    }
}
