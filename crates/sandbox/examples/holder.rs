//! A server that starts a sandbox and a zygote with a child, prints a line, and waits to be killed:
//! for the crash tests. Arguments: command of the spawner, run directory, control group, Python,
//! its prefix, and optionally a script for one more program.

use std::path::PathBuf;

use snowmelt_sandbox::{
    Bind, ForkSpec, Limits, Network, Options, ProcessSettings, Root, SandboxSpec, Spawner,
    SyscallPolicy, ZygoteSpec,
};
use snowmelt_types::SandboxId;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let script = (arguments.len() > 5).then(|| arguments.remove(5));
    let [spawner, run_dir, cgroup, python, prefix] = <[String; 5]>::try_from(arguments)
        .map_err(|_| "usage: holder SPAWNER RUN_DIR CGROUP PYTHON PREFIX [SCRIPT]")?;
    let options = Options {
        run_dir: run_dir.into(),
        spawner_command: spawner.split_whitespace().map(Into::into).collect(),
        parent_cgroup: cgroup,
        total: Default::default(),
        server_user: None,
    };
    let spawner = Spawner::launch(options)?.attach()?;
    let bind = Bind { source: PathBuf::from(&prefix), target: PathBuf::from(&prefix) };
    let outside_usr = !prefix.starts_with("/usr");
    let root = Root { binds: outside_usr.then_some(bind).into_iter().collect(), ..Root::default() };
    let program = SandboxSpec {
        id: SandboxId::new(),
        root: root.clone(),
        command: ["/bin/sleep", "600"].map(str::to_owned).to_vec(),
        env: Vec::new(),
        limits: Limits::default(),
        network: Network::None,
        policy: SyscallPolicy::Function,
        process: ProcessSettings::default(),
    };
    let _program = spawner.start(program.clone()).await?;
    let _another = match script {
        Some(script) => {
            let command = [&*python, "-I", "-c", &script].map(str::to_owned).to_vec();
            Some(spawner.start(SandboxSpec { id: SandboxId::new(), command, ..program }).await?)
        }
        None => None,
    };
    let zygote = ZygoteSpec {
        id: SandboxId::new(),
        root: root.clone(),
        python: python.into(),
        python_path: Vec::new(),
        imports: Vec::new(),
        env: Vec::new(),
        limits: Limits::default(),
    };
    let zygote = spawner.start_zygote(zygote).await?;
    let child = ForkSpec {
        network: None,
        id: SandboxId::new(),
        root,
        sys_path: Vec::new(),
        env: Vec::new(),
        limits: Limits::default(),
        // Waits for a connection that never arrives.
        entry: "socket:socket.accept".to_owned(),
    };
    let _child = spawner.fork(&zygote, child).await?;
    println!("holding");
    std::future::pending().await
}
