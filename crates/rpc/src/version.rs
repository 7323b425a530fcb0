//! The version of this program, with the identifier of its build, and that of what control and hosts
//! say to each other.
//!
//! Invariant: programs one version of the protocol apart understand each other; those further apart
//! refuse each other, each with a reason. A message that gets a field leaves it out where it is not
//! used, and readers skip fields that they do not know.

use std::fs::File;
use std::hint::black_box;
use std::sync::OnceLock;

use axum::http::{HeaderMap, HeaderName};
use object::Object;
use object::read::ReadCache;
use snowmelt_types::{Code, ErrorReport};

/// The number of characters of the identifier that are shown.
const SHOWN: usize = 12;

/// The header with the version of the protocol that a process of a cluster speaks.
pub(crate) const PROTOCOL_HEADER: HeaderName = HeaderName::from_static("snowmelt-protocol");

/// The version of the protocol, after its name: `tests/e2e/test_upgrade.py` makes programs of other
/// versions by changing these digits in the file of a program.
static PROTOCOL: &str = "snowmelt-protocol=0001";

/// The version and the build, as semantic versioning writes them: `0.1.0+6d419e0aa050`. Two
/// programs with the same text are the same file.
///
/// The build is the identifier that the linker puts into the file, so it needs no source control
/// and changes with each byte of code. Without one the version stands alone.
pub fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| {
        let version = env!("CARGO_PKG_VERSION");
        build().map_or_else(|| version.to_owned(), |build| format!("{version}+{build}"))
    })
}

/// The version of the protocol between control and hosts.
pub fn protocol() -> u32 {
    static NUMBER: OnceLock<u32> = OnceLock::new();
    *NUMBER.get_or_init(|| {
        // Read from the file, and not known to the compiler.
        let digits = black_box(PROTOCOL).rsplit('=').next();
        digits.and_then(|digits| digits.parse().ok()).unwrap_or(1)
    })
}

/// Refuses a process of the cluster whose protocol is not at most one version apart. 0 is that of
/// programs which do not say theirs: they work with their own build only.
///
/// # Errors
/// `SM-0704`, with both versions.
pub fn check_protocol(whose: &str, theirs: u32) -> Result<(), ErrorReport> {
    let ours = protocol();
    if theirs > 0 && theirs.abs_diff(ours) <= 1 {
        return Ok(());
    }
    let message = format!(
        "{whose} speaks version {theirs} of the protocol between hosts, and this program, {}, \
         version {ours}",
        version()
    );
    Err(ErrorReport::new(Code::HOST_REFUSED, message)
        .hint("versions one apart work together: upgrade step by step, see docs/how-to/upgrade.md"))
}

/// Checks the protocol in the headers of a request of a process. Without a header there is nothing to
/// check: who asks has reported before.
pub(crate) fn check_header(headers: &HeaderMap, whose: &str) -> Result<(), ErrorReport> {
    let Some(theirs) = headers.get(PROTOCOL_HEADER) else { return Ok(()) };
    let theirs = theirs.to_str().ok().and_then(|theirs| theirs.parse().ok());
    check_protocol(whose, theirs.unwrap_or(0)).inspect_err(|refused| {
        tracing::warn!(error = %refused.message, "a process of another version is refused");
    })
}

fn build() -> Option<String> {
    let file = ReadCache::new(File::open("/proc/self/exe").ok()?);
    let program = object::File::parse(&file).ok()?;
    let id = program.build_id().ok()??;
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(hex.chars().take(SHOWN).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_is_that_of_the_file() {
        let (number, build) = version().split_once('+').unwrap();
        assert_eq!(number, env!("CARGO_PKG_VERSION"));
        assert_eq!(build.len(), SHOWN);
        assert!(build.bytes().all(|byte| byte.is_ascii_hexdigit()), "{build}");
    }

    #[test]
    fn versions_of_the_protocol_one_apart_work_together() {
        let ours = protocol();
        assert_eq!(PROTOCOL, format!("snowmelt-protocol={ours:04}"));
        for near in [ours, ours + 1] {
            check_protocol("host-2", near).unwrap();
        }
        for far in [0, ours + 2] {
            let refused = check_protocol("host-2", far).unwrap_err();
            assert_eq!(refused.code, Code::HOST_REFUSED.code);
            assert!(refused.message.contains("host-2") && refused.message.contains(version()));
        }
    }

    #[test]
    fn a_request_without_a_version_comes_from_who_has_reported() {
        let of = |text: &str| HeaderMap::from_iter([(PROTOCOL_HEADER, text.parse().unwrap())]);
        check_header(&HeaderMap::new(), "h").unwrap();
        check_header(&of(&protocol().to_string()), "h").unwrap();
        check_header(&of("9999"), "h").unwrap_err();
        check_header(&of("new"), "h").unwrap_err();
    }
}
