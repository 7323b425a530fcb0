//! The names in certificates of a cluster.
//!
//! Names of DNS do not tell capitals from small letters, and parts of them have at most 63 letters.
//! So the name of a host is written there in hexadecimal digits, in one part or two.

use rustls::pki_types::ServerName;
use snowmelt_types::HostName;

/// The name of control, which no host has.
pub(super) const CONTROL: &str = "control.snowmelt";

/// The end of the names of hosts.
const HOSTS: &str = ".host.snowmelt";

/// The most hexadecimal digits of a part.
const PART: usize = 60;

/// The process that is meant to be at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meant {
    /// Control.
    Control,
    /// The host of this name. Control's own host has a name as well.
    Host(HostName),
}

impl Meant {
    /// The name that the certificate of the other end must have.
    pub(crate) fn certified(&self) -> Result<ServerName<'static>, String> {
        let name = match self {
            Self::Control => CONTROL.to_owned(),
            Self::Host(name) => of_host(name),
        };
        ServerName::try_from(name).map_err(|error| error.to_string())
    }
}

impl std::fmt::Display for Meant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Control => f.write_str("control"),
            Self::Host(name) => write!(f, "the host `{name}`"),
        }
    }
}

/// The name in the certificate of a host.
pub(super) fn of_host(name: &HostName) -> String {
    let digits: String = name.as_str().bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut certified = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && at % PART == 0 {
            certified.push('.');
        }
        certified.push(digit);
    }
    certified + HOSTS
}

/// The host whose name in a certificate this is; `None` for any other name.
pub(super) fn host(certified: &str) -> Option<HostName> {
    let digits: String = certified.strip_suffix(HOSTS)?.split('.').collect();
    let digits = digits.as_bytes();
    let digit =
        |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes = digits.chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    let name = String::from_utf8(bytes.collect::<Option<_>>()?).ok()?;
    name.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_host_is_that_of_no_other_and_not_controls() {
        let long = "h".repeat(64);
        for name in ["one", "ONE", "One_-", "control", "a", &long] {
            let name: HostName = name.parse().unwrap();
            let certified = of_host(&name);
            assert_eq!(host(&certified), Some(name.clone()), "{certified}");
            assert!(Meant::Host(name).certified().is_ok(), "{certified}");
            assert!(certified.split('.').all(|part| part.len() <= 63));
        }
        for wrong in [CONTROL, "one.host.snowmelt", "6.host.snowmelt", ".host.snowmelt", "6f6e65"] {
            assert_eq!(host(wrong), None, "{wrong}");
        }
        assert!(Meant::Control.certified().is_ok());
    }
}
