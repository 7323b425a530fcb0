//! Tests of the ends of leases that are not returned: clients that are gone, and connections that
//! break.

use std::cell::OnceCell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use snowmelt_api::{FunctionOptions, FunctionSpec};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::*;
use crate::platform::rig::{on_another_host_behind, spec};

const LONG: Duration = Duration::from_secs(60);

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

/// A function whose calls wait for a host for longer than this test does.
async fn patient(functions: &Functions, tenant: &Tenant) {
    let options = FunctionOptions { timeout_ms: 3_600_000, ..FunctionOptions::default() };
    let spec = FunctionSpec { options, ..spec(COUNTS) };
    functions.deploy(tenant.clone(), spec).await.unwrap();
}

#[test]
fn a_client_that_is_gone_does_not_wait_for_room() {
    with_functions(COUNTS, async |functions, id| {
        let over = CancellationToken::new();
        let functions = on_another_host(&functions, &over);
        patient(&functions, &id.tenant).await;
        let leases = leases(&functions);
        let placements = functions.placements();
        let live = functions.find(&id).await.unwrap();
        let mut taken = Vec::new();
        while let Some(acquired) = functions.caller().acquire(&live).now_or_never() {
            taken.push(acquired.unwrap());
        }
        assert!(!taken.is_empty());
        let (mut of_api, serving) = client_of_api(&leases);
        write_frame(&mut of_api, &request("f")).await.unwrap();
        let mut local = client(&leases);
        let asking = spawn_blocking(move || {
            local.send(&request("f")).unwrap();
            local
        });
        let local = asking.await.unwrap();
        until("both wait", async || placements.waiting() == 2).await;
        // A client may send its first call before it has an instance.
        write_frame(&mut of_api, &relayed_call()).await.unwrap();
        drop(of_api);
        timeout(LONG, serving).await.unwrap().unwrap();
        assert_eq!(placements.waiting(), 1);
        drop(local);
        until("nobody waits", async || placements.waiting() == 0).await;
        // The host has room for one, and nothing was taken for them.
        drop(taken.pop());
        let again = functions.caller().acquire(&live).now_or_never();
        assert!(again.is_some_and(|acquired| acquired.is_ok()));
        over.cancel();
    });
}

#[test]
fn a_client_that_is_gone_does_not_wait_for_calls_of_its_function() {
    with_functions(COUNTS, async |functions, id| {
        let leases = leases(&functions);
        let live = functions.find(&id).await.unwrap();
        let all = u32::try_from(live.permits.available_permits()).unwrap();
        let _all = live.permits.acquire_many(all).await.unwrap();
        let (mut client, serving) = client_of_api(&leases);
        write_frame(&mut client, &request("f")).await.unwrap();
        drop(client);
        timeout(LONG, serving).await.unwrap().unwrap();
    });
}

/// Carries connections to an address; those that are open break when it is notified.
fn breakable(to: SocketAddr, breaks: &Arc<Notify>) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    let breaks = Arc::clone(breaks);
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let breaks = Arc::clone(&breaks);
            tokio::spawn(async move {
                let Ok(mut far) = TcpStream::connect(to).await else { return };
                tokio::select! {
                    _ = copy_bidirectional(&mut near, &mut far) => {}
                    () = breaks.notified() => {}
                }
            });
        }
    });
    address
}

/// Returns the error that a client is told when the connections to the host of its instance break.
async fn told(mut client: FrameStream, mut instance: FrameStream, breaks: &Notify) -> ErrorReport {
    breaks.notify_waiters();
    let told = spawn_blocking(move || {
        assert!(call(&mut instance).is_err());
        client.receive().unwrap().expect(Kind::Failure, "the reason").unwrap()
    });
    told.await.unwrap().parse().unwrap()
}

#[test]
fn a_connection_that_breaks_is_no_host_that_is_lost() {
    with_functions(COUNTS, async |functions, id| {
        let over = CancellationToken::new();
        let breaks = Arc::new(Notify::new());
        let address = OnceCell::new();
        let before = |to| breakable(*address.get_or_init(|| to), &breaks);
        let functions = on_another_host_behind(before, &functions, &over);
        let (node, _) = functions.node_and_analysis();
        let leases = leases(&functions);
        let live = functions.find(&id).await.unwrap();
        let known = || functions.placements().known(&live.needs);
        let mut one = client(&leases);
        let mut two = client(&leases);
        let leasing = spawn_blocking(move || {
            let ((leased, _), (_, second)) = (lease(&mut one), lease(&mut two));
            assert!(leased.host.is_some());
            end(&mut one);
            (two, second)
        });
        let (two, second) = leasing.await.unwrap();
        let (calls, idle) = known();
        assert_eq!(calls, 1);
        assert!(idle > 0 && node.usage().instances[0] == 1);
        let error = told(two, second, &breaks).await;
        assert_eq!(error.code, Code::CONNECTION_LOST.code, "{error}");
        assert!(error.message.contains("to far broke") && error.retryable, "{error}");
        // Those that are idle are there, and known; the leased one is not.
        assert_eq!(known(), (0, idle));
        until("the instance ends", async || node.usage().instances[0] == 0).await;

        let mut three = client(&leases);
        let leasing = spawn_blocking(move || {
            let (leased, instance) = lease(&mut three);
            assert_eq!(leased.start, Start::Idle);
            (three, instance)
        });
        let (three, third) = leasing.await.unwrap();
        // From now on it neither reports nor answers.
        over.cancel();
        let is_gone = async || TcpStream::connect(address.get().unwrap()).await.is_err();
        until("nobody listens there", is_gone).await;
        let error = told(three, third, &breaks).await;
        assert_eq!(error.code, Code::CALL_LOST.code, "{error}");
        assert!(error.message.starts_with("far was lost"), "{error}");
        assert_eq!(known(), (0, 0));
    });
}
