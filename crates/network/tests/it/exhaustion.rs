//! A function that uses up ports, descriptors or pending connections harms only itself.

use crate::enforcement_errors::*;
use crate::function::*;
use crate::harness::*;

#[test]
fn a_function_out_of_ports_takes_none_from_its_neighbour() {
    for by in [By::Cgroups, By::Notifier] {
        let Some(rig) = Rig::new(by, &format!("ports-{by:?}")) else { return };
        within(rig.network.namespace(), || {
            std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40009").unwrap();
        });
        let (mut greedy, mut other) =
            (rig.function(0, Linked::Static), rig.function(1, Linked::Static));
        let mut server = rig.function(2, Linked::Static);
        server.listen(INET, "0.0.0.0".parse().unwrap(), 8000);
        let target = server.address.v4;
        let connect = |function: &mut Function| {
            let socket = function.socket(INET, STREAM);
            function.execute(&format!("connect {socket} {target} 8000"))
        };
        let mut opened = 0;
        while connect(&mut greedy).is_ok() {
            opened += 1;
        }
        assert_eq!(opened, 10, "{by:?}");
        assert_eq!(connect(&mut greedy), Err(EADDRNOTAVAIL), "{by:?}");
        assert_eq!(connect(&mut other), Ok("0".into()), "{by:?}");
    }
}

/// The numbers of threads and descriptors of this process.
fn open_count() -> (usize, usize) {
    let count = |folder| std::fs::read_dir(folder).unwrap().count();
    (count("/proc/self/task"), count("/proc/self/fd"))
}

#[test]
fn connections_that_are_never_accepted_leave_nothing_in_the_node() {
    // Other tests of this process have far fewer open meanwhile.
    const MANY: usize = 200;
    let Some(rig) = Rig::new(By::Notifier, "backlog") else { return };
    let (mut hostile, mut other) =
        (rig.function(0, Linked::Static), rig.function(1, Linked::Static));
    let full = hostile.socket(INET, STREAM);
    hostile.execute(&format!("bind {full} 0.0.0.0 8000")).unwrap();
    hostile.execute(&format!("listen {full} 0")).unwrap();
    other.listen(INET, "0.0.0.0".parse().unwrap(), 8000);
    let before = open_count();
    let mut refused = 0;
    for _ in 0..4 {
        refused += hostile.execute("storm 150 127.0.0.1 8000 300").unwrap().parse::<u32>().unwrap();
        let now = open_count();
        assert!(now.0 < before.0 + MANY && now.1 < before.1 + MANY, "{before:?}, {now:?}");
        // They do not delay other functions.
        let client = other.socket(INET, STREAM);
        assert_eq!(other.execute(&format!("connect {client} 127.0.0.1 8000")), Ok("0".into()));
    }
    assert!(refused > 0, "some exceed the limit of pending connections");
}

#[test]
fn a_connection_to_oneself_waits_until_it_is_accepted() {
    for by in [By::Cgroups, By::Notifier] {
        let Some(rig) = Rig::new(by, &format!("taken-{by:?}")) else { return };
        let mut one = rig.function(0, Linked::Static);
        let server = one.socket(INET, STREAM);
        one.execute(&format!("bind {server} 0.0.0.0 8000")).unwrap();
        one.execute(&format!("listen {server} 0")).unwrap();
        let connect = |one: &mut Function| {
            let client = one.socket(INET, STREAM);
            let done = one.execute(&format!("connect {client} 127.0.0.1 8000"));
            // Otherwise the kernel would go on trying.
            done.inspect_err(|_| drop(one.execute(&format!("close {client}"))))
        };
        let mut opened = 0;
        while connect(&mut one).is_ok() {
            opened += 1;
            assert!(opened < 10, "{by:?}: the backlog is never full");
        }
        assert_eq!(connect(&mut one), Err(IN_PROGRESS), "{by:?}: its own limit of time");
        for _ in 0..opened {
            one.execute(&format!("accept {server}")).unwrap();
        }
        assert_eq!(connect(&mut one), Ok("0".into()), "{by:?}");
        // There is no listener any more.
        one.execute(&format!("close {server}")).unwrap();
        assert_eq!(connect(&mut one), Err(REFUSED), "{by:?}");
    }
}

#[test]
fn a_function_without_free_descriptors_gets_the_error() {
    each("descriptors", |one, _| {
        one.execute("descriptors 40").unwrap();
        let refused = loop {
            if let Err(error) = one.execute(&format!("socket {INET} {STREAM} 0")) {
                break error;
            }
        };
        assert_eq!(refused, TOO_MANY);
    });
}

#[test]
fn a_descriptor_that_is_not_a_listener_is_refused() {
    let Some(rig) = Rig::new(By::Notifier, "invalid") else { return };
    let null = std::fs::File::open("/dev/null").unwrap();
    let refused = rig.network.attach_notifier(null.into(), 5).unwrap_err();
    assert!(refused.to_string().contains("add a listener"), "{refused}");
}
