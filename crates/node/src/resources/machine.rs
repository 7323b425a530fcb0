//! The memory of the host and the processor time of its processes, from the kernel's own figures:
//! control groups of version 1 need not count processor time.

use std::fs;
use std::time::Duration;

use snowmelt_types::ByteSize;

/// The length of a clock tick in `/proc`, on every supported architecture.
const TICK: Duration = Duration::from_millis(10);

/// Returns the size of all memory of this machine.
pub fn machine_memory() -> ByteSize {
    let info = rustix::system::sysinfo();
    ByteSize(info.totalram.saturating_mul(info.mem_unit.into()))
}

/// Returns the processor time of a process, its threads, and the children that it has waited for;
/// `None` if there is no such process.
pub(crate) fn used_by(pid: i32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks = ticks(&stat)?;
    // The sum over the threads is finer, but lacks the threads that have ended.
    Some((TICK * ticks).max(scheduled(pid).unwrap_or_default()))
}

/// Returns the sum of the fields utime, stime, cutime and cstime, in clock ticks; the name before
/// them may have spaces.
fn ticks(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let times: Vec<u32> =
        fields.split(' ').skip(11).take(4).map_while(|field| field.parse().ok()).collect();
    (times.len() == 4).then(|| times.into_iter().fold(0, u32::saturating_add))
}

fn scheduled(pid: i32) -> Option<Duration> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.filter_map(Result::ok);
    let nanos = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Some(Duration::from_nanos(nanos.sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_moves_no_field() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 110 9 0 0 12 3 40 5 20 0 1 0 99";
        assert_eq!(ticks(stat), Some(60));
        assert_eq!(ticks("7 (a) S 1 7"), None);
    }

    #[test]
    fn time_spent_is_counted() {
        let pid = std::process::id() as i32;
        let before = used_by(pid).unwrap();
        while used_by(pid).unwrap() < before + Duration::from_millis(20) {
            std::hint::black_box((0..10_000u64).sum::<u64>());
        }
        assert_eq!(used_by(i32::MAX), None);
    }
}
