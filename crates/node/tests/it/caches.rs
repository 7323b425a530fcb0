//! Handler cache, import cache, and prewarmed instances.

use std::sync::Arc;

use serde_json::json;
use snowmelt_api::Start;
use snowmelt_node::InstanceLimits;
use snowmelt_types::{ByteSize, Report, Tenant};

use crate::rig::{Budgets, PLENTY, call, limits, load, until, with_node};

/// Says what was imported before the first line of the file was executed.
const SEEN: &str = "import sys\nSEEN = sorted(sys.modules)\n\
    def handler(event):\n    return event in SEEN\n";

#[test]
fn an_idle_instance_is_taken_again() {
    with_node(PLENTY, async |rig| {
        let unit = rig.unit("def handler(event): return event", &[]).await;
        let mut first = rig.lease(&unit, &limits()).await;
        assert!(first.cold);
        assert_eq!(call(&mut first, json!(1)).await.unwrap(), 1);
        first.give_back();
        assert_eq!(rig.node.usage().instances, [0, 1]);
        for event in 2..20 {
            let mut again = rig.lease(&unit, &limits()).await;
            assert_eq!(again.start, Start::Idle);
            assert_eq!(call(&mut again, json!(event)).await.unwrap(), event);
            again.give_back();
        }
        let figures = rig.node.figures();
        assert_eq!((figures.handlers.hits, figures.handlers.idle), (18, 1));
        assert!(figures.handlers.bytes > 0);
    });
}

#[test]
fn an_instance_executes_its_code_before_the_first_connection() {
    with_node(PLENTY, async |rig| {
        let text = "import os\nprint('here')\n\
            def handler(event): return 'SNOWMELT_LOAD_AHEAD' in os.environ";
        let unit = rig.unit(text, &[]).await;
        let mut lease = rig.lease(&unit, &limits()).await;
        let mut log = String::new();
        while !log.contains("here\n") {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            log.push_str(&lease.take_log().text);
        }
        assert_eq!(call(&mut lease, json!(null)).await.unwrap(), false);
        assert_eq!(lease.take_log().text, "", "executed once");

        let unit = rig.unit("raise ValueError('no')", &[]).await;
        let mut lease = rig.lease(&unit, &limits()).await;
        let error = call(&mut lease, json!(null)).await.unwrap_err().to_string();
        assert!(error.contains("handler") && error.contains("ValueError: no"), "{error}");
    });
}

/// What it is told while it is paused may be more than its socket holds.
#[test]
fn an_idle_instance_takes_a_long_event() {
    with_node(PLENTY, async |rig| {
        let unit = rig.unit("def handler(event): return len(event)", &[]).await;
        for length in [8, 8 << 20, 4 << 10, 2 << 20] {
            let mut lease = rig.lease(&unit, &limits()).await;
            let event = json!("x".repeat(length));
            assert_eq!(call(&mut lease, event).await.unwrap(), length);
            lease.give_back();
        }
        assert_eq!(rig.node.figures().handlers.hits, 3);
    });
}

#[test]
fn functions_of_one_file_share_an_instance_and_are_not_mixed_up() {
    with_node(PLENTY, async |rig| {
        let text = "def handler(event): return 'one'\ndef other(event): return 'two'";
        let unit = rig.unit(text, &[]).await;
        let mut first = rig.lease(&unit, &limits()).await;
        assert_eq!(call(&mut first, json!(null)).await.unwrap(), "one");
        first.give_back();
        let mut again = rig.lease(&unit, &limits()).await;
        assert_eq!(again.start, Start::Idle);
        let other = snowmelt_wire::Load { function: "other".into(), ..load() };
        let event =
            snowmelt_wire::Call { invocation: "test".into(), event: crate::rig::raw(&json!(null)) };
        let answer = again.call(&other, &event, crate::rig::LIMIT).await.unwrap();
        assert_eq!(answer.json(), "\"two\"");
    });
}

#[test]
fn a_full_handler_cache_keeps_nothing() {
    let budgets = Budgets { handlers: ByteSize(1), ..PLENTY };
    with_node(budgets, async |rig| {
        let unit = rig.unit("def handler(event): return event", &[]).await;
        for event in 0..3 {
            let mut lease = rig.lease(&unit, &limits()).await;
            assert!(lease.cold);
            assert_eq!(call(&mut lease, json!(event)).await.unwrap(), event);
            lease.give_back();
        }
        assert_eq!(rig.node.figures().handlers.evicted, 3);
    });
}

#[test]
fn a_grown_zygote_serves_only_functions_that_declare_all_its_imports() {
    with_node(PLENTY, async |rig| {
        let modules = ["decimal", "sqlite3", "xml.etree.ElementTree"];
        let all = rig.unit(SEEN, &modules).await;
        let mut first = rig.lease(&all, &limits()).await;
        assert_eq!(first.start, Start::BareZygote);
        assert_eq!(call(&mut first, json!("sqlite3")).await.unwrap(), false);
        rig.node.warm(&all).await;
        let mut second = rig.lease(&all, &limits()).await;
        assert_eq!(second.start, Start::Zygote);
        assert_eq!(call(&mut second, json!("sqlite3")).await.unwrap(), true);
        let less = rig.unit(SEEN, &["sqlite3"]).await;
        let mut other = rig.lease(&less, &limits()).await;
        assert_eq!(other.start, Start::BareZygote);
        assert_eq!(call(&mut other, json!("decimal")).await.unwrap(), false);
        let figures = rig.node.figures().imports;
        assert_eq!((figures.hits, figures.bare, figures.grown), (1, 2, 1));
        let grown = figures.zygotes.iter().find(|zygote| zygote.parent.is_some()).unwrap();
        assert_eq!(
            (grown.modules.as_slice(), grown.children),
            (modules.map(String::from).as_slice(), 1)
        );
    });
}

#[test]
fn no_zygote_serves_another_tenant() {
    with_node(PLENTY, async |rig| {
        let modules = ["decimal", "sqlite3", "xml.etree.ElementTree"];
        let mine = rig.unit(SEEN, &modules).await;
        rig.node.warm(&mine).await;
        assert_eq!(rig.lease(&mine, &limits()).await.start, Start::Zygote);
        let tenant: Tenant = "other".parse().unwrap();
        let theirs = rig.unit_of(&tenant, SEEN, &modules).await;
        assert_ne!(mine.digest, theirs.digest);
        let mut lease = rig.lease(&theirs, &limits()).await;
        assert_eq!(lease.start, Start::BareZygote);
        assert_eq!(call(&mut lease, json!("sqlite3")).await.unwrap(), false);
        let roots = rig.node.figures().imports.zygotes;
        let roots: Vec<_> = roots.iter().filter(|zygote| zygote.parent.is_none()).collect();
        assert_eq!(
            roots.iter().map(|root| root.tenant.as_str()).collect::<Vec<_>>(),
            ["default", "other"]
        );
    });
}

#[test]
fn a_budget_for_no_zygote_still_starts_instances() {
    let budgets = Budgets { imports: ByteSize(1), ..PLENTY };
    with_node(budgets, async |rig| {
        let unit = rig.unit("def handler(event): return event", &["sqlite3"]).await;
        let limits = Arc::new(InstanceLimits::default());
        for event in 0..3 {
            let mut lease = rig.lease(&unit, &limits).await;
            assert_eq!(call(&mut lease, json!(event)).await.unwrap(), event);
        }
        until("nothing is kept", || rig.node.figures().imports.bytes == 0).await;
        let mut lease = rig.lease(&unit, &limits).await;
        assert_eq!(call(&mut lease, json!(7)).await.unwrap(), 7);
    });
}

#[test]
fn a_prewarmed_instance_is_loaded_and_replaced_when_it_is_taken() {
    with_node(PLENTY, async |rig| {
        let unit = rig.unit("import os\ndef handler(event): return os.getpid()", &[]).await;
        let limits = limits();
        rig.node.prewarm(&unit, &limits, &load(), 2);
        let prewarmed = || rig.node.figures().prewarmed;
        until("two are prewarmed", || prewarmed() == 2).await;
        for _ in 0..5 {
            let mut lease = rig.lease(&unit, &limits).await;
            assert_eq!((lease.start, lease.cold), (Start::Prewarmed, false));
            call(&mut lease, json!(null)).await.unwrap();
            drop(lease);
            until("two are prewarmed again", || prewarmed() == 2).await;
        }
        rig.node.forget(&unit, &limits);
        assert_eq!(prewarmed(), 0);
    });
}

/// As many tenants as there are slots for zygotes and more, each with an instance that is kept.
#[test]
fn a_tenant_more_than_there_are_slots_has_the_least_useful_idle_zygote_make_room() {
    with_node(Budgets { zygotes: Some(4), ..PLENTY }, async |rig| {
        let text = "def handler(event): return event";
        let busy: Tenant = "busy".parse().unwrap();
        let busy = rig.unit_of(&busy, text, &[]).await;
        let mut busy = rig.lease(&busy, &limits()).await;
        for turn in 0..2 {
            for number in 0..6 {
                let tenant: Tenant = format!("tenant-{number}").parse().unwrap();
                let unit = rig.unit_of(&tenant, text, &[]).await;
                let mut lease = rig.lease(&unit, &limits()).await;
                assert_eq!(call(&mut lease, json!(turn)).await.unwrap(), turn);
                lease.give_back();
            }
        }
        let roots = rig.node.figures().imports.zygotes;
        assert!(roots.iter().filter(|zygote| zygote.kept).count() <= 4, "{roots:?}");
        // What is in use was never the one to go.
        assert_eq!(call(&mut busy, json!("still")).await.unwrap(), "still");
    });
}

#[test]
fn a_tenant_is_refused_where_every_zygote_is_in_use() {
    with_node(Budgets { zygotes: Some(2), ..PLENTY }, async |rig| {
        let text = "def handler(event): return event";
        let mut leases = Vec::new();
        for number in 0..2 {
            let tenant: Tenant = format!("tenant-{number}").parse().unwrap();
            leases.push(rig.lease(&rig.unit_of(&tenant, text, &[]).await, &limits()).await);
        }
        let third = rig.unit_of(&"third".parse().unwrap(), text, &[]).await;
        let begun = std::time::Instant::now();
        let limits = limits();
        let refused = (0..4).map(|_| rig.node.lease_instance(&third, &limits));
        for refused in futures::future::join_all(refused).await {
            let error = refused.unwrap_err();
            assert_eq!(error.report().known_code(), snowmelt_types::Code::ZYGOTES_BUSY, "{error}");
        }
        // Each waits 10 s from its own beginning on, and not one after another.
        assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
        let waiting = rig.node.lease_instance(&third, &limits);
        let making_room = async {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            leases.pop().unwrap().give_back();
        };
        let (lease, ()) = tokio::join!(waiting, making_room);
        assert_eq!(call(&mut lease.unwrap(), json!(3)).await.unwrap(), 3);
    });
}
