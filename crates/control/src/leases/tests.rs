//! Leases of a real instance, on this host and on another one.

use std::os::unix::net::UnixStream as BlockingStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use snowmelt_api::Start;
use snowmelt_rpc::Peer;
use snowmelt_wire::{FrameStream, read_frame};
use tokio::io::DuplexStream;
use tokio::net::UnixStream;
use tokio::task::spawn_blocking;

use super::*;
use crate::rig::{on_another_host, until, with_functions};
use crate::udfs::{SecretSources, UdfCatalog, UdfLogs};

const COUNTS: &str =
    "calls = 0\ndef handler(event):\n    global calls\n    calls += 1\n    return calls\n";

/// A client, and the service on the other end of its connection.
fn client(leases: &Arc<Leases>) -> FrameStream {
    let (near, far) = BlockingStream::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    let (leases, far) = (Arc::clone(leases), UnixStream::from_std(far).unwrap());
    tokio::spawn(async move { leases.connection(far).await });
    FrameStream::new(near)
}

fn request(name: &str) -> Frame {
    let request = serde_json::json!({ "runs": { "function": name } });
    Frame::json(Kind::Request, &request).unwrap()
}

fn call(instance: &mut FrameStream) -> snowmelt_wire::Result<String> {
    let event = serde_json::value::RawValue::from_string("1".to_owned()).unwrap();
    let call = snowmelt_wire::Call { invocation: "i".to_owned(), event };
    instance.send(&Frame::json(Kind::Call, &call)?)?;
    let answer = instance.receive()?.expect(Kind::Return, "an answer")?;
    Ok(String::from_utf8_lossy(&answer.payload).into_owned())
}

/// Leases the function, and gives the instance.
fn lease(client: &mut FrameStream) -> (Leased, FrameStream) {
    client.send(&request("f")).unwrap();
    let (reply, mut descriptors) = client.receive_with().unwrap();
    let leased = reply.expect(Kind::Reply, "a lease").unwrap().parse().unwrap();
    (leased, FrameStream::new(descriptors.remove(0).into()))
}

fn end(client: &mut FrameStream) {
    client.send(&Frame::new(Kind::End, Vec::new())).unwrap();
    assert_eq!(client.receive().unwrap().kind, Kind::End);
}

#[test]
fn a_lease_is_an_instance_until_it_is_returned() {
    with_functions(COUNTS, async |functions, id| {
        let leases = leases(&functions);
        let (mut one, mut two, mut three) = (client(&leases), client(&leases), client(&leases));
        let dialogue = spawn_blocking(move || {
            let (_, mut first) = lease(&mut one);
            assert_eq!(
                (call(&mut first).unwrap(), call(&mut first).unwrap()),
                ("1".into(), "2".into())
            );
            end(&mut one);
            assert!(call(&mut first).is_err(), "the connection ends with the lease");
            let (leased, mut second) = lease(&mut two);
            assert_eq!(leased.start, Start::Idle);
            assert_eq!(call(&mut second).unwrap(), "3", "it is the same instance");
            // It is given up.
            drop(two);
            let (leased, mut third) = lease(&mut three);
            assert!(leased.cold);
            assert_eq!(call(&mut third).unwrap(), "1", "it is another instance");
            end(&mut three);
        });
        dialogue.await.unwrap();
        drop((leases, id));
    });
}

#[test]
fn a_client_is_told_why_its_instance_has_ended() {
    let exits = "import os\ndef handler(event):\n    os._exit(3)\n";
    with_functions(exits, async |functions, id| {
        let leases = leases(&functions);
        let mut client = client(&leases);
        let told = spawn_blocking(move || {
            let (_, mut instance) = lease(&mut client);
            assert!(call(&mut instance).is_err());
            client.receive().unwrap().expect(Kind::Failure, "the reason").unwrap()
        });
        let report: ErrorReport = told.await.unwrap().parse().unwrap();
        assert_eq!(report.code, Code::FUNCTION_EXIT.code, "{report}");
        assert!(report.message.contains("`handler`"), "{report}");
        assert!(report.message.contains('3'), "{report}");
        drop((leases, id));
    });
}

#[test]
fn what_cannot_be_leased_is_an_error() {
    with_functions(COUNTS, async |functions, _| {
        let leases = leases(&functions);
        let cases = [
            (request("g"), Code::FUNCTION_MISSING),
            (Frame::new(Kind::Request, "{}"), Code::PROTOCOL),
            (Frame::new(Kind::Task, "{}"), Code::PROTOCOL),
        ];
        for (asked, code) in cases {
            let mut client = client(&leases);
            let refused = spawn_blocking(move || {
                client.send(&asked).unwrap();
                client.receive().unwrap().expect(Kind::Failure, "a reason").unwrap()
            });
            let report: ErrorReport = refused.await.unwrap().parse().unwrap();
            assert_eq!(report.code, code.code);
        }
    });
}

#[test]
fn an_instance_on_another_host_is_as_one_here() {
    with_functions(COUNTS, async |functions, _| {
        let over = CancellationToken::new();
        let functions = on_another_host(&functions, &over);
        let leases = leases(&functions);
        let (mut one, mut two, mut three) = (client(&leases), client(&leases), client(&leases));
        let leased = || functions.placements().list()[1].calls;
        let dialogue = spawn_blocking(move || {
            let (leased, mut first) = lease(&mut one);
            assert_eq!(leased.host.unwrap().as_str(), "far");
            assert_eq!(call(&mut first).unwrap(), "1");
            (one, first)
        });
        let (mut one, mut first) = dialogue.await.unwrap();
        assert_eq!(leased(), 1, "the scheduler counts it");
        let dialogue = spawn_blocking(move || {
            assert_eq!(call(&mut first).unwrap(), "2");
            end(&mut one);
            assert!(call(&mut first).is_err(), "the connection ends with the lease");
            let (leased, mut second) = lease(&mut two);
            assert_eq!(leased.start, Start::Idle);
            assert_eq!(call(&mut second).unwrap(), "3", "it is the same instance");
            // It is given up.
            drop(two);
            let (leased, mut third) = lease(&mut three);
            assert!(leased.cold);
            assert_eq!(call(&mut third).unwrap(), "1", "it is another instance");
            end(&mut three);
        });
        dialogue.await.unwrap();
        until("nothing is leased", async || leased() == 0).await;
        over.cancel();
    });
}

#[test]
fn a_client_is_told_why_its_instance_on_another_host_has_ended() {
    let exits = "import os\ndef handler(event):\n    os._exit(3)\n";
    with_functions(exits, async |functions, _| {
        let over = CancellationToken::new();
        let functions = on_another_host(&functions, &over);
        let leases = leases(&functions);
        let mut client = client(&leases);
        let told = spawn_blocking(move || {
            let (leased, mut instance) = lease(&mut client);
            assert!(leased.host.is_some() && call(&mut instance).is_err());
            client.receive().unwrap().expect(Kind::Failure, "the reason").unwrap()
        });
        let report: ErrorReport = told.await.unwrap().parse().unwrap();
        assert_eq!(report.code, Code::FUNCTION_EXIT.code, "{report}");
        over.cancel();
    });
}

#[test]
fn an_instance_that_does_not_read_ends_with_its_client() {
    let sleeps = "import time\ndef handler(event):\n    time.sleep(3600)\n";
    with_functions(sleeps, async |functions, _| {
        let over = CancellationToken::new();
        let functions = on_another_host(&functions, &over);
        let (node, _) = functions.node_and_analysis();
        let leases = leases(&functions);
        let mut client = client(&leases);
        let leasing = spawn_blocking(move || {
            let (_, instance) = lease(&mut client);
            (client, instance)
        });
        let (client, mut instance) = leasing.await.unwrap();
        assert_eq!(node.usage().instances[0], 1);
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&sent);
        // More than all buffers on the way have.
        let sending = spawn_blocking(move || {
            while instance.send(&Frame::new(Kind::Call, vec![b' '; 1 << 20])).is_ok() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        let last = AtomicUsize::new(usize::MAX);
        let waits = async || {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let now = sent.load(Ordering::Relaxed);
            last.swap(now, Ordering::Relaxed) == now
        };
        until("the client waits", waits).await;
        drop(client);
        until("the instance ends", async || node.usage().instances[0] == 0).await;
        sending.await.unwrap();
        over.cancel();
    });
}

/// The bytes of a call, as a client of the API sends them.
fn relayed_call() -> Frame {
    let call = serde_json::json!({ "invocation": "i", "event": 1 });
    let call = Frame::json(Kind::Call, &call).unwrap();
    Frame::new(Kind::Relayed, [&call.header().unwrap()[..], &call.payload].concat())
}

/// The next frame of the instance.
async fn relayed_answer(client: &mut DuplexStream) -> Frame {
    let mut bytes = Vec::new();
    loop {
        let frame = read_frame(client).await.unwrap().unwrap();
        bytes.extend(frame.expect(Kind::Relayed, "bytes").unwrap().payload);
        if let Ok(Some(answer)) = read_frame(&mut &*bytes).await {
            return answer;
        }
    }
}

#[test]
fn a_client_of_the_api_has_an_instance_on_another_host() {
    with_functions(COUNTS, async |functions, _| {
        let over = CancellationToken::new();
        let functions = on_another_host(&functions, &over);
        let leases = leases(&functions);
        let (mut client, stream) = tokio::io::duplex(1 << 16);
        let identity = Identity::new(Peer::User(0), None).unwrap();
        let serving = tokio::spawn(async move {
            leases.connection(Relayed { stream, identity }).await;
        });
        write_frame(&mut client, &request("f")).await.unwrap();
        let reply = read_frame(&mut client).await.unwrap().unwrap();
        let leased: Leased = reply.expect(Kind::Reply, "a lease").unwrap().parse().unwrap();
        assert_eq!(leased.host.unwrap().as_str(), "far");
        for count in ["1", "2"] {
            write_frame(&mut client, &relayed_call()).await.unwrap();
            let answer = relayed_answer(&mut client).await;
            assert_eq!((answer.kind, &*answer.payload), (Kind::Return, count.as_bytes()));
        }
        write_frame(&mut client, &Frame::new(Kind::End, Vec::new())).await.unwrap();
        assert_eq!(read_frame(&mut client).await.unwrap().unwrap().kind, Kind::End);
        serving.await.unwrap();
        over.cancel();
    });
}

fn leases(functions: &Functions) -> Arc<Leases> {
    let (node, analysis) = functions.node_and_analysis();
    let secrets = SecretSources::new("/no/secrets");
    let places = functions.placements().own_places();
    let catalog = Arc::new(UdfCatalog::new(node, analysis, secrets, places));
    let logs = UdfLogs::new(std::env::temp_dir().join("no-udf-logs"));
    let udfs = UdfRegistry::new(functions.records().clone(), catalog, logs);
    Arc::new(Leases::new(functions.clone(), udfs))
}
