//! Zygotes and their children.

use std::collections::HashSet;

use crate::harness::{
    Rig, ask, interpreter, processes_in_group_of, python_root, read_all, until, with_spawner,
    within,
};
use snowmelt_sandbox::{Bind, Error, ForkSpec, Limits, Root, Sandbox, Zygote, ZygoteSpec};
use snowmelt_types::{End, SandboxId};

/// A folder with modules, mounted at `/code`.
pub struct Code(tempfile::TempDir);

const HANDLER: &str = "
import sys
def serve(listener):
    while True:
        stream, _ = listener.accept()
        code = stream.makefile('rb').read().decode()
        answer = str(eval(code, {'__import__': __import__, 'sys': sys, 'exit': sys.exit}))
        stream.sendall(answer.encode())
        stream.close()
def fail(listener):
    raise ValueError('on purpose')
def leave(listener):
    raise SystemExit(9)
";

impl Code {
    pub fn new(files: &[(&str, &str)]) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        for (name, text) in [("handler.py", HANDLER)].iter().chain(files) {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self(folder)
    }

    pub fn root(&self) -> Root {
        let mut root = python_root();
        root.binds.push(Bind { source: self.0.path().into(), target: "/code".into() });
        root
    }

    pub fn zygote(&self, imports: &[&str]) -> ZygoteSpec {
        ZygoteSpec {
            id: SandboxId::new(),
            root: self.root(),
            python: interpreter().0.clone().into(),
            python_path: vec!["/code".into()],
            imports: imports.iter().map(|name| (*name).to_owned()).collect(),
            env: vec![("WHOSE".into(), "the zygote's".into())],
            limits: Limits::default(),
        }
    }

    pub fn fork(&self, entry: &str) -> ForkSpec {
        ForkSpec {
            network: None,
            id: SandboxId::new(),
            root: self.root(),
            sys_path: vec!["/code".into()],
            env: vec![("WHOSE".into(), "the child's".into())],
            limits: Limits { pids: 16, ..Limits::default() },
            entry: entry.into(),
        }
    }
}

pub async fn zygote(rig: &Rig, code: &Code, imports: &[&str]) -> Zygote {
    within(rig.spawner.start_zygote(code.zygote(imports))).await.unwrap()
}

pub async fn child(rig: &Rig, zygote: &Zygote, code: &Code) -> Sandbox {
    within(rig.spawner.fork(zygote, code.fork("handler:serve"))).await.unwrap()
}

#[test]
fn a_child_has_the_zygotes_imports_and_its_own_identity() {
    with_spawner(|rig| async move {
        let code = Code::new(&[("heavy.py", "import os\nLOADED_IN = os.environ['WHOSE']\n")]);
        let zygote = zygote(&rig, &code, &["heavy"]).await;
        assert_eq!((zygote.failed_imports(), zygote.threads()), (&[][..], 0));
        let child = child(&rig, &zygote, &code).await;
        let eval = |expression: &str| ask(&child, expression).unwrap();
        assert_eq!(eval("'heavy' in sys.modules"), "True");
        assert_eq!(eval("sys.modules['heavy'].LOADED_IN"), "the zygote's");
        assert_eq!(
            eval("sorted(__import__('os').environ.items())"),
            "[('PYTHONPATH', '/code'), ('SNOWMELT_CHANNEL_FD', '3'), ('WHOSE', \"the child's\")]"
        );
        assert_eq!(eval("(__import__('os').getpid(), __import__('os').getuid())"), "(1, 1000)");
        assert_eq!(eval("__import__('os').listdir('/tmp')"), "['channel.sock']");
        assert_eq!(processes_in_group_of(child.pid()), [child.pid()]);
        child.kill(End::Killed);
        assert_eq!(within(child.wait()).await.end, End::Killed);
    });
}

#[test]
fn a_child_is_as_isolated_as_a_program() {
    with_spawner(|rig| async move {
        let code = Code::new(&[]);
        let zygote = zygote(&rig, &code, &[]).await;
        let child = child(&rig, &zygote, &code).await;
        let eval = |expression: &str| ask(&child, expression).unwrap();
        let field = |name: &str| {
            eval(&format!(
                "[l.split()[1:] for l in open('/proc/self/status') if l.startswith('{name}:')][0]"
            ))
        };
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(field(set), "['0000000000000000']", "{set}");
        }
        assert_eq!((field("NoNewPrivs"), field("Seccomp")), ("['1']".into(), "['2']".into()));
        assert_eq!(
            (field("Uid"), field("Groups")),
            ("['1000', '1000', '1000', '1000']".into(), "[]".into())
        );
        let os = "__import__('os')";
        assert_eq!(eval(&format!("[p for p in {os}.listdir('/proc') if p.isdigit()]")), "['1']");
        assert_eq!(
            eval(&format!(
                "[{os}.readlink(f'/proc/self/fd/{{f}}').split(':')[0] for f in range(4)]"
            )),
            "['/dev/null', 'pipe', 'pipe', 'socket']"
        );
        // 4 is the connection of the request, 5 the folder that is being listed.
        assert_eq!(
            eval(&format!("sorted(map(int, {os}.listdir('/proc/self/fd')))")),
            "[0, 1, 2, 3, 4, 5]"
        );
        assert_eq!(eval(&format!("{os}.path.exists('/run/snowmelt/../../root/.bashrc')")), "False");
        let syscall = "__import__('ctypes').CDLL(None, use_errno=True)";
        for call in [
            "unshare(0x20000)",
            "unshare(0x10000000)",
            "setns(3, 0)",
            "mount(b'x', b'/tmp', b'tmpfs', 0, 0)",
            "umount2(b'/tmp', 2)",
        ] {
            assert_eq!(eval(&format!("{syscall}.{call}")), "-1", "{call}");
        }
        assert_eq!(
            eval("__import__('_socket').socket(2, 1)").as_str(),
            "",
            "an internet socket was made"
        );
    });
}

#[test]
fn every_mount_of_a_child_except_the_scratch_is_inert() {
    with_spawner(|rig| async move {
        let code = Code::new(&[]);
        let zygote = zygote(&rig, &code, &[]).await;
        let child = child(&rig, &zygote, &code).await;
        let text = ask(&child, "open('/proc/self/mountinfo').read()").unwrap();
        for line in text.lines() {
            let fields: Vec<_> = line.split(' ').collect();
            let target = fields[4];
            let options = fields[5];
            assert!(options.contains("nosuid"), "{line}");
            assert!(target == "/tmp" || options.starts_with("ro"), "{line}");
        }
        assert!(!text.contains(" /mnt"), "the zygote's root is left: {text}");
    });
}

#[test]
fn children_have_their_own_randomness_and_ids() {
    with_spawner(|rig| async move {
        let code = Code::new(&[]);
        let modules = ["random", "ssl", "uuid", "secrets", "tempfile"];
        let zygote = zygote(&rig, &code, &modules).await;
        let mut seen = HashSet::new();
        for _ in 0..3 {
            let child = child(&rig, &zygote, &code).await;
            for expression in [
                "sys.modules['random'].random()",
                "sys.modules['ssl'].RAND_bytes(8)",
                "sys.modules['uuid'].uuid4()",
                "sys.modules['uuid'].uuid1()",
                "sys.modules['secrets'].token_hex()",
                "sys.modules['tempfile'].mktemp()",
            ] {
                assert!(seen.insert(ask(&child, expression).unwrap()), "{expression}");
            }
            child.kill(End::Killed);
            within(child.wait()).await;
        }
    });
}

/// The folder of the interpreter's packages, if numpy is among them.
fn packages() -> Option<std::path::PathBuf> {
    let code = "import numpy, os; print(os.path.dirname(os.path.dirname(numpy.__file__)))";
    let found = std::process::Command::new("python3").args(["-c", code]).output().unwrap();
    let path = String::from_utf8(found.stdout).unwrap().trim().to_owned();
    if found.status.success() { Some(path.into()) } else { None }
}

#[test]
fn children_have_their_own_numpy_streams() {
    let Some(packages) = packages() else {
        return eprintln!("skipped: numpy is not installed");
    };
    with_spawner(|rig| async move {
        let text = "import numpy\nfree = numpy.random.default_rng()\n\
                    chosen = numpy.random.default_rng(42)\nnumpy.random.normal()\n";
        let code = Code::new(&[("streams.py", text)]);
        let shown = Bind { source: packages, target: "/packages".into() };
        let mut spec = code.zygote(&["streams"]);
        spec.root.binds.push(shown.clone());
        spec.python_path.push("/packages".into());
        let zygote = within(rig.spawner.start_zygote(spec)).await.unwrap();
        assert_eq!(zygote.failed_imports(), &[] as &[String]);
        let mut seen = HashSet::new();
        let mut chosen = HashSet::new();
        for _ in 0..3 {
            let mut spec = code.fork("handler:serve");
            spec.root.binds.push(shown.clone());
            let child = within(rig.spawner.fork(&zygote, spec)).await.unwrap();
            for expression in [
                "sys.modules['numpy'].random.random(3)",
                "sys.modules['numpy'].random.normal()",
                "sys.modules['numpy'].random.default_rng().random()",
                "sys.modules['streams'].free.random()",
            ] {
                let answer = ask(&child, expression).unwrap();
                assert!(!answer.is_empty() && seen.insert(answer), "{expression}");
            }
            chosen.insert(ask(&child, "sys.modules['streams'].chosen.random()").unwrap());
        }
        assert_eq!(chosen.len(), 1, "an explicit seed is kept: {chosen:?}");
    });
}

#[test]
fn fifty_concurrent_children_answer_and_end() {
    with_spawner(|rig| async move {
        let code = std::sync::Arc::new(Code::new(&[]));
        let zygote = std::sync::Arc::new(zygote(&rig, &code, &[]).await);
        let forks = (0..50).map(|number| {
            let rig = rig.clone();
            let code = code.clone();
            let zygote = zygote.clone();
            tokio::spawn(async move {
                let child = child(&rig, &zygote, &code).await;
                let ask_it = move || (ask(&child, &format!("{number} * 2")).unwrap(), child);
                tokio::task::spawn_blocking(ask_it).await.unwrap()
            })
        });
        for (number, fork) in forks.collect::<Vec<_>>().into_iter().enumerate() {
            let (answer, child) = fork.await.unwrap();
            assert_eq!(answer, (number * 2).to_string());
            child.kill(End::Killed);
            within(child.wait()).await;
        }
    });
}

#[test]
fn the_end_of_a_child_is_reported_like_that_of_a_program() {
    with_spawner(|rig| async move {
        let code = Code::new(&[]);
        let zygote = zygote(&rig, &code, &[]).await;
        for (entry, exit, printed) in [
            ("handler:leave", 9, ""),
            ("handler:fail", 1, "ValueError: on purpose"),
            ("handler:absent", 1, "AttributeError"),
            ("no_such_module:serve", 1, "ModuleNotFoundError"),
        ] {
            let mut child = rig.spawner.fork(&zygote, code.fork(entry)).await.unwrap();
            let outcome = within(child.wait()).await;
            assert_eq!(outcome.end, End::Exit { code: exit });
            assert!(outcome.cpu.is_some() && outcome.peak_memory.is_some());
            assert!(read_all(child.take_log().unwrap()).contains(printed));
        }
    });
}

#[test]
fn a_failed_import_is_reported_and_left_to_the_child() {
    with_spawner(|rig| async move {
        let code = Code::new(&[("broken.py", "raise RuntimeError('half done')")]);
        let mut zygote = zygote(&rig, &code, &["broken", "no_such_module"]).await;
        assert_eq!(zygote.failed_imports().len(), 2);
        assert!(zygote.failed_imports()[0].contains("half done"));
        let child = child(&rig, &zygote, &code).await;
        assert_eq!(ask(&child, "1 + 1").unwrap(), "2");
        let log = zygote.take_log().unwrap();
        zygote.kill(End::Killed);
        within(zygote.wait()).await;
        assert!(read_all(log).contains("cannot import broken"));
    });
}

#[test]
fn the_children_of_a_dead_zygote_end_and_it_forks_no_more() {
    with_spawner(|rig| async move {
        let code = Code::new(&[]);
        let zygote = zygote(&rig, &code, &[]).await;
        let child = child(&rig, &zygote, &code).await;
        zygote.kill(End::Killed);
        assert_eq!(within(zygote.wait()).await.end, End::Killed);
        within(child.wait()).await;
        let error = within(rig.spawner.fork(&zygote, code.fork("handler:serve"))).await.err();
        assert!(matches!(error, Some(Error::ZygoteLost { .. })), "{error:?}");
    });
}

#[test]
fn a_dropped_zygote_ends_with_its_last_child() {
    with_spawner(|rig| async move {
        let code = Code::new(&[]);
        let zygote = zygote(&rig, &code, &[]).await;
        let child = child(&rig, &zygote, &code).await;
        drop(zygote);
        assert_eq!(ask(&child, "'alive'").unwrap(), "alive");
        until("no preforked child is left", || rig.processes().len() == 2).await;
        assert_eq!(ask(&child, "'still alive'").unwrap(), "still alive");
        drop(child);
        until("the zygote is gone", || rig.processes().is_empty()).await;
    });
}

#[test]
fn a_zygote_reports_its_imports_and_the_missed_modules() {
    with_spawner(|rig| async move {
        let text = "kept = bytearray(b'x') * (8 << 20)\ntry: import absent_for_sure\n\
                    except ImportError: pass\n";
        let code = Code::new(&[("heavy.py", text), ("light.py", "import json\n")]);
        let zygote = zygote(&rig, &code, &["heavy", "light", "nowhere"]).await;
        let ready = zygote.ready();
        let names: Vec<_> = ready.imported.iter().map(|import| &*import.module).collect();
        assert_eq!(names, ["heavy", "light"]);
        let bytes = ready.imported[0].bytes;
        assert!((8 << 20..16 << 20).contains(&bytes), "{bytes}");
        assert!(ready.imported[0].us > 0);
        for name in ["absent_for_sure", "nowhere"] {
            assert!(ready.missed.iter().any(|missed| missed == name), "{:?}", ready.missed);
        }
        assert!(!ready.missed.iter().any(|missed| missed == "json"));
    });
}

#[test]
fn children_of_one_zygote_may_have_different_roots() {
    with_spawner(|rig| async move {
        let one = Code::new(&[("whose.py", "NAME = 'one'")]);
        let two = Code::new(&[("whose.py", "NAME = 'two'")]);
        let zygote = zygote(&rig, &one, &[]).await;
        for (code, name) in [(&one, "one"), (&two, "two"), (&one, "one"), (&two, "two")] {
            let child = child(&rig, &zygote, code).await;
            assert_eq!(ask(&child, "__import__('whose').NAME").unwrap(), name);
        }
        // More than a zygote caches.
        for number in 0..40 {
            let mut spec = one.fork("handler:serve");
            spec.root.binds[0].target = format!("/code{number}").into();
            spec.root.binds.push(one.root().binds.pop().unwrap());
            let child = within(rig.spawner.fork(&zygote, spec)).await.unwrap();
            let seen = format!("__import__('os').path.exists('/code{number}')");
            assert_eq!(ask(&child, &seen).unwrap(), "True");
        }
        let child = child(&rig, &zygote, &two).await;
        assert_eq!(ask(&child, "__import__('whose').NAME").unwrap(), "two");
    });
}
