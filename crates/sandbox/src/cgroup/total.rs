//! The default limits of all sandboxes together. They leave room for the host, the server and the
//! spawner.

use std::fs;

use snowmelt_types::ByteSize;

use crate::spec::Total;

/// The minimum memory for the host.
const RESERVE: u64 = 512 << 20;

/// The memory limit; `None` if the kernel does not report the machine's memory.
pub(super) fn memory(total: &Total) -> Option<ByteSize> {
    let text = || fs::read_to_string("/proc/meminfo").ok();
    total.memory.or_else(|| of_machine(&text()?))
}

fn of_machine(meminfo: &str) -> Option<ByteSize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let bytes = line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10;
    // On a very small machine, half of it.
    let left = bytes.saturating_sub(RESERVE.max(bytes / 8));
    Some(ByteSize(left.max(bytes / 2)))
}

/// The limit of processes and threads.
pub(super) fn processes(total: &Total) -> Option<u32> {
    let read = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
        text.trim().parse::<u32>().ok()
    };
    let most = || Some(read("pid_max")?.min(read("threads-max")?) / 4 * 3);
    total.processes.or_else(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_an_eighth_and_not_less_than_the_reserve() {
        let of = |gib: u64| of_machine(&format!("MemTotal: {} kB\n", gib << 20)).unwrap();
        assert_eq!(of(64), ByteSize(56 << 30));
        assert_eq!(of(2), ByteSize((2 << 30) - RESERVE));
        assert_eq!(of_machine("MemTotal: 524288 kB\n"), Some(ByteSize(256 << 20)));
        assert_eq!(of_machine("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn explicit_limits_have_precedence() {
        let total = Total { memory: Some(ByteSize(5)), processes: Some(7) };
        assert_eq!((memory(&total), processes(&total)), (Some(ByteSize(5)), Some(7)));
        assert!(processes(&Total::default()) > Some(100));
    }
}
