//! Networks of jobs: which processes are in them, and which calls are allowed there.

use std::future::poll_fn;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::pin::pin;
use std::task::Poll;

use crate::harness::{ask, python, read_all, spec, until, with_spawner, within};
use crate::zygote::{Code, child, zygote};
use snowmelt_kernel::bpf::Map;
use snowmelt_kernel::notify::{CallAnswer, NotifyListener, calls};
use snowmelt_sandbox::{Error, ForkSpec, Network, NetworkProgram, Sandbox};

const SOCKETS: &str = "
import os, socket
print(os.stat('/proc/self/ns/net').st_ino)
for family, kind, protocol in ((2, 1, 0), (10, 2, 0), (2, 3, 1), (16, 3, 0), (17, 3, 0)):
    try: socket.socket(family, kind, protocol); print('made')
    except OSError as error: print(error.errno)
";

/// The output of [`SOCKETS`] with and without internet sockets: TCP, UDP over IPv6, raw, netlink,
/// packet.
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
        let programs = vec![NetworkProgram { program: spec, entry: None }];
        let mut started = rig.spawner.start_many_in(&network, programs).await;
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

#[test]
fn a_network_that_nobody_waits_for_any_more_is_dropped() {
    with_spawner(|rig| async move {
        let lane = rig.spawner.health().processes[0];
        let networks = || {
            let files = std::fs::read_dir(format!("/proc/{lane}/fd")).unwrap().flatten();
            let targets = files.filter_map(|file| std::fs::read_link(file.path()).ok());
            targets.filter(|target| target.to_string_lossy().starts_with("net:")).count()
        };
        let before = networks();
        let network = within(rig.spawner.make_network(None)).await.unwrap();
        assert_eq!(networks(), before + 1);
        drop(network);
        for _ in 0..8 {
            // It is requested, and the answer is not waited for: even the shortest time-out may be
            // longer than the making.
            let mut making = pin!(rig.spawner.make_network(None));
            drop(poll_fn(|context| Poll::Ready(making.as_mut().poll(context))).await);
        }
        // The lane handles this request after those.
        within(rig.spawner.make_network(None)).await.unwrap();
        until("all networks are dropped", || networks() == before).await;
    });
}

/// The second program is not executed, because its table is full; its entry would come before it.
#[test]
fn a_program_is_executed_only_when_its_entry_is_in_the_table_of_its_network() {
    if snowmelt_sandbox::unified_group("").is_none() {
        return eprintln!("skipped: there are no control groups of version 2");
    }
    with_spawner(|rig| async move {
        let table = Map::hash(8, 4, 1).unwrap();
        let network = rig.spawner.make_network_with_table(None, table.as_fd()).await.unwrap();
        let program = |command: &[&str]| {
            let mut program = spec(command);
            program.network = Network::Job(network.id());
            NetworkProgram { program, entry: Some(vec![7; 4]) }
        };
        let missing = vec![program(&["/no/such/program"]), program(&["/bin/sleep", "600"])];
        let mut started = rig.spawner.start_many_in(&network, missing).await.into_iter();
        assert!(matches!(started.next(), Some(Err(Error::Start { .. }))));
        // The entry of what was not started left room for this one.
        let running = started.next().unwrap().unwrap();
        let mut started = rig.spawner.start_many_in(&network, vec![program(&["/bin/true"])]).await;
        let Error::Start { step, source, .. } = started.remove(0).unwrap_err() else { panic!() };
        assert_eq!(step, "give a program the addresses of its network");
        assert_eq!(source.raw_os_error(), Some(rustix::io::Errno::TOOBIG.raw_os_error()));
        let group = std::fs::metadata(running.group().unwrap()).unwrap().ino();
        table.remove(&group.to_ne_bytes()).unwrap();
    });
}

const HANDLER: &str = "
import os, socket
def sockets():
    results = [str(os.stat('/proc/self/ns/net').st_ino)]
    for family, kind, protocol in ((2, 1, 0), (10, 2, 0), (2, 3, 1), (16, 3, 0), (17, 3, 0)):
        try: socket.socket(family, kind, protocol); results.append('made')
        except OSError as error: results.append(str(error.errno))
    return '\\n'.join(results)
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
fn a_dropped_network_accepts_no_more_functions() {
    with_spawner(|rig| async move {
        let code = Code::new(&[]);
        let zygote = zygote(&rig, &code, &[]).await;
        let network = rig.spawner.make_network(Some(&zygote)).await.unwrap();
        let spec = ForkSpec { network: Some(network.id()), ..code.fork("handler:serve") };
        drop(network);
        let refused = within(rig.spawner.fork(&zygote, spec)).await.err().unwrap();
        assert!(refused.to_string().contains("find the network"), "{refused}");
        // The zygote continues.
        child(&rig, &zygote, &code).await;
    });
}

const WITH_NOTIFIER: &str = "
import os, resource, socket
def attempts():
    results = []
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    results.append(str(limit == most))
    opened = [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if int(n) < 4]
    results.append(str(len(opened)) + str(any('seccomp' in name for name in opened)))
    for number in range(4, limit + 1):
        try: os.fstat(number); results.append(f'{number} is open')
        except OSError: pass
    def tried(what):
        try: what(); results.append('made')
        except (OSError, ValueError) as error: results.append(str(getattr(error, 'errno', None)))
    tried(lambda: os.dup2(0, limit))
    tried(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit + 1, limit + 1)))
    tried(lambda: socket.socket(socket.AF_INET))
    left, right = socket.socketpair()
    tried(lambda: left.sendmsg([b'x']))
    return '\\n'.join(results)
";

/// Its output if each waiting call is answered with `EXDEV`.
const REFUSED: &str = "True\n4False\n9\nNone\n18\n18";

/// Answers waiting calls up to the message, and returns their numbers, except the connections of
/// the C library when it looks up users.
fn refuse(listener: std::os::fd::OwnedFd) -> Vec<i64> {
    let listener = NotifyListener::from(listener);
    let mut received = Vec::new();
    while received.last() != Some(&calls::SEND_MESSAGE) {
        let call = listener.receive().unwrap();
        listener.answer(&call, CallAnswer::Error(18)).unwrap();
        received.extend((call.number != calls::CONNECT).then_some(call.number));
    }
    received
}

const WAITING_CALLS: [i64; 2] = [calls::SOCKET, calls::SEND_MESSAGE];

#[test]
fn calls_of_a_program_with_a_notifier_wait_and_it_has_no_listener() {
    with_spawner(|rig| async move {
        let network = rig.spawner.make_network_with_notifier(None).await.unwrap();
        let mut spec = python(&format!("{WITH_NOTIFIER}\nprint(attempts())"));
        spec.network = Network::Job(network.id());
        let programs = vec![NetworkProgram { program: spec, entry: None }];
        let mut started = rig.spawner.start_many_in(&network, programs).await;
        let mut sandbox = started.remove(0).unwrap();
        let listener = sandbox.take_listener().unwrap();
        let answered = tokio::task::spawn_blocking(move || refuse(listener));
        let log = sandbox.take_log().unwrap();
        let text = tokio::task::spawn_blocking(move || read_all(log)).await.unwrap();
        assert_eq!(text.trim(), REFUSED);
        assert_eq!(within(answered).await.unwrap(), WAITING_CALLS);
        within(sandbox.wait()).await;
    });
}

#[test]
fn calls_of_a_child_with_a_notifier_wait_and_its_siblings_do_not() {
    with_spawner(|rig| async move {
        let code = Code::new(&[("heavy.py", WITH_NOTIFIER)]);
        let zygote = zygote(&rig, &code, &["heavy"]).await;
        let network = rig.spawner.make_network_with_notifier(Some(&zygote)).await.unwrap();
        let spec = ForkSpec { network: Some(network.id()), ..code.fork("handler:serve") };
        let mut inside = within(rig.spawner.fork(&zygote, spec)).await.unwrap();
        let listener = inside.take_listener().unwrap();
        let answered = tokio::task::spawn_blocking(move || refuse(listener));
        let results = ask_in_turn(inside, "sys.modules['heavy'].attempts()").await;
        // In addition to the first four there is the connection of the request.
        let own: Vec<_> = results.lines().filter(|line| !line.ends_with("is open")).collect();
        assert_eq!(own.join("\n"), REFUSED);
        assert_eq!(within(answered).await.unwrap(), WAITING_CALLS);
        let mut outside = child(&rig, &zygote, &code).await;
        assert!(outside.take_listener().is_none());
    });
}

async fn ask_in_turn(sandbox: Sandbox, what: &'static str) -> String {
    tokio::task::spawn_blocking(move || ask(&sandbox, what).unwrap()).await.unwrap()
}
