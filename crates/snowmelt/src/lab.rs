//! `snowmelt lab`: the hosts of a lab run this binary, and are ready once they joined control.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use snowmelt_lab::{Fault, Host, Lab, Link, Plan, Roots, State};
use snowmelt_types::{ByteSize, Code, ErrorReport, HostName, Report};

use crate::args::{LabAddArgs, LabCommand, LabExecArgs, LabLsArgs, LabRunArgs, LabUpArgs};
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::platform::{self, Platform};
use crate::printer::Printer;
use crate::{env, list, text};

/// Time limit for all hosts to join control: many hosts keep the machine busy.
const JOIN_TIMEOUT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs one of the commands.
///
/// # Errors
/// `SM-0801` for a failed step, `SM-0802` for a name that does not exist or is taken.
pub fn run(command: &LabCommand, config: &Config, printer: Printer) -> Outcome {
    let roots = Roots { run: config.run.value.clone(), state: config.state.value.clone() };
    let open = |name: &HostName| Lab::open(&roots, name).map_err(|error| error.report());
    let done = match command {
        LabCommand::Up(args) => return up(args, &roots, config, printer),
        LabCommand::Add(args) => return add(args, open(&args.lab.name)?, config, printer),
        LabCommand::Ls(args) => return ls(args, &roots),
        LabCommand::Run(args) => return execute_as_client(args, &open(&args.lab.name)?),
        LabCommand::Exec(args) => return execute_on(args, &open(&args.host.lab.name)?),
        LabCommand::Fail(args) => {
            let lab = open(&args.host.lab.name)?;
            lab.host_named(&args.host.host).and_then(|host| lab.fail(&host, Fault::from(args.how)))
        }
        LabCommand::Heal(args) => {
            let lab = open(&args.lab.name)?;
            let program = program()?;
            lab.host_named(&args.host).and_then(|host| lab.heal(&host, &program))
        }
        LabCommand::Down(args) => Lab::down(&roots, &args.name),
    };
    done.map(|()| 0).map_err(failed)
}

fn failed(error: snowmelt_lab::Error) -> Failure {
    error.report().into()
}

fn up(args: &LabUpArgs, roots: &Roots, config: &Config, printer: Printer) -> Outcome {
    let begun = Instant::now();
    let link = Link { rate: args.link, delay: args.delay };
    let memory = args.memory.unwrap_or_else(|| share(args.hosts));
    let plan = Plan { hosts: args.hosts, link, memory, control_only: args.control_only };
    let name = &args.lab.name;
    let lab = Lab::up(roots, name, plan, &program()?).map_err(failed)?;
    let created = begun.elapsed();
    printer.note(&format!(
        "{} created in {}",
        counted(args.hosts),
        text::setting(rounded(created))
    ));
    if let Err(failure) = join(&lab, config, printer) {
        Lab::down(roots, name).map_err(failed)?;
        return Err(failure);
    }
    printer.note(&joined(&lab, begun));
    Ok(0)
}

fn add(args: &LabAddArgs, mut lab: Lab, config: &Config, printer: Printer) -> Outcome {
    let begun = Instant::now();
    lab.add(args.hosts, &program()?).map_err(failed)?;
    join(&lab, config, printer)?;
    printer.note(&joined(&lab, begun));
    Ok(0)
}

fn joined(lab: &Lab, begun: Instant) -> String {
    let (hosts, wall) = (lab.plan().hosts, text::setting(rounded(begun.elapsed())));
    let socket = lab.host_named("host-1").map(|host| host.socket.display().to_string());
    format!("{} joined after {wall}; control is at {}", counted(hosts), socket.unwrap_or_default())
}

/// Waits until all hosts have joined control, or fails if one of them exits.
fn join(lab: &Lab, config: &Config, printer: Printer) -> Result<(), Failure> {
    let control = lab.host_named("host-1").map_err(failed)?;
    let platform = Platform::server(Some(&control.socket), config);
    platform::with(platform, printer, async |client, _| {
        let deadline = Instant::now() + JOIN_TIMEOUT;
        loop {
            lab.check_running().map_err(|error| error.report())?;
            let joined = client.hosts().await.map_or(0, |hosts| hosts.len());
            if joined >= lab.plan().hosts as usize {
                return Ok(());
            }
            if Instant::now() > deadline {
                let message = format!("only {joined} of {} joined", counted(lab.plan().hosts));
                return Err(ErrorReport::new(Code::LAB_STEP, message)
                    .hint("use fewer hosts: this machine is too slow for so many"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    })
}

fn ls(args: &LabLsArgs, roots: &Roots) -> Outcome {
    let labs = Lab::all(roots).map_err(failed)?;
    let mut rows = Vec::new();
    let mut values = Vec::new();
    for lab in &labs {
        let states = lab.states().map_err(failed)?;
        rows.extend(states.iter().map(|state| row(lab, state)));
        values.push(serde_json::json!({ "name": lab.name(), "plan": lab.plan(), "hosts": states }));
    }
    let headings = ["lab", "host", "address", ">memory", "link", "state"];
    list::print(args.output, &headings, &rows, &values)?;
    Ok(0)
}

fn row(lab: &Lab, state: &State) -> Vec<String> {
    let link = lab.plan().link;
    let rate = link.rate.map_or_else(|| "unlimited".to_owned(), |rate| rate.to_string());
    let delay = link.delay.map(|delay| format!(", {}", text::setting(delay)));
    let mut states: Vec<&str> = vec![if state.runs { "running" } else { "stopped" }];
    states.extend(state.faults.iter().map(|fault| match fault {
        Fault::Kill => "killed",
        Fault::Unplug => "unplugged",
        Fault::Slow => "slow",
        Fault::Partition => "partitioned",
    }));
    vec![
        lab.name().to_string(),
        state.host.name.clone(),
        state.host.address.to_string(),
        state.host.memory.to_string(),
        rate + &delay.unwrap_or_default(),
        states.join(", "),
    ]
}

fn execute_as_client(args: &LabRunArgs, lab: &Lab) -> Outcome {
    let control = lab.host_named("host-1").map_err(failed)?;
    lab.enter(&control).map_err(failed)?;
    let mut command = command_of(&args.command);
    command.env(env::SOCKET, &control.socket);
    execute(command)
}

fn execute_on(args: &LabExecArgs, lab: &Lab) -> Outcome {
    let host = lab.host_named(&args.host.host).map_err(failed)?;
    lab.enter(&host).map_err(failed)?;
    execute(command_of(&args.command))
}

fn command_of(words: &[std::ffi::OsString]) -> Command {
    // The grammar requires at least one word.
    let mut words = words.iter();
    let mut command = Command::new(words.next().map_or("".as_ref(), |word| word.as_os_str()));
    command.args(words);
    command
}

/// Replaces this process by the command, in this thread's network namespace.
fn execute(mut command: Command) -> Outcome {
    let error = command.exec();
    let program = command.get_program().to_string_lossy().into_owned();
    let message = format!("`{program}` cannot be executed: {}", text::reason(&error));
    Err(ErrorReport::new(Code::OPTION, message).into())
}

/// This binary as a host: the settings of the user's own platform do not apply to it.
fn program() -> Result<impl Fn(&Host) -> Command, ErrorReport> {
    let binary = std::env::current_exe().map_err(|error| {
        ErrorReport::new(Code::INTERNAL, format!("the path of this binary is unknown: {error}"))
    })?;
    Ok(move |host: &Host| {
        let mut command = Command::new(&binary);
        match host.is_control() {
            true => command.args(["up", "--foreground", "--listen"]).arg(host.address.to_string()),
            false => command
                .args(["node", "--control", &host.control.to_string()])
                .args(["--address", &host.address.to_string()]),
        };
        command
            .args(["--name", &host.name, "--memory", &host.memory.bytes().to_string()])
            .arg("--token-file")
            .arg(&host.token_file)
            .env(env::STATE, &host.state)
            .env(env::RUN, &host.run)
            .env(env::SOCKET, &host.socket)
            .env(env::HANDLER_CACHE, (host.memory.bytes() / 4).to_string())
            .env(env::IMPORT_CACHE, (host.memory.bytes() / 4).to_string());
        for name in [env::LISTEN, env::TOKEN_FILE, env::HOST, env::HOST_MEMORY] {
            command.env_remove(name);
        }
        command
    })
}

/// The memory of each host: an equal share of 90 % of the available memory.
fn share(hosts: u32) -> ByteSize {
    let free = rustix::system::sysinfo();
    let available = memory_available().unwrap_or(free.freeram.saturating_mul(free.mem_unit.into()));
    ByteSize(available / 10 * 9 / u64::from(hosts.max(1)))
}

fn memory_available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib << 10)
}

fn counted(hosts: u32) -> String {
    match hosts {
        1 => "1 host".to_owned(),
        many => format!("{many} hosts"),
    }
}

fn rounded(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}
