//! Networks of jobs: who is in them, and what may be done there.

use std::os::fd::AsFd;

use crate::harness::{ask, python, read_all, with_spawner, within};
use crate::zygote::{Code, child, zygote};
use snowmelt_kernel::notify::{Answer, Listener, calls};
use snowmelt_sandbox::{ForkSpec, Network, Sandbox};

const SOCKETS: &str = "
import os, socket
print(os.stat('/proc/self/ns/net').st_ino)
for family, kind, protocol in ((2, 1, 0), (10, 2, 0), (2, 3, 1), (16, 3, 0), (17, 3, 0)):
    try: socket.socket(family, kind, protocol); print('made')
    except OSError as error: print(error.errno)
";

/// What [`SOCKETS`] prints with and without the internet: TCP, UDP over IPv6, raw, netlink, packet.
const WITH: &str = "made\nmade\n1\n97\n97";
const WITHOUT: &str = "97\n97\n97\n97\n97";

fn number(namespace: impl AsFd) -> u64 {
    rustix::fs::fstat(namespace).unwrap().st_ino
}

#[test]
fn a_program_of_a_job_is_in_its_network_and_the_next_one_is_not() {
    with_spawner(|rig| async move {
        let network = rig.spawner.make_network(None).await.unwrap();
        let mut spec = python(SOCKETS);
        spec.network = Network::Job(network.id());
        let mut started = rig.spawner.start_many_in(&network, vec![spec]).await;
        let mut sandbox = started.remove(0).unwrap();
        let log = sandbox.take_log().unwrap();
        let text = tokio::task::spawn_blocking(move || read_all(log)).await.unwrap();
        assert_eq!(text.trim(), format!("{}\n{WITH}", number(&network)));
        within(sandbox.wait()).await;
        let elsewhere = rig.printed(SOCKETS).await;
        assert!(elsewhere.ends_with(WITHOUT), "{elsewhere}");
        assert!(!elsewhere.starts_with(&number(&network).to_string()), "{elsewhere}");
    });
}

const HANDLER: &str = "
import os, socket
def sockets():
    said = [str(os.stat('/proc/self/ns/net').st_ino)]
    for family, kind, protocol in ((2, 1, 0), (10, 2, 0), (2, 3, 1), (16, 3, 0), (17, 3, 0)):
        try: socket.socket(family, kind, protocol); said.append('made')
        except OSError as error: said.append(str(error.errno))
    return '\\n'.join(said)
";

#[test]
fn a_child_of_a_zygote_is_in_its_jobs_network_and_its_sibling_is_not() {
    with_spawner(|rig| async move {
        let code = Code::new(&[("heavy.py", HANDLER)]);
        let zygote = zygote(&rig, &code, &["heavy"]).await;
        let network = rig.spawner.make_network(Some(&zygote)).await.unwrap();
        let sockets = |sandbox| ask(&sandbox, "sys.modules['heavy'].sockets()").unwrap();
        let spec = ForkSpec { network: Some(network.id()), ..code.fork("handler:serve") };
        let inside = within(rig.spawner.fork(&zygote, spec)).await.unwrap();
        assert_eq!(sockets(inside), format!("{}\n{WITH}", number(&network)));
        let outside = sockets(child(&rig, &zygote, &code).await);
        assert!(outside.ends_with(WITHOUT), "{outside}");
    });
}

#[test]
fn a_network_that_was_dropped_takes_no_more_functions() {
    with_spawner(|rig| async move {
        let code = Code::new(&[]);
        let zygote = zygote(&rig, &code, &[]).await;
        let network = rig.spawner.make_network(Some(&zygote)).await.unwrap();
        let spec = ForkSpec { network: Some(network.id()), ..code.fork("handler:serve") };
        drop(network);
        let refused = within(rig.spawner.fork(&zygote, spec)).await.err().unwrap();
        assert!(refused.to_string().contains("find the network"), "{refused}");
        // The zygote goes on.
        child(&rig, &zygote, &code).await;
    });
}

const GUARDED: &str = "
import os, resource, socket
def guarded():
    said = []
    door, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    said.append(str(door == most))
    opened = [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if int(n) < 4]
    said.append(str(len(opened)) + str(any('seccomp' in name for name in opened)))
    for number in range(4, door + 1):
        try: os.fstat(number); said.append(f'{number} is open')
        except OSError: pass
    def tried(what):
        try: what(); said.append('made')
        except (OSError, ValueError) as error: said.append(str(getattr(error, 'errno', None)))
    tried(lambda: os.dup2(0, door))
    tried(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (door + 1, door + 1)))
    tried(lambda: socket.socket(socket.AF_INET))
    left, right = socket.socketpair()
    tried(lambda: left.sendmsg([b'x']))
    return '\\n'.join(said)
";

/// What it says if each call that waits is answered with `EXDEV`.
const ALONE: &str = "True\n4False\n9\nNone\n18\n18";

/// Answers calls that wait up to the message, and says which they were but for what the C library
/// wants to connect to when it looks for users.
fn refuse(listener: std::os::fd::OwnedFd) -> Vec<i64> {
    let listener = Listener::from(listener);
    let mut heard = Vec::new();
    while heard.last() != Some(&calls::SEND_MESSAGE) {
        let call = listener.receive().unwrap();
        listener.answer(&call, Answer::Error(18)).unwrap();
        heard.extend((call.number != calls::CONNECT).then_some(call.number));
    }
    heard
}

const WAITED: [i64; 2] = [calls::SOCKET, calls::SEND_MESSAGE];

#[test]
fn a_guarded_program_waits_for_answers_and_has_nothing_to_give_them_with() {
    with_spawner(|rig| async move {
        let network = rig.spawner.make_guarded_network(None).await.unwrap();
        let mut spec = python(&format!("{GUARDED}\nprint(guarded())"));
        spec.network = Network::Job(network.id());
        let mut started = rig.spawner.start_many_in(&network, vec![spec]).await;
        let mut sandbox = started.remove(0).unwrap();
        let listener = sandbox.take_listener().unwrap();
        let answered = tokio::task::spawn_blocking(move || refuse(listener));
        let log = sandbox.take_log().unwrap();
        let text = tokio::task::spawn_blocking(move || read_all(log)).await.unwrap();
        assert_eq!(text.trim(), ALONE);
        assert_eq!(within(answered).await.unwrap(), WAITED);
        within(sandbox.wait()).await;
    });
}

#[test]
fn a_guarded_child_of_a_zygote_does_so_too_and_its_sibling_does_not() {
    with_spawner(|rig| async move {
        let code = Code::new(&[("heavy.py", GUARDED)]);
        let zygote = zygote(&rig, &code, &["heavy"]).await;
        let network = rig.spawner.make_guarded_network(Some(&zygote)).await.unwrap();
        let spec = ForkSpec { network: Some(network.id()), ..code.fork("handler:serve") };
        let mut inside = within(rig.spawner.fork(&zygote, spec)).await.unwrap();
        let listener = inside.take_listener().unwrap();
        let answered = tokio::task::spawn_blocking(move || refuse(listener));
        let said = ask_in_turn(inside, "sys.modules['heavy'].guarded()").await;
        // Beside the first four there is the connection over which it is asked.
        let own: Vec<_> = said.lines().filter(|line| !line.ends_with("is open")).collect();
        assert_eq!(own.join("\n"), ALONE);
        assert_eq!(within(answered).await.unwrap(), WAITED);
        let mut outside = child(&rig, &zygote, &code).await;
        assert!(outside.take_listener().is_none());
    });
}

async fn ask_in_turn(sandbox: Sandbox, what: &'static str) -> String {
    tokio::task::spawn_blocking(move || ask(&sandbox, what).unwrap()).await.unwrap()
}
