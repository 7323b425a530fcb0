//! Specs, packages and images as input (CVE-2021-30465, CVE-2023-27561, CVE-2024-45310,
//! CVE-2025-31133, CVE-2025-52565).

use std::os::unix::fs::symlink;
use std::path::Path;

use snowmelt_sandbox::{Base, Bind, Error, ProcessSettings, Root, SandboxSpec};
use snowmelt_types::SandboxId;

use crate::harness::{python, python_root, within};
use crate::twin::{escapes_only_without, never_escapes, open_folder, printed};

/// A package has a link to a host folder at the target of another bind: the mount point must not be
/// made at the end of that link.
#[test]
fn a_mount_point_is_made_on_the_host_through_a_link() {
    escapes_only_without(&["OwnTree"], |rig| async move {
        let code = open_folder();
        let other = open_folder();
        let host = open_folder();
        symlink(host.path(), code.path().join("out")).unwrap();
        let mut spec = python("print('started')");
        let shown =
            |source: &Path, target: &str| Bind { source: source.into(), target: target.into() };
        spec.root.binds.push(shown(code.path(), "/code"));
        spec.root.binds.push(shown(other.path(), "/code/out/made"));
        let saw = match rig.spawner.start(spec).await {
            Ok(sandbox) => format!("{:?}", within(sandbox.wait()).await.end),
            Err(error) => error.to_string(),
        };
        let made = host.path().join("made").exists();
        if made { format!("ESCAPED: made a folder on the host {saw}") } else { saw }
    });
}

/// A mount point below a host folder: the folder is read-only before the mount point is made, so it
/// cannot be made.
#[test]
fn a_mount_point_is_made_in_a_folder_of_the_host() {
    escapes_only_without(&["Inert"], |rig| async move {
        let code = open_folder();
        let other = open_folder();
        let mut spec = python("print('started')");
        for (source, target) in [(code.path(), "/code"), (other.path(), "/code/made")] {
            spec.root.binds.push(Bind { source: source.into(), target: target.into() });
        }
        let saw = match rig.spawner.start(spec).await {
            Ok(sandbox) => format!("{:?}", within(sandbox.wait()).await.end),
            Err(error) => error.to_string(),
        };
        if code.path().join("made").exists() { format!("ESCAPED {saw}") } else { saw }
    });
}

/// An image whose `/proc`, `/dev`, `/tmp` and `/run` are links to a host folder, or whose devices
/// are files: these paths are the platform's, whatever the image has there.
#[test]
fn an_image_prepares_the_mount_points() {
    never_escapes(|rig| async move {
        let host = open_folder();
        for trap in ["links", "files"] {
            let image = open_folder();
            let at = |name: &str| image.path().join(name);
            for name in ["proc", "tmp", "run", "mnt", "dev"] {
                match trap {
                    "links" => symlink(host.path(), at(name)).unwrap(),
                    _ => std::fs::write(at(name), "a file").unwrap(),
                }
            }
            if trap == "files" {
                std::fs::remove_file(at("dev")).unwrap();
                std::fs::create_dir(at("dev")).unwrap();
                std::fs::write(at("dev/null"), "a file").unwrap();
            }
            let saw = printed(&rig, of_image(image.path())).await;
            assert!(saw.contains("no trap worked"), "{trap}: {saw}");
            if std::fs::read_dir(host.path()).unwrap().next().is_some() {
                return format!("ESCAPED by {trap}: {saw}");
            }
        }
        String::new()
    });
}

/// Python in an image that has the host's programs, by top-level links like a distribution's.
fn of_image(image: &Path) -> SandboxSpec {
    let script = "
import os, stat
null = os.stat('/dev/null')
assert stat.S_ISCHR(null.st_mode) and null.st_rdev == os.makedev(1, 3)
assert os.path.ismount('/proc') and os.path.exists('/proc/self/status')
open('/tmp/x', 'w').close(); open('/dev/null', 'w').write('x')
print('no trap worked')
";
    let mut spec = python(script);
    for name in ["bin", "lib", "lib64", "sbin"] {
        if let Ok(to) = std::fs::read_link(Path::new("/").join(name)) {
            symlink(to, image.join(name)).unwrap();
        }
    }
    let mut binds = python_root().binds;
    binds.push(Bind { source: "/usr".into(), target: "/usr".into() });
    spec.root = Root { base: Base::Folder(image.into()), binds, ..Root::default() };
    spec
}

/// An image sets the working directory of its program while descriptors of the spawner are still
/// open (CVE-2024-21626).
#[test]
fn a_working_folder_leads_to_a_folder_of_the_host() {
    never_escapes(|rig| async move {
        for descriptor in 0..256 {
            for path in ["/proc/self/fd", "/proc/thread-self/fd", "/proc/1/fd"] {
                let working_folder = format!("{path}/{descriptor}").into();
                let process = ProcessSettings { working_folder, ..ProcessSettings::default() };
                let spec = SandboxSpec { process, ..python("import os; print(os.getcwd())") };
                if let Ok(sandbox) = rig.spawner.start(spec).await {
                    let end = within(sandbox.wait()).await;
                    return format!("ESCAPED: it started in {path}/{descriptor}: {end:?}");
                }
            }
        }
        String::new()
    });
}

/// Users and folders that an image may name, but a program must not have.
#[test]
fn a_process_starts_as_root_or_in_an_invalid_folder() {
    never_escapes(|rig| async move {
        let good = ProcessSettings::default;
        let bad = [
            ProcessSettings { user: 0, ..good() },
            ProcessSettings { group: 0, ..good() },
            ProcessSettings { user: u32::MAX, ..good() },
            ProcessSettings { working_folder: "tmp".into(), ..good() },
            ProcessSettings { working_folder: "".into(), ..good() },
            ProcessSettings { working_folder: "/tmp/a\0b".into(), ..good() },
            ProcessSettings { working_folder: "/none".into(), ..good() },
            ProcessSettings { working_folder: "/etc/passwd".into(), ..good() },
        ];
        for process in bad {
            let requested = format!("{process:?}");
            if rig.spawner.start(SandboxSpec { process, ..python("") }).await.is_ok() {
                return format!("ESCAPED: it started with {requested}");
            }
        }
        String::new()
    });
}

/// Invalid commands and environments are refused before anything is made.
#[test]
fn invalid_specs_are_refused() {
    never_escapes(|rig| async move {
        let text = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>();
        let commands = [
            text(&[]),
            text(&[""]),
            text(&["bin/sh"]),
            text(&["../bin/sh"]),
            text(&["/bin/sh", "a\0b"]),
            text(&["/bin/sh", &"x".repeat(200 << 10)]),
        ];
        let variables = [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "x\0y")];
        let mut specs: Vec<SandboxSpec> = Vec::new();
        specs.extend(commands.map(|command| SandboxSpec { command, ..python("") }));
        specs.extend(variables.map(|(name, value)| {
            let env = vec![(name.to_owned(), value.to_owned())];
            SandboxSpec { env, ..python("") }
        }));
        for id in ["", "/", "..", "a/b", "a b", "\0", "ä", &"x".repeat(101)] {
            specs.push(SandboxSpec { id: SandboxId::from(id.to_owned()), ..python("") });
        }
        for spec in specs {
            let requested =
                format!("{:?} {:?} {:?}", spec.id, spec.command.first(), spec.env.first());
            match rig.spawner.start(spec).await {
                Err(Error::Spec { .. }) => {}
                other => return format!("ESCAPED: {requested} gave {other:?}"),
            }
        }
        String::new()
    });
}
