//! Roots from the unpacked file system of an image, including a hostile image.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::harness::{SharedRig, spec, with_spawner};
use snowmelt_kernel::{mount, packet};
use snowmelt_sandbox::{Base, Bind, ImageBind, MountedImage, ProcessSettings, Root, SandboxSpec};
use snowmelt_types::{ByteSize, End};

/// An image with one static program, which is also the shell.
fn image() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["bin", "etc", "srv"] {
        fs::create_dir(path(name)).unwrap();
    }
    fs::copy("/bin/busybox", path("bin/busybox")).unwrap();
    symlink("busybox", path("bin/sh")).unwrap();
    symlink("bin", path("sbin")).unwrap();
    fs::write(path("etc/os-release"), "ID=tiny\n").unwrap();
    folder
}

fn shell(image: &Path, script: &str) -> SandboxSpec {
    let mut spec = spec(&["/bin/busybox", "sh", "-c", script]);
    spec.root = Root { base: Base::Folder(image.to_owned()), ..Root::default() };
    spec
}

async fn printed(rig: &SharedRig, image: &Path, script: &str) -> String {
    let (text, outcome) = rig.run(shell(image, script)).await;
    assert_eq!(outcome.end, End::Exit { code: 0 }, "{text}");
    text
}

fn has_busybox() -> bool {
    let there = Path::new("/bin/busybox").is_file();
    if !there {
        eprintln!("skipped: no /bin/busybox (package busybox-static)");
    }
    there
}

#[test]
fn a_program_starts_in_the_given_folder_as_the_given_user() {
    if !has_busybox() {
        return;
    }
    with_spawner(|rig| async move {
        let image = image();
        let script = "/bin/busybox pwd; /bin/busybox id -u; /bin/busybox id -g";
        let mut spec = shell(image.path(), script);
        spec.process = ProcessSettings {
            user: 65532,
            group: 7,
            working_folder: "/srv".into(),
            ..ProcessSettings::default()
        };
        let (text, outcome) = rig.run(spec).await;
        assert_eq!(outcome.end, End::Exit { code: 0 }, "{text}");
        assert_eq!(text, "/srv\n65532\n7\n");
        let mut spec = shell(image.path(), script);
        spec.process.working_folder = "/none".into();
        let error = rig.spawner.start(spec).await.unwrap_err();
        assert!(error.to_string().contains("enter the working folder"), "{error}");
    });
}

#[test]
fn an_image_shows_its_own_files_and_none_of_the_host() {
    if !has_busybox() {
        return;
    }
    with_spawner(|rig| async move {
        let image = image();
        let script = "busybox cat /etc/os-release; busybox ls / | busybox tr '\\n' ' '; busybox ls /dev | busybox tr '\\n' ' '; \
            echo x > /tmp/x; (echo x > /srv/x) 2>/dev/null || echo refused; busybox id -u";
        let text = printed(&rig, image.path(), &script.replace("busybox", "/bin/busybox")).await;
        assert_eq!(
            text,
            "ID=tiny\nbin dev etc proc run sbin srv tmp fd full null random shm stderr stdin \
             stdout urandom zero refused\n1000\n"
        );
        assert!(!image.path().join("srv/x").exists() && !image.path().join("tmp").exists());
    });
}

/// What a program writes there counts to its scratch, and the image stays as it is.
#[test]
fn writable_folders_are_copies_in_the_scratch() {
    if !has_busybox() {
        return;
    }
    with_spawner(|rig| async move {
        let image = image();
        let path = |name: &str| image.path().join(name);
        fs::create_dir_all(path("var/lib/app/deep")).unwrap();
        fs::write(path("var/lib/app/deep/kept"), "from the image").unwrap();
        fs::write(path("var/lib/app/private"), "for root only").unwrap();
        fs::set_permissions(path("var/lib/app/private"), fs::Permissions::from_mode(0o600))
            .unwrap();
        symlink("deep/kept", path("var/lib/app/link")).unwrap();
        symlink("proc", path("to-proc")).unwrap();
        fs::create_dir_all(path("var/log")).unwrap();
        let script = "cd /var/lib/app; busybox cat link; busybox ls; echo x >> deep/kept && \
            busybox mkdir new && echo y > /var/log/app.log && busybox cat /var/log/app.log; \
            (echo z > /srv/z) 2>/dev/null || echo refused; \
            busybox dd if=/dev/zero of=new/long bs=1M count=9 2>&1 | busybox grep -o 'No space.*'";
        let mut spec = shell(image.path(), &script.replace("busybox", "/bin/busybox"));
        spec.limits.scratch = ByteSize::mib(8);
        spec.process.writable = vec!["/var/lib/app".into(), "/var/log".into()];
        let (text, _) = rig.run(spec).await;
        assert_eq!(text, "from the imagedeep\nlink\ny\nrefused\nNo space left on device\n");
        assert_eq!(fs::read(path("var/lib/app/deep/kept")).unwrap(), b"from the image");
        assert!(!path("var/lib/app/new").exists());
        for folder in [
            "/none",
            "/etc/os-release",
            "/tmp/x",
            "/run/snowmelt",
            "/proc",
            "/to-proc",
            "/",
            "srv",
            "/srv/../etc",
        ] {
            let mut spec = shell(image.path(), "true");
            spec.process.writable = vec![folder.into()];
            let error = rig.spawner.start(spec).await.unwrap_err().to_string();
            assert!(error.contains("writable"), "{folder}: {error}");
        }
        // What the platform has in /run stays there, and nobody can write to it.
        symlink("/run", path("var/run")).unwrap();
        for folder in ["/run", "/var/run"] {
            let script = "/bin/busybox ls /run; echo 1 > /run/app.pid && /bin/busybox ls /run; \
                (/bin/busybox mv /run/snowmelt /run/x || /bin/busybox mkdir /run/snowmelt/x || \
                echo x > /run/snowmelt/zygote.py) 2>/dev/null || /bin/busybox ls /run/snowmelt";
            let before = "/bin/busybox ls /run/snowmelt";
            let (before, _) = rig.run(shell(image.path(), before)).await;
            let mut spec = shell(image.path(), script);
            spec.process.writable = vec![folder.into(), "/tmp".into()];
            let (text, _) = rig.run(spec).await;
            assert_eq!(text, format!("snowmelt\napp.pid\nsnowmelt\n{before}"), "{folder}");
            assert!(before.contains("zygote.py"), "{before}");
        }
        let mut spec = shell(image.path(), "true");
        fs::write(path("var/log/long"), vec![1; 9 << 20]).unwrap();
        spec.limits.scratch = ByteSize::mib(8);
        spec.process.writable = vec!["/var/log".into()];
        let error = rig.spawner.start(spec).await.unwrap_err().to_string();
        assert!(error.contains("make /var/log writable") && error.contains("No space"), "{error}");
    });
}

/// The names of a job's addresses are for images without such a file, too.
#[test]
fn a_file_is_mounted_in_etc_of_an_image_that_has_none() {
    if !has_busybox() {
        return;
    }
    with_spawner(|rig| async move {
        let image = image();
        let host = tempfile::tempdir().unwrap();
        fs::create_dir(image.path().join("etc/deep")).unwrap();
        fs::write(image.path().join("etc/deep/file"), "deep\n").unwrap();
        symlink("os-release", image.path().join("etc/link")).unwrap();
        fs::set_permissions(host.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let script = "cd /etc; /bin/busybox cat hosts link deep/file; \
            (echo x > hosts || echo x > os-release || /bin/busybox mkdir new) 2>/dev/null || echo no";
        for name in ["first", "second"] {
            let source = host.path().join(name);
            fs::write(&source, "10.0.0.1 rank-0\n").unwrap();
            let mut spec = shell(image.path(), script);
            spec.root.binds = vec![Bind { source, target: "/etc/hosts".into() }];
            let (text, _) = rig.run(spec).await;
            assert_eq!(text, "10.0.0.1 rank-0\nID=tiny\ndeep\nno\n");
            // The next root is of an image that has the file.
            fs::write(image.path().join("etc/hosts"), "of the image\n").unwrap();
        }
    });
}

#[test]
fn the_platforms_folders_replace_those_of_the_image() {
    if !has_busybox() {
        return;
    }
    with_spawner(|rig| async move {
        let image = image();
        let host = tempfile::tempdir().unwrap();
        for name in ["proc", "dev", "tmp", "sys", "run"] {
            symlink(host.path(), image.path().join(name)).unwrap();
        }
        // A top-level link is resolved inside.
        symlink(host.path(), image.path().join("escape")).unwrap();
        let script = "/bin/busybox head -c 1 /dev/zero | /bin/busybox wc -c; \
            /bin/busybox grep -c ' /proc ' /proc/self/mounts; \
            (/bin/busybox ls /escape/ 2>/dev/null) || echo nowhere";
        assert_eq!(printed(&rig, image.path(), script).await, "1\n1\nnowhere\n");
        assert_eq!(fs::read_dir(host.path()).unwrap().count(), 0);
    });
}

#[test]
fn a_missing_image_is_reported_by_name() {
    with_spawner(|rig| async move {
        let missing = Path::new("/no/such/image");
        let error = rig.spawner.start(shell(missing, "true")).await.err().unwrap();
        assert!(error.to_string().contains("open the image at /no/such/image"), "{error}");
    });
}

/// Sends a copy of the mount at `image` to every client, like the process that mounts images.
fn give(image: &Path, socket: &Path) {
    let image = image.to_owned();
    let listener = packet::listen(socket).unwrap();
    std::thread::spawn(move || {
        while let Ok(client) = packet::accept(&listener) {
            packet::receive(&client, &mut [0; 100]).unwrap();
            let tree = mount::copy(&image).unwrap();
            packet::send(&client, b"here", &[std::os::fd::AsFd::as_fd(&tree)]).unwrap();
        }
    });
}

#[test]
fn image_folders_are_mounted_next_to_the_host_base_and_their_links_are_not_followed() {
    with_spawner(|rig| async move {
        let image = tempfile::tempdir().unwrap();
        let host = tempfile::tempdir().unwrap();
        for name in ["packages", "code", "other"] {
            fs::create_dir(image.path().join(name)).unwrap();
            fs::write(image.path().join(name).join("file"), name).unwrap();
        }
        symlink(host.path(), image.path().join("escape")).unwrap();
        let socket = host.path().join("socket");
        give(image.path(), &socket);
        let shown = |folder: &str, target: &str| ImageBind {
            image: MountedImage { socket: socket.clone(), digest: "one".to_owned() },
            folder: folder.to_owned(),
            target: target.into(),
        };
        let script = "cat /opt/packages/file /opt/code/file; ls /opt; \
            (echo x > /opt/code/file) 2>/dev/null || echo refused";
        let mut both = spec(&["/bin/sh", "-c", script]);
        both.root.image_binds =
            vec![shown("packages", "/opt/packages"), shown("code", "/opt/code")];
        let (text, outcome) = rig.run(both).await;
        assert_eq!(outcome.end, End::Exit { code: 0 }, "{text}");
        assert_eq!(text, "packagescodecode\npackages\nrefused\n");
        for folder in ["escape", "missing", "..", "/etc", "packages/file"] {
            let mut hostile = spec(&["/bin/true"]);
            hostile.root.image_binds = vec![shown(folder, "/opt/code")];
            let refused = rig.spawner.start(hostile).await.err().unwrap().to_string();
            assert!(refused.contains(&format!("mount {folder} of the image")), "{refused}");
        }
    });
}
