//! Networks of jobs: who is in them, and what may be done there.

use std::os::fd::AsFd;

use crate::harness::{ask, python, read_all, with_spawner, within};
use crate::zygote::{Code, child, zygote};
use snowmelt_sandbox::{ForkSpec, Network};

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
