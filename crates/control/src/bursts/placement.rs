//! How many ranks of a burst each host gets, and the error where there is no room for all.

use snowmelt_schedule::{Spare, shares};
use snowmelt_types::{ByteSize, Code, ErrorReport};

/// How many ranks each host gets, in the order of `rooms`.
pub(crate) fn place(ranks: u32, each: ByteSize, rooms: &[Spare]) -> Result<Vec<u32>, ErrorReport> {
    shares(ranks, each.bytes(), rooms).ok_or_else(|| too_few(ranks, each, rooms))
}

fn too_few(ranks: u32, each: ByteSize, rooms: &[Spare]) -> ErrorReport {
    let need = ByteSize(each.bytes().saturating_mul(u64::from(ranks)));
    let have = ByteSize(rooms.iter().map(|room| room.memory).sum());
    let hosts = match rooms.len() {
        0 => "all hosts are drained and have".to_owned(),
        1 => "1 host has".to_owned(),
        many => format!("{many} hosts have"),
    };
    let message = format!("{ranks} functions of {each} need {need}, and {hosts} {have} to give");
    ErrorReport::new(Code::HOSTS_FEW, message)
        .hint("ask for less memory for each, or bring up more hosts (`snowmelt node`)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_is_missing() {
        let room = Spare { memory: 1 << 30, cores: 2 };
        let refused = place(3, ByteSize::mib(1024), &[room, room]).unwrap_err();
        assert_eq!(refused.code, "SM-0701");
        assert!(refused.message.contains("3 functions of 1 GiB need 3 GiB"), "{refused}");
    }
}
