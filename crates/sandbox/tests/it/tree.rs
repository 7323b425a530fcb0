//! Zygotes below zygotes, and many concurrent children.

use std::collections::HashSet;

use crate::harness::{Rig, ask, processes_in_group_of, until, with_spawner, within};
use crate::zygote::{Code, child, zygote};
use snowmelt_sandbox::{Error, Limits, Zygote};
use snowmelt_types::{End, SandboxId};

async fn grow(rig: &Rig, parent: &Zygote, code: &Code, imports: &[&str]) -> Zygote {
    within(rig.spawner.grow(parent, code.zygote(imports))).await.unwrap()
}

fn names() -> Code {
    Code::new(&[
        ("one.py", "N = 1"),
        ("two.py", "import one; N = one.N + 1"),
        ("three.py", "N = 3"),
    ])
}

#[test]
fn a_zygote_below_another_adds_to_its_imports() {
    with_spawner(|rig| async move {
        let code = names();
        let top = zygote(&rig, &code, &["one"]).await;
        let middle = grow(&rig, &top, &code, &["two"]).await;
        let bottom = grow(&rig, &middle, &code, &["three"]).await;
        assert_eq!(bottom.ready().imported[0].module, "three");
        for (zygote, loaded) in
            [(&top, "[1, 0, 0]"), (&middle, "[1, 1, 0]"), (&bottom, "[1, 1, 1]")]
        {
            let child = child(&rig, zygote, &code).await;
            let modules = "[int(m in sys.modules) for m in ('one', 'two', 'three')]";
            assert_eq!(ask(&child, modules).unwrap(), loaded);
            let who = "[__import__('os').getpid(), __import__('os').getuid()]";
            assert_eq!(ask(&child, who).unwrap(), "[1, 1000]");
        }
        let deeper = within(rig.spawner.grow(&bottom, code.zygote(&[]))).await;
        assert!(matches!(deeper.err(), Some(Error::Spec { .. })));
    });
}

#[test]
fn a_child_is_as_isolated_at_any_depth() {
    with_spawner(|rig| async move {
        let code = names();
        let top = zygote(&rig, &code, &[]).await;
        let middle = grow(&rig, &top, &code, &[]).await;
        let bottom = grow(&rig, &middle, &code, &[]).await;
        let mut users = HashSet::new();
        for zygote in [&top, &middle, &bottom] {
            let child = child(&rig, zygote, &code).await;
            let status = ask(&child, "open('/proc/self/status').read()").unwrap();
            let field = |name: &str| {
                let line = status.lines().find(|line| line.starts_with(&format!("{name}:")));
                line.and_then(|line| line.split_once('\t')).map(|(_, value)| value.to_owned())
            };
            for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
                assert_eq!(field(set).as_deref(), Some("0000000000000000"), "{set}");
            }
            assert_eq!(
                (field("NoNewPrivs"), field("Seccomp")),
                (Some("1".into()), Some("2".into()))
            );
            let mounts = ask(&child, "open('/proc/self/mountinfo').read()").unwrap();
            for line in mounts.lines() {
                let fields: Vec<_> = line.split(' ').collect();
                let inert = fields[5].starts_with("ro") && fields[5].contains("nosuid");
                assert!(fields[4] == "/tmp" || inert, "{line}");
            }
            assert_eq!(processes_in_group_of(child.pid()), [child.pid()]);
            let status = std::fs::read_to_string(format!("/proc/{}/status", child.pid())).unwrap();
            let user = status.lines().find(|line| line.starts_with("Uid:")).unwrap().to_owned();
            assert!(users.insert(user), "two with one user id: {users:?}");
        }
    });
}

#[test]
fn a_zygote_lives_until_all_below_it_have_ended() {
    with_spawner(|rig| async move {
        let code = names();
        let top = zygote(&rig, &code, &[]).await;
        let below = grow(&rig, &top, &code, &["one"]).await;
        drop(top);
        let child = child(&rig, &below, &code).await;
        drop(below);
        assert_eq!(ask(&child, "sys.modules['one'].N").unwrap(), "1");
        until("no preforked child is left", || rig.processes().len() == 3).await;
        drop(child);
        until("the zygotes are gone", || rig.processes().is_empty()).await;
    });
}

#[test]
fn all_below_a_dead_zygote_end() {
    with_spawner(|rig| async move {
        let code = names();
        let top = zygote(&rig, &code, &[]).await;
        let below = grow(&rig, &top, &code, &[]).await;
        let child = child(&rig, &below, &code).await;
        top.kill(End::Killed);
        within(top.wait()).await;
        within(below.wait()).await;
        within(child.wait()).await;
        let fork = within(rig.spawner.fork(&below, code.fork("handler:serve"))).await;
        assert!(matches!(fork.err(), Some(Error::ZygoteLost { .. })));
    });
}

#[test]
fn the_end_of_a_lower_zygote_is_reported_and_does_not_affect_the_upper_one() {
    with_spawner(|rig| async move {
        let code = Code::new(&[("deadly.py", "import os\nos._exit(3)")]);
        let top = zygote(&rig, &code, &[]).await;
        let lost = within(rig.spawner.grow(&top, code.zygote(&["deadly"]))).await;
        assert!(matches!(lost.err(), Some(Error::ZygoteLost { .. })));
        let below = grow(&rig, &top, &code, &[]).await;
        below.kill(End::Killed);
        assert_eq!(within(below.wait()).await.end, End::Killed);
        assert_eq!(ask(&child(&rig, &top, &code).await, "1 + 1").unwrap(), "2");
    });
}

#[test]
fn modules_missed_by_an_upper_zygote_are_reported_by_a_lower_one() {
    with_spawner(|rig| async move {
        let text = "try: import nowhere_above\nexcept ImportError: pass\n";
        let code = Code::new(&[("above.py", text)]);
        let top = zygote(&rig, &code, &["above"]).await;
        let below = grow(&rig, &top, &code, &["json"]).await;
        assert!(below.ready().missed.iter().any(|name| name == "nowhere_above"));
    });
}

#[test]
fn a_thousand_concurrent_children_start_and_end() {
    with_spawner(|rig| async move {
        let code = names();
        let zygote = zygote(&rig, &code, &["one"]).await;
        let limits = Limits { pids: 8, ..Limits::default() };
        let mut specs: Vec<_> = (0..1000).map(|_| code.fork("handler:serve")).collect();
        specs.iter_mut().for_each(|spec| spec.limits = limits);
        // In the middle of the others one that is refused, and one that ends immediately.
        specs[300].env = vec![("NOT=VALID".into(), String::new())];
        specs[600].entry = "handler:leave".into();
        let ids: HashSet<SandboxId> = specs.iter().map(|spec| spec.id.clone()).collect();
        assert_eq!(ids.len(), 1000);
        let children = within(rig.spawner.fork_many(&zygote, specs)).await;
        assert_eq!(children.len(), 1000);
        for (number, child) in children.iter().enumerate() {
            match number {
                300 => assert!(matches!(child, Err(Error::Spec { .. })), "{child:?}"),
                600 => {
                    let child = child.as_ref().unwrap();
                    assert_eq!(within(child.wait()).await.end, End::Exit { code: 9 });
                }
                _ => {
                    let sum = format!("{number} + sys.modules['one'].N");
                    let answer = ask(child.as_ref().unwrap(), &sum).unwrap();
                    assert_eq!(answer, (number + 1).to_string());
                }
            }
        }
        for child in children.into_iter().flatten() {
            child.kill(End::Killed);
            within(child.wait()).await;
        }
    });
}
