//! The runtimes that come with the platform, unpacked once by content; the one for Java is compiled
//! once by the machine's own compiler. `Runtime` of `crates/api` names them all.
//!
//! Invariant: a folder under `runtimes/` is whole, because it got there by a rename.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use snowmelt_kernel::process::end_with_thread;
use snowmelt_types::Digest;

use crate::files::code::state;
use crate::{Error, Result};

type RuntimeFiles = [(&'static str, &'static str)];

const NODE: &RuntimeFiles =
    &[("serve.mjs", include_str!("../../../../../runtimes/node/serve.mjs"))];

const JAVA: &RuntimeFiles = &[
    ("Serve.java", include_str!("../../../../../runtimes/java/snowmelt/Serve.java")),
    ("Handler.java", include_str!("../../../../../runtimes/java/snowmelt/Handler.java")),
    ("Failure.java", include_str!("../../../../../runtimes/java/snowmelt/Failure.java")),
    ("Json.java", include_str!("../../../../../runtimes/java/snowmelt/Json.java")),
];

/// The oldest release of Java that has unix sockets and the language features of the runtime.
const JAVA_RELEASE: &str = "17";

/// Returns the folder of the runtime for Node.js.
pub(super) fn node(runtimes: &Path) -> Result<PathBuf> {
    published(runtimes, "node", NODE, |whole| unpack(whole, NODE))
}

/// Returns the folder of the classes of the runtime for Java.
pub(super) fn java(runtimes: &Path) -> Result<PathBuf> {
    published(runtimes, "java", JAVA, |whole| {
        let sources = tempfile::tempdir().map_err(state(whole))?;
        unpack(sources.path(), JAVA)?;
        compile(sources.path(), whole)
    })
}

fn published(
    runtimes: &Path,
    name: &str,
    files: &RuntimeFiles,
    fill: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let digest = Digest::of_parts(files.iter().flat_map(|(name, text)| [*name, *text]));
    let folder = runtimes.join(format!("{name}-{}", digest.short()));
    if folder.is_dir() {
        return Ok(folder);
    }
    std::fs::create_dir_all(runtimes).map_err(state(runtimes))?;
    let whole = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o755))
        .tempdir_in(runtimes)
        .map_err(state(runtimes))?;
    fill(whole.path())?;
    match std::fs::rename(whole.path(), &folder) {
        Ok(()) => drop(whole.keep()),
        // Another process was faster.
        Err(_) if folder.is_dir() => {}
        Err(error) => return Err(state(&folder)(error)),
    }
    Ok(folder)
}

fn unpack(folder: &Path, files: &RuntimeFiles) -> Result<()> {
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(state(&path))?;
    }
    Ok(())
}

fn compile(sources: &Path, whole: &Path) -> Result<()> {
    let mut command = Command::new("javac");
    command
        .args(["--release", JAVA_RELEASE, "-proc:none", "-nowarn", "-d"])
        .arg(whole)
        .args(JAVA.iter().map(|(name, _)| sources.join(name)))
        .current_dir("/")
        .stdin(Stdio::null());
    let compiled = end_with_thread(&mut command).output();
    let failed = |reason: String| Error::Program {
        program: "javac".to_owned(),
        reason,
        hint: format!(
            "the Java runtime is compiled once by a JDK of version {JAVA_RELEASE} or later: \
             apt-get install default-jdk-headless"
        ),
    };
    match compiled {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(failed(said.lines().next().unwrap_or("it failed and said nothing").to_owned()))
        }
        Err(error) => Err(failed(format!("it cannot be started: {error}"))),
    }
}
