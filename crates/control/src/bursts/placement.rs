//! Which ranks run on which host: contiguous parts, so that a host needs one route to each other
//! host however many functions there are (Particle 4).
//!
//! Invariant: the parts are in the order of their ranks, cover all of them once, and no part needs
//! more memory than its host has to give.

use snowmelt_types::{ByteSize, Code, ErrorReport};

/// The free resources of a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Bytes.
    pub memory: u64,
    /// Cores.
    pub cores: u32,
}

/// How many ranks each host gets, in the order of `rooms`: in proportion to cores, as far as
/// memory goes.
pub(crate) fn place(ranks: u32, each: ByteSize, rooms: &[Room]) -> Result<Vec<u32>, ErrorReport> {
    let fits = |room: &Room| u32::try_from(room.memory / each.bytes().max(1)).unwrap_or(u32::MAX);
    let most: Vec<u32> = rooms.iter().map(fits).collect();
    let room: u64 = most.iter().map(|most| u64::from(*most)).sum();
    if room < u64::from(ranks) {
        return Err(too_few(ranks, each, rooms));
    }
    let mut shares = vec![0; rooms.len()];
    let mut left = ranks;
    // Full hosts are left out, and the others share the remaining ranks.
    while left > 0 {
        let open: Vec<usize> =
            (0..rooms.len()).filter(|host| shares[*host] < most[*host]).collect();
        let cores: u64 = open.iter().map(|host| u64::from(rooms[*host].cores.max(1))).sum();
        let now = left;
        for host in open {
            let weight = u64::from(rooms[host].cores.max(1));
            let fair = (u64::from(now) * weight).div_ceil(cores.max(1));
            let fair = u32::try_from(fair).unwrap_or(u32::MAX);
            let share = fair.min(most[host] - shares[host]).min(left);
            shares[host] += share;
            left -= share;
        }
    }
    Ok(shares)
}

fn too_few(ranks: u32, each: ByteSize, rooms: &[Room]) -> ErrorReport {
    let need = ByteSize(each.bytes().saturating_mul(u64::from(ranks)));
    let have = ByteSize(rooms.iter().map(|room| room.memory).sum());
    let hosts = match rooms.len() {
        1 => "1 host has".to_owned(),
        many => format!("{many} hosts have"),
    };
    let message = format!("{ranks} functions of {each} need {need}, and {hosts} {have} to give");
    ErrorReport::new(Code::HOSTS_FEW, message)
        .hint("ask for less memory for each, or bring up more hosts (`snowmelt node`)")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn room(gib: u64, cores: u32) -> Room {
        Room { memory: gib << 30, cores }
    }

    #[test]
    fn shares_by_cores_as_far_as_memory_goes() {
        let each = ByteSize::mib(1024);
        assert_eq!(place(8, each, &[room(64, 2), room(64, 2)]).unwrap(), [4, 4]);
        assert_eq!(place(9, each, &[room(64, 1), room(64, 2)]).unwrap(), [3, 6]);
        assert_eq!(place(8, each, &[room(2, 2), room(64, 2)]).unwrap(), [2, 6]);
        assert_eq!(place(1, each, &[room(1, 2), room(1, 2)]).unwrap(), [1, 0]);
    }

    #[test]
    fn says_what_is_missing() {
        let refused = place(3, ByteSize::mib(1024), &[room(1, 2), room(1, 2)]).unwrap_err();
        assert_eq!(refused.code, "SM-0701");
        assert!(refused.message.contains("3 functions of 1 GiB need 3 GiB"), "{refused}");
    }

    proptest! {
        #[test]
        fn every_rank_has_one_host_with_room_for_it(
            ranks in 0_u32..5_000,
            rooms in prop::collection::vec((0_u64..64, 0_u32..64), 1..20),
        ) {
            let each = ByteSize::mib(256);
            let rooms: Vec<Room> = rooms.into_iter().map(|(gib, cores)| room(gib, cores)).collect();
            let all: u64 = rooms.iter().map(|room| room.memory / each.bytes()).sum();
            match place(ranks, each, &rooms) {
                Ok(shares) => {
                    prop_assert_eq!(shares.iter().sum::<u32>(), ranks);
                    for (share, room) in shares.iter().zip(&rooms) {
                        prop_assert!(u64::from(*share) * each.bytes() <= room.memory);
                    }
                }
                Err(_) => prop_assert!(all < u64::from(ranks)),
            }
        }
    }
}
