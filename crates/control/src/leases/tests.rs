//! Leases of a real instance, on this host and on another one; `ends` has what ends those that are
//! not returned.

mod ends;

use std::os::unix::net::UnixStream as BlockingStream;

use snowmelt_api::Start;
use snowmelt_rpc::Peer;
use snowmelt_tasks::TaskHost;
use snowmelt_types::HostName;
use snowmelt_wire::{FrameStream, read_frame};
use tokio::io::DuplexStream;
use tokio::net::UnixStream;
use tokio::task::{JoinHandle, spawn_blocking};

use super::*;
use crate::access::secrets::SecretSources;
use crate::platform::rig::{on_another_host, until, with_functions};
use crate::udfs::{UdfCatalog, UdfLogs};

const COUNTS: &str =
    "calls = 0\ndef handler(event):\n    global calls\n    calls += 1\n    return calls\n";

/// A client, and the service on the other end of its connection.
fn client(leases: &Arc<Leases>) -> FrameStream {
    let (near, far) = BlockingStream::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    let leases = Arc::clone(leases);
    let far = LeaseConnection::new(UnixStream::from_std(far).unwrap());
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

/// Leases the instances of `COUNTS`, which are on this host or on another one. `leased` looks while
/// the first of them is.
async fn lease_all(leases: &Arc<Leases>, host: Option<&'static str>, leased: impl FnOnce()) {
    let mut one = client(leases);
    let mut two = client(leases);
    let mut three = client(leases);
    let dialogue = spawn_blocking(move || {
        let (leased, mut first) = lease(&mut one);
        assert_eq!(leased.host.as_ref().map(HostName::as_str), host);
        assert_eq!(call(&mut first).unwrap(), "1");
        (one, first)
    });
    let (mut one, mut first) = dialogue.await.unwrap();
    leased();
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
}

#[test]
fn a_lease_is_an_instance_until_it_is_returned() {
    with_functions(COUNTS, async |functions, id| {
        let leases = leases(&functions);
        lease_all(&leases, None, || ()).await;
        let ended = || -> u64 {
            let series = leases.durations().read(Some(&id.tenant));
            let of_f = series.iter().filter(|(of, _)| of.function == "f");
            of_f.map(|(_, times)| times.buckets.iter().sum::<u64>()).sum()
        };
        // The one that was given up is counted when that is noticed.
        until("three leases are counted", async || ended() == 3).await;
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
        let leased = || functions.placements().list()[1].calls;
        let is_counted = || assert_eq!(leased(), 1, "the scheduler counts it");
        lease_all(&leases(&functions), Some("far"), is_counted).await;
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

/// A client of the API, and what serves it.
fn client_of_api(leases: &Arc<Leases>) -> (DuplexStream, JoinHandle<()>) {
    let (client, stream) = tokio::io::duplex(1 << 16);
    let leases = Arc::clone(leases);
    let stream = LeaseConnection::new(stream);
    let identity = Identity::new(Peer::User(0), None).unwrap();
    let serving = async move { leases.connection(RelayConnection { stream, identity }).await };
    (client, tokio::spawn(serving))
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
        let (mut client, serving) = client_of_api(&leases);
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
    let catalog = Arc::new(UdfCatalog::new(TaskHost::new(node), analysis, secrets, places));
    let logs = UdfLogs::new(std::env::temp_dir().join("no-udf-logs"));
    let udfs = UdfRegistry::new(functions.records().clone(), catalog, logs);
    Arc::new(Leases::new(functions.clone(), udfs, Folders::default()))
}
