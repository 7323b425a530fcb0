//! Messages with control data, which can set another source address.
//!
//! A message without one is left to the kernel. So two racing threads can still forge the source of
//! a datagram, among the addresses of their own job on their own host; the programs of
//! [`super::cgroups`] leave no such gap.

use rustix::io::Errno;
use snowmelt_kernel::notify::{self, CallAnswer, NotifiedCall, calls};

/// Sizes of `struct msghdr` and `struct mmsghdr`, and offsets of the control data in the former.
pub const MESSAGE: usize = 56;
const MESSAGES: u64 = 64;
const CONTROL: usize = 32;
pub const CONTROL_LENGTH: usize = 40;
/// The size of `struct cmsghdr`.
const HEADER: usize = 16;
/// Limits above what programs use; longer control data is refused.
const MAX_CONTROL: usize = 4096;
const MAX_MESSAGES: u64 = 1024;
/// `IP_PKTINFO` of `SOL_IP`, `IPV6_PKTINFO` and `IPV6_2292PKTINFO` of `SOL_IPV6`.
const SOURCES: [(u32, u32); 3] = [(0, 8), (41, 50), (41, 2)];

/// The answer to `sendmsg` and `sendmmsg`.
pub fn check(call: &NotifiedCall) -> Result<CallAnswer, Errno> {
    let [_, messages, count, ..] = call.arguments;
    let count = match call.number {
        calls::SEND_MESSAGES => (count as u32 as u64).min(MAX_MESSAGES),
        _ => 1,
    };
    for number in 0..count {
        if names_source(call, messages.wrapping_add(number * MESSAGES))? {
            return Err(Errno::PERM);
        }
    }
    Ok(CallAnswer::Continue)
}

fn names_source(call: &NotifiedCall, message: u64) -> Result<bool, Errno> {
    let mut bytes = [0; MESSAGE];
    read(call, message, &mut bytes)?;
    let number = |at: usize| bytes[at..at + 8].try_into().map(u64::from_ne_bytes);
    let (Ok(control), Ok(length)) = (number(CONTROL), number(CONTROL_LENGTH)) else {
        return Err(Errno::INVAL);
    };
    if length == 0 {
        return Ok(false);
    }
    let length = usize::try_from(length).map_err(|_| Errno::INVAL)?;
    if length > MAX_CONTROL {
        return Err(Errno::NOBUFS);
    }
    let mut beside = vec![0; length];
    read(call, control, &mut beside)?;
    Ok(has_source(&beside))
}

pub fn read(call: &NotifiedCall, address: u64, into: &mut [u8]) -> Result<(), Errno> {
    let done = notify::read_memory(call.thread, address, into);
    done.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::FAULT))
}

/// Whether one of the control messages sets a source address.
fn has_source(mut bytes: &[u8]) -> bool {
    while let Some(header) = bytes.get(..HEADER) {
        let word = |at: usize| {
            u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        if SOURCES.contains(&(word(8), word(12))) {
            return true;
        }
        // The upper half of a valid length is 0.
        let length = (word(0) as usize).max(HEADER);
        bytes = bytes.get(length.next_multiple_of(8)..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(level: u32, kind: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER + data.len()) as u64).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    #[test]
    fn a_source_address_is_found_in_any_control_message() {
        let harmless = [part(1, 1, &[0; 4]), part(17, 103, &[0; 2])].concat();
        assert!(!has_source(&harmless));
        for (level, kind) in SOURCES {
            assert!(has_source(&part(level, kind, &[0; 12])));
            assert!(has_source(&[harmless.clone(), part(level, kind, &[0; 12])].concat()));
        }
        assert!(!has_source(&[0; 15]) && !has_source(&[0; 64]));
    }
}
