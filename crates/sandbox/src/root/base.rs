//! The base of every sandbox: the host's programs and libraries, and the few other files that
//! programs need. It contains nothing of the host's `/etc` that is about this host or its users.

use std::fs;
use std::path::Path;

use super::builder::RootBuilder;
use super::copy;
use crate::fault::{StepFault, doing};
use crate::spec::Network;

/// The folders of programs and libraries. On a merged `/usr` all but the first are links.
const PROGRAMS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// The files that the base has where the host has them: the loader's index, alternatives links,
/// public certificates, the time zone.
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

const FILES: [(&str, &str); 4] = [
    (
        "/etc/passwd",
        "root:x:0:0:root:/:/usr/sbin/nologin\n\
         snowmelt:x:1000:1000:snowmelt:/tmp:/usr/sbin/nologin\n\
         nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    ),
    ("/etc/group", "root:x:0:\nsnowmelt:x:1000:\nnogroup:x:65534:\n"),
    ("/etc/hostname", "snowmelt\n"),
    // Without this, a name has only its first address in the hosts file.
    ("/etc/host.conf", "multi on\n"),
];

/// Assembles the base.
pub(crate) fn assemble(builder: &RootBuilder<'_>, network: Network) -> Result<(), StepFault> {
    PROGRAMS.iter().try_for_each(|path| programs(builder, Path::new(path)))?;
    for (path, content) in FILES {
        builder.file(Path::new(path), content.as_bytes())?;
    }
    for (path, content) in name_service(network) {
        builder.file(Path::new(path), &content)?;
    }
    for path in CONFIGURATION.iter().map(Path::new).filter(|path| path.exists()) {
        copy::or_bind(builder, path)?;
    }
    builder.link(Path::new("/var/tmp"), Path::new("/tmp"))
}

fn programs(builder: &RootBuilder<'_>, path: &Path) -> Result<(), StepFault> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if found.is_symlink() {
        let to = doing(format!("read the link {}", path.display()), fs::read_link(path))?;
        return builder.link(path, &to);
    }
    builder.bind(path, path)
}

/// The files for name resolution: like the host's for a sandbox in its network, else with only
/// `localhost`.
fn name_service(network: Network) -> [(&'static str, Vec<u8>); 3] {
    let of_host = |path: &str| match network {
        Network::Host => fs::read(path).ok(),
        Network::None | Network::Job(_) => None,
    };
    let hosts = of_host("/etc/hosts").unwrap_or_else(|| b"127.0.0.1 localhost\n".to_vec());
    let resolvers = of_host("/etc/resolv.conf").unwrap_or_default();
    let switch = b"passwd: files\ngroup: files\nhosts: files dns\n".to_vec();
    [("/etc/hosts", hosts), ("/etc/resolv.conf", resolvers), ("/etc/nsswitch.conf", switch)]
}
