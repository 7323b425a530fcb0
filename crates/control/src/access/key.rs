//! The text of a key.

use std::fs::File;
use std::io::{self, Read};

/// The prefix of a key, by which programs that search for secrets find it.
pub(crate) const PREFIX: &str = "snowmelt-";

/// Returns random bytes as hexadecimal digits.
pub(crate) fn random_digits(bytes: usize) -> io::Result<String> {
    let mut random = vec![0; bytes];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}
