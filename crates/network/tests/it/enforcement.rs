//! A function uses its own addresses and no others, whatever it tries.

use crate::enforcement_errors::*;
use crate::function::*;

#[test]
fn wildcard_and_localhost_are_the_functions_own_address() {
    each("own", |one, other| {
        // Different ports, because closed connections keep theirs for a minute.
        for (port, (family, here)) in (8000..).zip([
            (INET, "0.0.0.0"),
            (INET, "127.0.0.1"),
            (INET, "127.9.9.9"),
            (INET6, "::"),
            (INET6, "::1"),
            (INET6, "::ffff:0.0.0.0"),
            (INET6, "::ffff:127.0.0.1"),
        ]) {
            let own = |function: &Function| match (family, here.contains('.')) {
                (INET, _) => function.address.v4.to_string(),
                // Dual-stack; its own connection arrives over IPv6.
                _ if here == "::" => format!("::ffff:{}", function.address.v4),
                (_, true) => format!("::ffff:{}", function.address.v4),
                _ => function.address.v6.to_string(),
            };
            // Both listen at the same port without a conflict.
            for function in [&mut *one, &mut *other] {
                let socket = function.listen(family, here.parse().unwrap(), port);
                let name = function.execute(&format!("name {socket}")).unwrap();
                assert_eq!(name, format!("{} {port}", own(function)), "{here}");
                // A listener at the wildcard is reached at localhost.
                let client = function.socket(family, STREAM);
                assert_eq!(
                    function.execute(&format!("connect {client} {here} {port}")),
                    Ok("0".into())
                );
                let from = function.execute(&format!("accept {socket}")).unwrap();
                let by = if here == "::" { function.address.v6.to_string() } else { own(function) };
                assert!(from.starts_with(&format!("{by} ")), "{here}: {from}");
                function.execute(&format!("close {client}")).unwrap();
                function.execute(&format!("close {socket}")).unwrap();
            }
        }
    });
}

/// As Go, Java, Node.js and gRPC listen.
#[test]
fn a_dual_stack_socket_is_reached_over_both_families() {
    each("dual", |one, other| {
        let v4 = one.address.v4.to_string();
        let v6 = one.address.v6.to_string();
        for (port, reuse) in [(8000, false), (8001, true)] {
            // Both listen at the same port without a conflict.
            for function in [&mut *one, &mut *other] {
                let server = function.socket(INET6, STREAM);
                if reuse {
                    function.execute(&format!("reuseport {server}")).unwrap();
                }
                assert_eq!(function.execute(&format!("bind {server} :: {port}")), Ok("0".into()));
                function.execute(&format!("listen {server}")).unwrap();
                function.server = server;
            }
            for (family, target, source) in [
                (INET, v4.clone(), format!("::ffff:{}", other.address.v4)),
                (INET6, format!("::ffff:{v4}"), format!("::ffff:{}", other.address.v4)),
                (INET6, v6.clone(), other.address.v6.to_string()),
            ] {
                let client = other.socket(family, STREAM);
                let connected = other.execute(&format!("connect {client} {target} {port}"));
                assert_eq!(connected, Ok("0".into()), "{target}, {reuse}");
                let from = one.execute(&format!("accept {}", one.server)).unwrap();
                assert!(from.starts_with(&format!("{source} ")), "{from}");
            }
            assert_eq!(other.execute(&format!("accept {}", other.server)), Err(TIMED_OUT));
            // The port is in use for both families.
            let socket = one.socket(INET, STREAM);
            assert_eq!(one.execute(&format!("bind {socket} 0.0.0.0 {port}")), Err(IN_USE));
        }
    });
}

#[test]
fn a_dual_stack_socket_receives_and_answers_datagrams_of_both_families() {
    each("dual-datagrams", |one, other| {
        let server = one.socket(INET6, DATAGRAM);
        assert_eq!(one.execute(&format!("bind {server} :: 8125")), Ok("0".into()));
        for (family, target, by) in [
            (INET, one.address.v4.to_string(), "::ffff:"),
            (INET6, one.address.v6.to_string(), ""),
            (INET, one.address.v4.to_string(), "::ffff:"),
        ] {
            let client = other.socket(family, DATAGRAM);
            for verb in ["sendto", "sendmsg"] {
                let sent = other.execute(&format!("sendto {client} {target} 8125"));
                assert_eq!(sent, Ok("5".into()), "{target}");
                let from = one.execute(&format!("receive {server}")).unwrap();
                let own = match family {
                    INET => other.address.v4.to_string(),
                    _ => other.address.v6.to_string(),
                };
                assert!(from.starts_with(&format!("{by}{own} ")), "{from}");
                let (address, port) = from.split_once(' ').unwrap();
                let answered = one.execute(&format!("{verb} {server} {address} {port}"));
                assert_eq!(answered, Ok("5".into()), "{verb} {from}");
                let answer = other.execute(&format!("receive {client}"));
                assert_eq!(answer, Ok(format!("{target} 8125")), "{verb}");
            }
        }
    });
}

#[test]
fn an_ipv6_only_socket_is_reached_over_ipv6_only() {
    each("alone", |one, other| {
        let server = one.socket(INET6, STREAM);
        one.execute(&format!("v6only {server}")).unwrap();
        one.execute(&format!("bind {server} :: 8000")).unwrap();
        one.execute(&format!("listen {server}")).unwrap();
        let client = other.socket(INET, STREAM);
        let refused = other.execute(&format!("connect {client} {} 8000", one.address.v4));
        assert_eq!(refused, Err(REFUSED));
        // So the port is free for IPv4.
        let second = one.listen(INET, "0.0.0.0".parse().unwrap(), 8000);
        for (family, target, server) in [
            (INET, one.address.v4.to_string(), second),
            (INET6, one.address.v6.to_string(), server),
        ] {
            let client = other.socket(family, STREAM);
            assert_eq!(other.execute(&format!("connect {client} {target} 8000")), Ok("0".into()));
            assert!(one.execute(&format!("accept {server}")).is_ok(), "{target}");
        }
    });
}

#[test]
fn binding_a_foreign_address_is_refused() {
    each("foreign", |one, other| {
        let v4 = other.address.v4;
        let v6 = other.address.v6;
        for kind in [STREAM, DATAGRAM] {
            for (family, foreign) in [
                (INET, v4.to_string()),
                (INET, "10.77.0.0".to_owned()),
                (INET, "8.8.8.8".to_owned()),
                (INET6, v6.to_string()),
                (INET6, "fd77::".to_owned()),
                (INET6, "fe80::1".to_owned()),
                (INET6, format!("::ffff:{v4}")),
            ] {
                let socket = one.socket(family, kind);
                one.execute(&format!("freebind {socket}")).unwrap();
                let bound = one.execute(&format!("bind {socket} {foreign} 9000"));
                assert_eq!(bound, Err(EADDRNOTAVAIL), "{foreign}");
                one.execute(&format!("close {socket}")).unwrap();
            }
        }
        let socket = one.socket(INET, STREAM);
        let own = one.address.v4;
        assert_eq!(one.execute(&format!("bind {socket} {own} 9000")), Ok("0".into()));
    });
}

#[test]
fn an_unbound_socket_connects_from_its_own_address() {
    each("connect", |one, other| {
        for (port, (family, target, source)) in (8000..).zip([
            (INET, other.address.v4.to_string(), one.address.v4.to_string()),
            (INET6, other.address.v6.to_string(), one.address.v6.to_string()),
            (INET6, format!("::ffff:{}", other.address.v4), format!("::ffff:{}", one.address.v4)),
        ]) {
            let server = other.listen(family, target.parse().unwrap(), port);
            let client = one.socket(family, STREAM);
            assert_eq!(one.execute(&format!("connect {client} {target} {port}")), Ok("0".into()));
            let from = other.execute(&format!("accept {server}")).unwrap();
            assert!(from.starts_with(&format!("{source} ")), "{from}");
            other.execute(&format!("close {server}")).unwrap();
            // Connected datagram sockets.
            let receiver = other.socket(family, DATAGRAM);
            other.execute(&format!("bind {receiver} {target} 8001")).unwrap();
            let sender = one.socket(family, DATAGRAM);
            assert_eq!(one.execute(&format!("connect {sender} {target} 8001")), Ok("0".into()));
            let name = one.execute(&format!("name {sender}")).unwrap();
            assert!(name.starts_with(&format!("{source} ")), "{name}");
            other.execute(&format!("close {receiver}")).unwrap();
        }
    });
}

#[test]
fn an_unbound_socket_sends_datagrams_from_its_own_address() {
    each("send", |one, other| {
        for (family, target, source) in [
            (INET, other.address.v4.to_string(), one.address.v4.to_string()),
            (INET6, other.address.v6.to_string(), one.address.v6.to_string()),
            (INET6, format!("::ffff:{}", other.address.v4), format!("::ffff:{}", one.address.v4)),
        ] {
            for verb in ["sendto", "sendmsg"] {
                let receiver = other.socket(family, DATAGRAM);
                other.execute(&format!("bind {receiver} {target} 8001")).unwrap();
                let sender = one.socket(family, DATAGRAM);
                assert_eq!(one.execute(&format!("{verb} {sender} {target} 8001")), Ok("5".into()));
                let from = other.execute(&format!("receive {receiver}")).unwrap();
                assert!(from.starts_with(&format!("{source} ")), "{verb}: {from}");
                // The answer arrives at the sender.
                let (address, port) = from.split_once(' ').unwrap();
                other.execute(&format!("sendto {receiver} {address} {port}")).unwrap();
                let from = one.execute(&format!("receive {sender}")).unwrap();
                assert_eq!(from, format!("{target} 8001"));
                other.execute(&format!("close {receiver}")).unwrap();
            }
        }
    });
}

/// With a notifier such datagrams are lost.
#[test]
fn datagrams_to_localhost_reach_the_function_itself() {
    let Some(rig) = Rig::new(By::Cgroups, "localhost") else { return };
    let mut one = rig.function(0, Linked::Static);
    let mut other = rig.function(1, Linked::Static);
    for (family, here) in [(INET, "127.0.0.1"), (INET, "0.0.0.0"), (INET6, "::1")] {
        let receive = |function: &mut Function| {
            let socket = function.socket(family, DATAGRAM);
            function.execute(&format!("bind {socket} {here} 8125")).unwrap();
            socket
        };
        let ours = receive(&mut one);
        let theirs = receive(&mut other);
        let sender = one.socket(family, DATAGRAM);
        assert_eq!(one.execute(&format!("sendto {sender} {here} 8125")), Ok("5".into()), "{here}");
        assert!(one.execute(&format!("receive {ours}")).is_ok(), "{here}");
        assert_eq!(other.execute(&format!("receive {theirs}")), Err(TIMED_OUT), "{here}");
        one.execute(&format!("close {ours}")).unwrap();
        other.execute(&format!("close {theirs}")).unwrap();
    }
}

#[test]
fn a_datagram_cannot_be_given_another_source() {
    each("spoof", |one, other| {
        let target = other.address.v4;
        let receiver = other.socket(INET, DATAGRAM);
        other.execute(&format!("bind {receiver} {target} 8001")).unwrap();
        let sender = one.socket(INET, DATAGRAM);
        for bound in [false, true] {
            if bound {
                one.execute(&format!("connect {sender} {target} 8001")).unwrap_or_default();
            }
            let sent = one.execute(&format!("sendas {sender} 10.77.0.99 {target} 8001"));
            if sent.is_ok() {
                let from = other.execute(&format!("receive {receiver}")).unwrap();
                assert!(from.starts_with(&format!("{} ", one.address.v4)), "{from}");
            }
        }
    });
}

#[test]
fn an_unbound_listener_is_reached_at_its_own_address_only() {
    each("listen", |one, other| {
        let socket = one.socket(INET, STREAM);
        assert_eq!(one.execute(&format!("listen {socket}")), Ok("0".into()));
        let name = one.execute(&format!("name {socket}")).unwrap();
        let port = name.split_once(' ').unwrap().1.to_owned();
        let client = other.socket(INET, STREAM);
        let own = one.address.v4;
        assert_eq!(other.execute(&format!("connect {client} {own} {port}")), Ok("0".into()));
        assert!(one.execute(&format!("accept {socket}")).is_ok());
        // A neighbour's address at the same port does not lead to it.
        let client = one.socket(INET, STREAM);
        let neighbour = other.address.v4;
        let error = one.execute(&format!("connect {client} {neighbour} {port}")).unwrap_err();
        assert!([TIMED_OUT, REFUSED, AGAIN, IN_PROGRESS].contains(&error), "{error}");
        assert_eq!(one.execute(&format!("accept {socket}")), Err(TIMED_OUT));
    });
}

#[test]
fn an_unbound_socket_does_not_receive_a_neighbours_datagrams() {
    each("receive", |one, other| {
        let own = one.address.v4;
        let neighbour = other.address.v4;
        let socket = one.socket(INET, DATAGRAM);
        one.execute(&format!("sendto {socket} {neighbour} 9")).unwrap();
        let name = one.execute(&format!("name {socket}")).unwrap();
        let port = name.split_once(' ').unwrap().1.to_owned();
        let sender = other.socket(INET, DATAGRAM);
        other.execute(&format!("sendto {sender} {neighbour} {port}")).unwrap();
        assert_eq!(one.execute(&format!("receive {socket}")), Err(TIMED_OUT));
        let sender = other.socket(INET, DATAGRAM);
        other.execute(&format!("sendto {sender} {own} {port}")).unwrap();
        assert!(one.execute(&format!("receive {socket}")).is_ok());
    });
}

#[test]
fn only_tcp_and_udp_sockets_can_be_created() {
    each("protocols", |one, _| {
        const RAW: i32 = 3;
        const SCTP: i32 = 132;
        const UDPLITE: i32 = 136;
        const MPTCP: i32 = 262;
        for (family, kind, protocol) in [
            (INET, RAW, 1),
            (INET, RAW, 255),
            (INET6, RAW, 58),
            (INET, DATAGRAM, 1),
            (INET, STREAM, SCTP),
            (INET, STREAM, MPTCP),
            (INET, DATAGRAM, UDPLITE),
            (17, RAW, 768),
        ] {
            let refused = one.execute(&format!("socket {family} {kind} {protocol}"));
            assert!(refused.is_err(), "{family} {kind} {protocol}");
        }
        assert!(one.execute(&format!("socket {INET} {STREAM} 6")).is_ok());
        assert!(one.execute(&format!("socket {INET6} {DATAGRAM} 17")).is_ok());
    });
}

#[test]
fn an_unregistered_process_in_the_namespace_has_no_network() {
    let Some(rig) = Rig::new(By::Cgroups, "unknown") else { return };
    let mut function = rig.function(3, Linked::Dynamic);
    let socket = function.socket(INET, STREAM);
    let group = rig.above.join("77-3");
    rig.network.detach(&group).unwrap();
    assert_eq!(function.execute(&format!("bind {socket} 0.0.0.0 1234")), Err(EPERM));
    assert_eq!(function.execute(&format!("connect {socket} 10.77.0.1 1")), Err(EPERM));
    let again = rig.network.attach(&group, 4).unwrap();
    assert_eq!(function.execute(&format!("bind {socket} 0.0.0.0 1234")), Ok("0".into()));
    let name = function.execute(&format!("name {socket}")).unwrap();
    assert_eq!(name, format!("{} 1234", again.v4));
}
