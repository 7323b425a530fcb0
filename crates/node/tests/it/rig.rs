//! A node with a spawner of its own, and handlers for it.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use snowmelt_node::{Capacity, Error, InstanceLease, InstanceLimits, Node, Options, Unit};
use snowmelt_sandbox::Spawner;
use snowmelt_types::{ByteSize, SandboxId, Tenant};
use snowmelt_wire::{Call, Load, Mode, OnError, SourceCode};

/// No call of these tests takes longer unless it hangs.
pub const LIMIT: Duration = Duration::from_secs(120);

/// A node, and how to ask it for things.
#[derive(Clone)]
pub struct Rig {
    pub node: Node,
}

/// Budgets of a node.
#[derive(Clone, Copy)]
pub struct Budgets {
    pub handlers: ByteSize,
    pub imports: ByteSize,
    pub zygotes: Option<u32>,
    /// What all sandboxes have together.
    pub capacity: Capacity,
}

pub const PLENTY: Budgets = Budgets {
    handlers: ByteSize::mib(4096),
    imports: ByteSize::mib(1024),
    zygotes: None,
    // No test of something else waits for room.
    capacity: Capacity { memory: ByteSize::mib(1 << 20), instances: 100_000, cpu: None },
};

/// Runs a test with a node, and stops it.
pub fn with_node<F: Future<Output = ()>>(budgets: Budgets, test: impl FnOnce(Rig) -> F) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can make sandboxes with limits");
        return;
    }
    let base = tempfile::tempdir().unwrap();
    let parent_cgroup = format!("snowmelt/test-{}", SandboxId::new());
    let process = Spawner::launch(snowmelt_sandbox::Options {
        run_dir: base.path().join("run"),
        spawner_command: vec![built("examples/spawner").into()],
        parent_cgroup: parent_cgroup.clone(),
        total: Default::default(),
        server_user: None,
    });
    let process = process.unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = Options {
            state_dir: base.path().join("state"),
            shared_dir: None,
            worker_binary: built("snowmelt-query"),
            program: std::env::current_exe().unwrap(),
            images_dir: base.path().join("images"),
            python: None,
            trusted: None,
            handler_cache: budgets.handlers,
            import_cache: budgets.imports,
            zygotes: budgets.zygotes,
            capacity: budgets.capacity,
            overcommit: snowmelt_node::OVERCOMMIT,
            images: snowmelt_node::ImageSettings::default(),
            enforcement: snowmelt_node::EnforcementChoice::default(),
            control_group: parent_cgroup,
            networks_dir: base.path().join("networks"),
        };
        let node = Node::new(options, process.attach().unwrap()).unwrap();
        test(Rig { node: node.clone() }).await;
        node.stop().await.unwrap();
    });
}

/// A program that is built with the tests of the whole workspace.
fn built(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let program = here.ancestors().nth(2).unwrap().join(name);
    assert!(program.is_file(), "build {} with `make test`", program.display());
    program
}

impl Rig {
    /// A Python file whose zygote may import `imports` of the standard library.
    pub async fn unit(&self, text: &str, imports: &[&str]) -> Unit {
        self.unit_of(&Tenant::default(), text, imports).await
    }

    pub async fn unit_of(&self, tenant: &Tenant, text: &str, imports: &[&str]) -> Unit {
        let code = SourceCode::Source { file: "handler.py".into(), text: text.into() };
        let imports: Vec<String> = imports.iter().map(|import| (*import).to_owned()).collect();
        let silent = &snowmelt_package::Silent;
        self.node.preparation().prepare(tenant, &code, &[], &imports, silent).await.unwrap()
    }

    pub async fn lease(&self, unit: &Unit, limits: &Arc<InstanceLimits>) -> InstanceLease {
        self.node.lease_instance(unit, limits).await.unwrap()
    }
}

pub fn limits() -> Arc<InstanceLimits> {
    Arc::new(InstanceLimits { idle: Duration::from_secs(600), ..InstanceLimits::default() })
}

pub fn load() -> Load {
    Load {
        mode: Mode::Function,
        code: Unit::code_path(),
        function: "handler".into(),
        batch: None,
        on_error: OnError::Raise,
    }
}

/// Calls `handler`.
pub async fn call(
    lease: &mut InstanceLease,
    event: serde_json::Value,
) -> Result<serde_json::Value, Error> {
    call_within(lease, event, LIMIT).await
}

/// Calls what `load` names.
pub async fn call_loaded(
    load: &Load,
    lease: &mut InstanceLease,
    event: serde_json::Value,
) -> Result<serde_json::Value, Error> {
    let call = Call { invocation: "test".into(), event: raw(&event) };
    Ok(value(&lease.call(load, &call, LIMIT).await?))
}

pub async fn call_within(
    lease: &mut InstanceLease,
    event: serde_json::Value,
    limit: Duration,
) -> Result<serde_json::Value, Error> {
    let call = Call { invocation: "test".into(), event: raw(&event) };
    Ok(value(&lease.call(&load(), &call, limit).await?))
}

/// An event as it is sent.
pub fn raw(event: &serde_json::Value) -> Box<serde_json::value::RawValue> {
    serde_json::value::to_raw_value(event).unwrap()
}

fn value(answer: &snowmelt_api::Answer) -> serde_json::Value {
    serde_json::from_str(answer.json()).unwrap()
}

/// Waits for something that happens in the background.
pub async fn until(what: &str, mut true_now: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if true_now() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came about that {what}");
}
