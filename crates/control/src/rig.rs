//! A deployed function on a node with a spawner of its own, for tests that run it.

use std::path::PathBuf;
use std::time::Duration;

use snowmelt_api::{CallMode, FunctionOptions, FunctionSpec, Runtime};
use snowmelt_node::{EnforcementChoice, ImageSettings, Node, Options};
use snowmelt_sandbox::Spawner;
use snowmelt_types::{ByteSize, SandboxId, Tenant};
use snowmelt_wire::SourceCode;

use crate::analysis_cache::AnalysisCache;
use crate::functions::Functions;
use crate::logs::Logs;
use crate::records::{FunctionId, Records};

/// Deploys a Python function and runs a test with it.
pub(crate) fn with_functions<F: Future<Output = ()>>(
    text: &str,
    test: impl FnOnce(Functions, FunctionId) -> F,
) {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can make sandboxes with limits");
    }
    let base = tempfile::tempdir().unwrap();
    let control_group = format!("snowmelt/test-{}", SandboxId::new());
    let process = Spawner::launch(snowmelt_sandbox::Options {
        run_dir: base.path().join("run"),
        spawner_command: vec![spawner_program().into()],
        parent_cgroup: control_group.clone(),
        total: Default::default(),
    });
    let process = process.unwrap();
    let state_dir = base.path().join("state");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = Options {
            state_dir: state_dir.clone(),
            worker_binary: std::env::current_exe().unwrap(),
            program: std::env::current_exe().unwrap(),
            images_dir: base.path().join("images"),
            python: None,
            handler_cache: ByteSize::mib(1024),
            import_cache: ByteSize::mib(1024),
            zygotes: None,
            capacity: snowmelt_node::capacity(&snowmelt_sandbox::Total::default()),
            overcommit: snowmelt_node::OVERCOMMIT,
            images: ImageSettings::default(),
            hold: EnforcementChoice::default(),
            control_group,
            networks_dir: base.path().join("networks"),
        };
        let node = Node::new(options, process.attach().unwrap()).unwrap();
        let analysis = AnalysisCache::new(state_dir.join("known"));
        let records = Records::open(state_dir.join("state.redb"), true).await.unwrap();
        let logs = Logs::new(state_dir.join("logs"));
        let functions = Functions::new(node.clone(), analysis, records, logs);
        let deployed = functions.deploy(Tenant::default(), spec(text)).await.unwrap();
        test(functions, FunctionId { tenant: deployed.tenant, name: deployed.name }).await;
        node.stop().await.unwrap();
    });
}

/// Built with the tests of the whole workspace.
fn spawner_program() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let program = here.ancestors().nth(2).unwrap().join("examples/spawner");
    assert!(program.is_file(), "build {} with `cargo build --examples`", program.display());
    program
}

fn spec(text: &str) -> FunctionSpec {
    FunctionSpec {
        name: "f".parse().unwrap(),
        code: SourceCode::Source { file: "f.py".into(), text: text.into() },
        handler: "handler".into(),
        runtime: Runtime::Python,
        command: Vec::new(),
        root: None,
        image: None,
        packed: None,
        mode: CallMode::Event,
        packages: Vec::new(),
        options: FunctionOptions::default(),
        tenant: None,
        expected: 1,
        ephemeral: false,
    }
}

/// Waits for something that happens in the background.
pub(crate) async fn until(what: &str, true_now: impl AsyncFn() -> bool) {
    let waiting = async {
        while !true_now().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    assert!(waited.is_ok(), "not within 60 s: {what}");
}
