//! Finds the host to blame when hosts of a job do not reach each other. Each host reports which
//! hosts it does not reach, and both ends report a cut link.

use std::collections::BTreeSet;
use std::net::IpAddr;

use snowmelt_types::{Code, ErrorReport};

use crate::bursts::RankRange;

/// Returns an error if some parts do not reach others. `unreached` has, for each part, the
/// addresses of the hosts that it does not reach.
pub(in crate::bursts) fn check(
    parts: &[RankRange],
    unreached: &[Vec<IpAddr>],
) -> Result<(), ErrorReport> {
    let place = |address: &IpAddr| parts.iter().position(|p| p.host.underlay() == Some(*address));
    let missing = unreached.iter().enumerate();
    let cut = missing.flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
    let cut: Vec<(usize, usize)> = cut.filter_map(|(from, to)| Some((from, place(to)?))).collect();
    let Some(suspect) = suspect(&cut) else { return Ok(()) };
    let others = others(suspect, &cut);
    let names: Vec<String> = others.iter().map(|at| parts[*at].host.name.to_string()).collect();
    let message = format!(
        "{} and {} do not reach each other over the job's network",
        parts[suspect],
        names.join(", ")
    );
    Err(ErrorReport::new(Code::NETWORK_UNREACHABLE, message)
        .hint("nothing was run; the hosts must reach each other's UDP port of the overlay (4789)"))
}

/// Returns the place that is an end of the most cuts. Of several it is the last, because the first
/// is control.
fn suspect(cut: &[(usize, usize)]) -> Option<usize> {
    let ends = cut.iter().flat_map(|(from, to)| [*from, *to]);
    let count = |place: usize| cut.iter().filter(|(a, b)| *a == place || *b == place).count();
    ends.max_by_key(|place| (count(*place), *place))
}

/// Returns the places at the other ends of the suspect's cuts.
fn others(suspect: usize, cut: &[(usize, usize)]) -> BTreeSet<usize> {
    let other = |(from, to): &(usize, usize)| match (*from == suspect, *to == suspect) {
        (true, _) => Some(*to),
        (_, true) => Some(*from),
        _ => None,
    };
    cut.iter().filter_map(other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_with_most_unreachable_peers_is_named() {
        // Both ends, one end, and among others that have one of their own.
        for (cut, at, ends) in [
            (&[(1, 2), (2, 1), (2, 3), (3, 2)][..], 2, &[1, 3][..]),
            (&[(0, 2), (1, 2), (3, 2)], 2, &[0, 1, 3]),
            (&[(1, 0), (1, 2), (3, 2), (1, 3)], 1, &[0, 2, 3]),
            (&[(0, 1)], 1, &[0]),
        ] {
            assert_eq!(suspect(cut), Some(at), "{cut:?}");
            assert_eq!(others(at, cut).into_iter().collect::<Vec<_>>(), ends, "{cut:?}");
        }
        assert_eq!(suspect(&[]), None);
    }
}
