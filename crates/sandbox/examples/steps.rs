//! A server that executes commands from its standard input, one word per line, and answers each
//! with `ok` or `error CODE text`: for tests that end the spawner in the middle of a step. It first
//! prints the spawner's process id. Arguments: spawner, run directory, control group, Python, its
//! prefix, a mark that every process has in its arguments or its environment.

use std::io::BufRead;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use snowmelt_sandbox::{
    Bind, ForkSpec, Limits, Network, Options, ProcessSettings, Root, Sandbox, SandboxSpec, Spawner,
    SyscallPolicy, Zygote, ZygoteSpec,
};
use snowmelt_types::{End, Report, SandboxId};

type Failure = Box<dyn std::error::Error>;

struct Steps {
    spawner: Spawner,
    python: String,
    root: Root,
    env: Vec<(String, String)>,
    programs: Vec<Sandbox>,
    zygotes: Vec<Zygote>,
    children: Vec<Sandbox>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [spawner, run_dir, cgroup, python, prefix, mark] = <[String; 6]>::try_from(arguments)
        .map_err(|_| "usage: steps SPAWNER RUN_DIR CGROUP PYTHON PREFIX MARK")?;
    let process = Spawner::launch(Options {
        run_dir: run_dir.into(),
        spawner_command: vec![spawner.into(), mark.clone().into()],
        parent_cgroup: cgroup,
        total: Default::default(),
        server_user: None,
    })?;
    let process = process.with_lanes(3);
    println!("{}", process.pid());
    let bind = Bind { source: PathBuf::from(&prefix), target: PathBuf::from(&prefix) };
    let outside_usr = !prefix.starts_with("/usr");
    let binds = outside_usr.then_some(bind).into_iter().collect();
    let mut steps = Steps {
        spawner: process.attach()?,
        python,
        root: Root { binds, ..Root::default() },
        env: vec![("MARK".to_owned(), mark)],
        programs: Vec::new(),
        zygotes: Vec::new(),
        children: Vec::new(),
    };
    let (send, mut words) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let lines = std::io::stdin().lock().lines().map_while(Result::ok);
        lines.into_iter().try_for_each(|line| send.send(line))
    });
    while let Some(word) = words.recv().await {
        match steps.take(&word).await {
            Ok(()) => println!("ok"),
            Err(error) => {
                let report = error.report();
                println!("error {} {error}", report.code);
            }
        }
    }
    Ok(())
}

impl Steps {
    async fn take(&mut self, word: &str) -> snowmelt_sandbox::Result<()> {
        match word {
            "start" => {
                let program = self.program(&["/bin/sleep", "600"]);
                self.programs.push(self.spawner.start(program).await?);
            }
            "wrong" => {
                self.spawner.start(self.program(&["/no/such/program"])).await?;
            }
            "zygote" => self.zygotes.push(self.spawner.start_zygote(self.zygote()).await?),
            "fork" => {
                if let Some(zygote) = self.zygotes.last() {
                    self.children.push(self.spawner.fork(zygote, self.child()).await?);
                }
            }
            // Enough starts that every lane is made first.
            "many" => {
                let programs = (0..9).map(|_| self.program(&["/bin/sleep", "600"]));
                for started in self.spawner.start_many(programs.collect()).await {
                    self.programs.push(started?);
                }
            }
            "end" => end(self.programs.pop()).await,
            "leave" => end(self.children.pop()).await,
            "retire" => {
                if let Some(zygote) = self.zygotes.pop() {
                    zygote.kill(End::Killed);
                    zygote.wait().await;
                }
            }
            other => eprintln!("steps: unknown step {other}"),
        }
        Ok(())
    }

    fn program(&self, command: &[&str]) -> SandboxSpec {
        SandboxSpec {
            id: SandboxId::new(),
            root: self.root.clone(),
            command: command.iter().map(|part| (*part).to_owned()).collect(),
            env: self.env.clone(),
            limits: Limits::default(),
            network: Network::None,
            policy: SyscallPolicy::Function,
            process: ProcessSettings::default(),
        }
    }

    fn zygote(&self) -> ZygoteSpec {
        ZygoteSpec {
            id: SandboxId::new(),
            root: self.root.clone(),
            python: self.python.clone().into(),
            python_path: Vec::new(),
            imports: Vec::new(),
            env: self.env.clone(),
            limits: Limits::default(),
        }
    }

    fn child(&self) -> ForkSpec {
        // No two alike, so that each is forked: a preforked child serves only the limits of the
        // last.
        static FORKS: AtomicU64 = AtomicU64::new(0);
        let open_files = 1024 + FORKS.fetch_add(1, Ordering::Relaxed);
        ForkSpec {
            network: None,
            id: SandboxId::new(),
            root: self.root.clone(),
            sys_path: Vec::new(),
            env: self.env.clone(),
            limits: Limits { open_files, ..Limits::default() },
            // Waits for a connection that never arrives.
            entry: "socket:socket.accept".to_owned(),
        }
    }
}

async fn end(sandbox: Option<Sandbox>) {
    if let Some(sandbox) = sandbox {
        sandbox.kill(End::Killed);
        sandbox.wait().await;
    }
}
