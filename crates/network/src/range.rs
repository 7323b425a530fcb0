//! Address ranges: a job's, and the contiguous part of it that each host owns (Particle 3.1,
//! "IP pooling"; contiguous parts are our addition, so that a remote host is one route).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// Addresses at the beginning of a host's part that are not assigned to functions: the first is the
/// host's own in the job, the source of its echo requests.
pub const RESERVED: u32 = 1;

/// The addresses that begin with the same bits, as `10.1.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Range {
    base: IpAddr,
    prefix: u8,
}

impl PartialSchema for Range {
    fn schema() -> RefOr<Schema> {
        String::schema()
    }
}

impl ToSchema for Range {}

/// A text is not a valid range.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a range of addresses such as 10.1.0.0/16 or fd00:1::/64")]
pub struct BadRange {
    text: String,
}

impl Range {
    /// The range of `prefix` bits that contains `address`; none if the address is shorter.
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        let bits = bits_of(address);
        (prefix <= bits).then(|| {
            let value = value_of(address) & mask(bits, prefix);
            Self { base: of_family(address, value), prefix }
        })
    }

    /// The IPv4 range of at most 32 bits that contains `address`.
    pub fn v4(address: Ipv4Addr, prefix: u8) -> Self {
        let prefix = prefix.min(32);
        let value = u128::from(address.to_bits()) & mask(32, prefix);
        Self { base: of_family(address.into(), value), prefix }
    }

    /// The first address of the range.
    pub fn base(&self) -> IpAddr {
        self.base
    }

    /// The number of leading bits that all addresses of the range share.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether the addresses are IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.base.is_ipv4()
    }

    /// The number of addresses; `u128::MAX` stands for 2^128.
    pub fn len(&self) -> u128 {
        1u128.checked_shl(u32::from(bits_of(self.base) - self.prefix)).unwrap_or(u128::MAX)
    }

    /// Whether the range has no addresses: always false.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The address at an index, from 0.
    pub fn nth(&self, index: u128) -> Option<IpAddr> {
        (index < self.len()).then(|| of_family(self.base, value_of(self.base) + index))
    }

    /// Whether the range contains the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        Self::new(address, self.prefix) == Some(*self)
    }

    /// Whether two ranges have an address in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.base) || other.contains(self.base)
    }

    /// The part with the number `number`, from 0, of the parts with `prefix` bits: the part of host
    /// `number` of a job.
    pub fn part(&self, prefix: u8, number: u32) -> Option<Self> {
        if prefix < self.prefix || prefix > bits_of(self.base) {
            return None;
        }
        let step = 1u128.checked_shl(u32::from(bits_of(self.base) - prefix))?;
        let base = self.nth(u128::from(number).checked_mul(step)?)?;
        Self::new(base, prefix)
    }
}

/// The longest prefix whose parts have `functions` addresses beside the host's own, for IPv4
/// (32 bits) or IPv6 (128).
pub fn prefix_for(functions: u32, bits: u8) -> u8 {
    let needed = u64::from(functions) + u64::from(RESERVED);
    bits - needed.next_power_of_two().trailing_zeros() as u8
}

fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn value_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn of_family(like: IpAddr, value: u128) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::from_bits(value as u32).into(),
        IpAddr::V6(_) => Ipv6Addr::from_bits(value).into(),
    }
}

fn mask(bits: u8, prefix: u8) -> u128 {
    u128::MAX.checked_shl(u32::from(bits - prefix)).unwrap_or(0)
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

impl FromStr for Range {
    type Err = BadRange;

    /// Parses a range. Refuses an address that is not the first of the range: it is usually a
    /// mistake.
    fn from_str(text: &str) -> Result<Self, BadRange> {
        let parse = || {
            let (address, prefix) = text.split_once('/')?;
            let address: IpAddr = address.parse().ok()?;
            Self::new(address, prefix.parse().ok()?).filter(|range| range.base == address)
        };
        parse().ok_or_else(|| BadRange { text: text.to_owned() })
    }
}

impl TryFrom<String> for Range {
    type Error = BadRange;

    fn try_from(text: String) -> Result<Self, BadRange> {
        text.parse()
    }
}

impl From<Range> for String {
    fn from(range: Range) -> Self {
        range.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Range {
        text.parse().unwrap()
    }

    #[test]
    fn parts_of_hosts_are_contiguous_and_disjoint() {
        for (job, prefix) in [("10.7.0.0/16", 20), ("fd00:7::/64", 116)] {
            let parts: Vec<_> = (0..16).map(|n| range(job).part(prefix, n).unwrap()).collect();
            for pair in parts.windows(2) {
                assert!(!pair[0].overlaps(&pair[1]));
                let last = pair[0].nth(pair[0].len() - 1).unwrap();
                assert_eq!(value_of(last) + 1, value_of(pair[1].base()));
            }
            assert!(parts.iter().all(|part| part.overlaps(&range(job))));
        }
        assert_eq!(range("10.7.0.0/16").part(20, 16), None);
        assert_eq!(range("10.7.0.0/16").part(8, 0), None);
    }

    #[test]
    fn the_prefix_has_room_for_the_functions_and_is_not_too_short() {
        for functions in [1, 3, 254, 255, 1000, 4094, 4095, 10_000] {
            for (bits, base) in [(32, "10.0.0.0"), (128, "fd00::")] {
                let prefix = prefix_for(functions, bits);
                let part = Range::new(base.parse().unwrap(), prefix).unwrap();
                assert!(part.len() > u128::from(functions), "{part} for {functions}");
                assert!(part.len() / 2 <= u128::from(functions) + 1, "{part} for {functions}");
            }
        }
    }

    #[test]
    fn text_that_is_not_a_range_is_refused() {
        for bad in ["", "10.0.0.0", "10.0.0.1/8", "10.0.0.0/33", "fd00::1/64", "x/8"] {
            assert!(bad.parse::<Range>().is_err(), "{bad}");
        }
        for good in ["0.0.0.0/0", "10.0.0.1/32", "::/0", "fd00:1::/64"] {
            assert_eq!(range(good).to_string(), good);
        }
        assert!(range("0.0.0.0/0").contains("1.2.3.4".parse().unwrap()));
        assert!(!range("0.0.0.0/0").contains("::1".parse().unwrap()));
    }
}
