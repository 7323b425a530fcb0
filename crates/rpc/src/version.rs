//! The version of this program, with the identifier of its build.

use std::fs::File;
use std::sync::OnceLock;

use object::Object;
use object::read::ReadCache;

/// The number of characters of the identifier that are shown.
const SHOWN: usize = 12;

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
}
