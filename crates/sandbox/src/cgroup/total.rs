//! The default limits of all sandboxes together. They leave room for the host, the server and the
//! spawner.

use std::fs;

use snowmelt_types::ByteSize;

use crate::spec::Total;

/// The minimum memory for the host.
const RESERVE: u64 = 512 << 20;

impl Total {
    /// The memory limit that the sandboxes get; `None` if the kernel does not report the machine's
    /// memory.
    pub fn memory_limit(&self) -> Option<ByteSize> {
        let text = || fs::read_to_string("/proc/meminfo").ok();
        self.memory.or_else(|| of_machine(&text()?))
    }

    /// The limit on processes and threads that the sandboxes get; `None` if the kernel does not
    /// report its own limit.
    pub fn process_limit(&self) -> Option<u32> {
        let read = |name: &str| {
            let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
            text.trim().parse::<u32>().ok()
        };
        let most = || Some(read("pid_max")?.min(read("threads-max")?) / 4 * 3);
        self.processes.or_else(most)
    }
}

fn of_machine(meminfo: &str) -> Option<ByteSize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let bytes = line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10;
    // On a very small machine, half of it.
    let left = bytes.saturating_sub(RESERVE.max(bytes / 8));
    Some(ByteSize(left.max(bytes / 2)))
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
        assert_eq!((total.memory_limit(), total.process_limit()), (Some(ByteSize(5)), Some(7)));
        assert!(Total::default().process_limit() > Some(100));
    }
}
