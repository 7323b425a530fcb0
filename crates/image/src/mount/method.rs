//! The two methods to mount an image, and whether a mount can be taken over.

use serde::{Deserialize, Serialize};

/// The method by which an image is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// The kernel's EROFS over FUSE with one file per blob.
    Erofs,
    /// FUSE with the files of the image, for kernels that cannot mount EROFS on files (before Linux
    /// 6.12, or without the module). The first use of each name is a request to the server.
    Fuse,
}

/// Returns whether another process can take over a mount: since Linux 6.9, the kernel can resend
/// requests that were read but not answered. On older kernels, readers of a connection that is kept
/// open would wait for ever.
pub fn supports_takeover() -> bool {
    let system = rustix::system::uname();
    is_from(&system.release().to_string_lossy(), (6, 9))
}

fn is_from(release: &str, least: (u32, u32)) -> bool {
    let mut numbers = release.split(|digit: char| !digit.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse().ok()).unwrap_or(0);
    (next(), next()) >= least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_kernel_versions() {
        for (release, later) in [
            ("6.9.0", true),
            ("6.18.44-x", true),
            ("7.0", true),
            ("6.8.12-9-pve", false),
            ("", false),
        ] {
            assert_eq!(is_from(release, (6, 9)), later, "{release}");
        }
    }
}
