//! Tests of the dialogue with a host about a leased instance, and of the events that end it.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use snowmelt_wire::{read_frame, read_header};
use tokio::io::AsyncReadExt;
use tokio::task::spawn_blocking;

use super::*;
use crate::remote::fake::{Connections, FakePeer, connection, heard, say};

const LONG: Duration = Duration::from_secs(60);

/// Leases an instance. Returns it, its connection, and the host's end.
async fn leased(
    peer: &Arc<FakePeer>,
    connections: &mut Connections,
) -> (FarInstance, BlockingStream, HostStream) {
    let function = Digest::of("f");
    let host = async {
        let mut stream = connection(connections, LEASES).await;
        assert_eq!(heard::<LeaseInstance>(&mut stream).await.function, function);
        say(&mut stream, &InstanceLeased { start: Start::Zygote, cold: true }).await;
        stream
    };
    let leasing = FarInstance::lease(Arc::clone(peer) as _, &function, "f", LONG);
    let (leased, stream) = tokio::join!(leasing, host);
    let (instance, connection, leased) = leased.unwrap();
    assert!(leased.cold);
    (instance, connection, stream)
}

async fn say_end(stream: &mut HostStream, end: &LeaseEnd) {
    write_frame(stream, &Frame::json(Kind::Return, end).unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_client_speaks_with_its_instance_and_returns_it() {
    let (peer, mut connections) = FakePeer::new("a").await;
    let (instance, mut client, mut host) = leased(&peer, &mut connections).await;
    let speaking = spawn_blocking(move || {
        client.write_all(b"call").unwrap();
        let mut answer = [0; 6];
        client.read_exact(&mut answer).unwrap();
        (client, answer)
    });
    let mut got = Vec::new();
    while got.len() < 4 {
        let (kind, length) = read_header(&mut host).await.unwrap().unwrap();
        assert_eq!(kind, Kind::Relayed);
        let mut bytes = vec![0; length];
        host.read_exact(&mut bytes).await.unwrap();
        got.extend(bytes);
    }
    assert_eq!(got, b"call");
    for part in ["ans", "wer"] {
        send(&mut host, &Frame::new(Kind::Relayed, part)).await.unwrap();
    }
    let (client, answer) = speaking.await.unwrap();
    assert_eq!(&answer, b"answer");
    assert!(instance.ended(Duration::ZERO).await.is_none());
    let hosting = async {
        assert_eq!(read_frame(&mut host).await.unwrap().unwrap().kind, Kind::End);
        let end = LeaseEnd { log: "said".to_owned(), instances: Some(2), error: None };
        say_end(&mut host, &end).await;
    };
    let (end, ()) = tokio::join!(instance.close(true), hosting);
    let end = end.unwrap();
    assert_eq!((end.error, end.log.as_str(), end.instances), (None, "said", Some(2)));
    drop(client);
}

#[tokio::test]
async fn an_instance_that_is_given_up_is_known_to_the_host_also_without_its_lease() {
    let (peer, mut connections) = FakePeer::new("a").await;
    let (instance, client, mut host) = leased(&peer, &mut connections).await;
    // The client has closed its own end before.
    drop(client);
    let hosting = async {
        assert!(read_frame(&mut host).await.unwrap().is_none(), "it is not returned");
        say_end(&mut host, &LeaseEnd::default()).await;
    };
    let (end, ()) = tokio::join!(instance.close(false), hosting);
    assert_eq!(end.unwrap().error, None);
    // A server that ends does not wait for it.
    let (instance, _client, mut host) = leased(&peer, &mut connections).await;
    drop(instance);
    assert!(!matches!(read_frame(&mut host).await, Ok(Some(_))));
}

#[tokio::test]
async fn the_end_of_an_instance_and_the_loss_of_its_host_are_told() {
    let (peer, mut connections) = FakePeer::new("a").await;
    let (instance, mut client, mut host) = leased(&peer, &mut connections).await;
    let why = ErrorReport::new(Code::FUNCTION_EXIT, "it has ended");
    say_end(&mut host, &LeaseEnd { error: Some(why.clone()), ..LeaseEnd::default() }).await;
    assert_eq!(instance.ended(LONG).await.unwrap().error, Some(why));
    let read = spawn_blocking(move || client.read(&mut [0; 8]).unwrap());
    assert_eq!(read.await.unwrap(), 0, "its connection has ended");

    // A connection that breaks in the middle of a frame, of a host that lives and of one that does
    // not.
    for (has_ended, code, message, instances) in [
        (false, Code::CONNECTION_LOST, "the connection to a broke", None),
        (true, Code::CALL_LOST, "a was lost", Some(0)),
    ] {
        let (instance, _client, mut host) = leased(&peer, &mut connections).await;
        let frame = Frame::new(Kind::Relayed, vec![0; 100]).header().unwrap();
        host.write_all(&frame).await.unwrap();
        peer.has_ended.store(has_ended, Ordering::Relaxed);
        drop(host);
        let end = instance.ended(LONG).await.unwrap();
        let error = end.error.unwrap();
        assert_eq!((&*error.code, end.instances), (code.code, instances));
        assert!(error.message.starts_with(message) && error.retryable, "{error}");
        assert!(error.hint.unwrap().contains("may have run"));
    }

    // One that is silent keeps its connections.
    let (instance, _client, _host) = leased(&peer, &mut connections).await;
    peer.lost.cancel();
    let lost = instance.ended(LONG).await.unwrap().error.unwrap();
    assert_eq!(lost.code, Code::CALL_LOST.code);
}

#[tokio::test]
async fn the_end_that_a_host_says_counts_although_it_is_lost_then() {
    let (peer, mut connections) = FakePeer::new("a").await;
    let (instance, _client, mut host) = leased(&peer, &mut connections).await;
    say_end(&mut host, &LeaseEnd { instances: Some(1), ..LeaseEnd::default() }).await;
    peer.has_ended.store(true, Ordering::Relaxed);
    drop(host);
    let end = instance.ended(LONG).await.unwrap();
    assert_eq!((end.error, end.instances), (None, Some(1)));
}

#[tokio::test]
async fn a_host_says_why_it_leases_nothing() {
    let (peer, mut connections) = FakePeer::new("a").await;
    let function = Digest::of("f");
    let host = async {
        let mut stream = connection(&mut connections, LEASES).await;
        heard::<LeaseInstance>(&mut stream).await;
        let full = ErrorReport::new(Code::NO_ROOM, "full");
        let frame = Frame::json(Kind::Failure, &full).unwrap();
        write_frame(&mut stream, &frame).await.unwrap();
    };
    let leasing = FarInstance::lease(Arc::clone(&peer) as _, &function, "f", LONG);
    let (leased, ()) = tokio::join!(leasing, host);
    let Err(NotLeased::Refused(report)) = leased else { panic!("it was leased") };
    assert_eq!(report.code, Code::NO_ROOM.code);
    peer.lost.cancel();
    let lost = FarInstance::lease(Arc::clone(&peer) as _, &function, "f", LONG).await;
    assert!(matches!(lost, Err(NotLeased::Unreachable(_))));
}
