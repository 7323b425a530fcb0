//! The division of a gang's ranks between hosts: all ranks are placed, or none.

/// The free resources of a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spare {
    /// Free memory in bytes.
    pub memory: u64,
    /// The number of cores.
    pub cores: u32,
}

/// Returns how many ranks of `each` bytes every host gets, in the order of `rooms`: in proportion
/// to cores, as far as memory suffices. `None` if there is no room for all ranks.
///
/// The parts of a gang are contiguous, so that a host needs one route to each other host however
/// many ranks there are (Particle 4).
pub(crate) fn shares(ranks: u32, each: u64, rooms: &[Spare]) -> Option<Vec<u32>> {
    let fits = |room: &Spare| u32::try_from(room.memory / each.max(1)).unwrap_or(u32::MAX);
    let most: Vec<u32> = rooms.iter().map(fits).collect();
    let room: u64 = most.iter().map(|most| u64::from(*most)).sum();
    if room < u64::from(ranks) {
        return None;
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
    Some(shares)
}
