//! What every sandbox sees: the host's programs and libraries, and as little else as programs
//! need. Nothing of the host's `/etc` that is about this host or its users.

use std::fs;
use std::path::Path;

use super::{Fault, doing};
use crate::root::skeleton::Skeleton;
use crate::spec::Network;

/// Programs and libraries. On a merged `/usr` all but the first are links.
const PROGRAMS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Shown where the host has them: the loader's index, links to chosen programs, public
/// certificates, the time zone.
const CONFIGURATION: [&str; 8] = [
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/etc/localtime",
    "/etc/mime.types",
];

const DEVICES: [(&str, (u32, u32)); 5] = [
    ("/dev/null", (1, 3)),
    ("/dev/zero", (1, 5)),
    ("/dev/full", (1, 7)),
    ("/dev/random", (1, 8)),
    ("/dev/urandom", (1, 9)),
];

/// `/dev/shm` leads to the scratch, so that shared memory is bounded with it.
const LINKS: [(&str, &str); 6] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/shm", "/tmp"),
    ("/var/tmp", "/tmp"),
];

/// `/mnt` is where a zygote attaches the root of a child before it makes it its own.
const FOLDERS: [&str; 4] = ["/proc", "/tmp", "/run", "/mnt"];

const FILES: [(&str, &str); 5] = [
    (
        "/etc/passwd",
        "root:x:0:0:root:/:/usr/sbin/nologin\n\
         snowmelt:x:1000:1000:snowmelt:/tmp:/usr/sbin/nologin\n\
         nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    ),
    ("/etc/group", "root:x:0:\nsnowmelt:x:1000:\nnogroup:x:65534:\n"),
    ("/etc/hostname", "snowmelt\n"),
    ("/run/snowmelt/zygote.py", include_str!("../../../../python/snowmelt/_runtime/zygote.py")),
    ("/run/snowmelt/enter.py", include_str!("../../../../python/snowmelt/_runtime/enter.py")),
];

/// Puts the base together.
pub(crate) fn assemble(skeleton: &Skeleton<'_>, network: Network) -> Result<(), Fault> {
    for path in FOLDERS {
        skeleton.folder(Path::new(path))?;
    }
    PROGRAMS.iter().try_for_each(|path| programs(skeleton, Path::new(path)))?;
    for (path, content) in FILES {
        skeleton.file(Path::new(path), content.as_bytes())?;
    }
    for (path, content) in name_service(network) {
        skeleton.file(Path::new(path), &content)?;
    }
    for path in CONFIGURATION.iter().map(Path::new).filter(|path| path.exists()) {
        skeleton.bind(path, path)?;
    }
    for (path, number) in DEVICES {
        skeleton.device(Path::new(path), number)?;
    }
    LINKS.iter().try_for_each(|(path, to)| skeleton.link(Path::new(path), Path::new(to)))
}

fn programs(skeleton: &Skeleton<'_>, path: &Path) -> Result<(), Fault> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if found.is_symlink() {
        let to = doing(format!("read the link {}", path.display()), fs::read_link(path))?;
        return skeleton.link(path, &to);
    }
    skeleton.bind(path, path)
}

/// How names are resolved: as on the host with its network, and only `localhost` without.
fn name_service(network: Network) -> [(&'static str, Vec<u8>); 3] {
    let of_host = |path: &str| match network {
        Network::Host => fs::read(path).ok(),
        Network::None => None,
    };
    let hosts = of_host("/etc/hosts").unwrap_or_else(|| b"127.0.0.1 localhost\n".to_vec());
    let resolvers = of_host("/etc/resolv.conf").unwrap_or_default();
    let switch = b"passwd: files\ngroup: files\nhosts: files dns\n".to_vec();
    [("/etc/hosts", hosts), ("/etc/resolv.conf", resolvers), ("/etc/nsswitch.conf", switch)]
}
