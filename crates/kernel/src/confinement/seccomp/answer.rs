//! Interprets a filter as the kernel does, so that tests can check every system call without making
//! one.

use seccompiler::sock_filter;

/// Offsets of the architecture and the first argument in the kernel's `struct seccomp_data`.
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

const LOAD_WORD: u16 = 0x20;
const AND: u16 = 0x54;

/// The result of a program for one call.
pub(super) fn of(
    program: &[sock_filter],
    architecture: u32,
    number: u32,
    arguments: [u64; 6],
) -> Option<u32> {
    let load = |offset: u32| match offset {
        0 => Some(number),
        ARCHITECTURE => Some(architecture),
        _ => {
            let word = offset.checked_sub(ARGUMENTS)? / 4;
            let argument = arguments.get(word as usize / 2)?;
            // On all supported machines the low half is first.
            Some(if word % 2 == 0 { *argument as u32 } else { (argument >> 32) as u32 })
        }
    };
    let mut accumulator = 0_u32;
    let mut index = 0_usize;
    // It only jumps forward, so it terminates.
    loop {
        let instruction = program.get(index)?;
        let k = instruction.k;
        let taken = match instruction.code {
            super::RETURN => return Some(k),
            super::JUMP => {
                index += 1 + k as usize;
                continue;
            }
            LOAD_WORD => {
                accumulator = load(k)?;
                None
            }
            AND => {
                accumulator &= k;
                None
            }
            0x15 => Some(accumulator == k),
            0x25 => Some(accumulator > k),
            0x35 => Some(accumulator >= k),
            0x45 => Some(accumulator & k != 0),
            _ => return None,
        };
        index += match taken {
            None => 1,
            Some(true) => 1 + usize::from(instruction.jt),
            Some(false) => 1 + usize::from(instruction.jf),
        };
    }
}
