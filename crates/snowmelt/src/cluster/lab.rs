//! `snowmelt lab`: the hosts of a lab run this binary, and are ready once they joined control.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use snowmelt_lab::{
    BitRate, Fault, Lab, LabHost, LabLink, LabPlan, Machine, PoolPlan, Roots, Service, ServiceKind,
    ServicePlan, State,
};
use snowmelt_types::{ByteSize, Code, ErrorReport, HostName, Report};

use super::joins;
use crate::args::{
    LabAddArgs, LabCommand, LabExecArgs, LabLsArgs, LabPoolCommand, LabRunArgs, LabUpArgs,
};
use crate::config::Config;
use crate::env;
use crate::output::list;
use crate::platform::{self, CommandPlatform};
use crate::terminal::{CommandFailure, CommandOutcome, Printer, printer, text};

/// Time limit for all hosts to join control: many hosts keep the machine busy.
const JOIN_TIMEOUT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs one of the commands.
///
/// # Errors
/// `SM-0801` for a failed step, `SM-0802` for a name that does not exist or is taken.
pub fn run(command: &LabCommand, config: &Config, printer: Printer) -> CommandOutcome {
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
            lab.member_named(&args.host.host)
                .and_then(|machine| lab.fail(&machine, Fault::from(args.how)))
        }
        LabCommand::Heal(args) => {
            let lab = open(&args.lab.name)?;
            let program = program()?;
            lab.member_named(&args.host).and_then(|member| lab.heal(&member, &program))
        }
        LabCommand::Restart(args) => {
            let lab = open(&args.lab.name)?;
            let program = program()?;
            lab.member_named(&args.host).and_then(|member| lab.restart(&member, &program))
        }
        LabCommand::Pool(command) => return pool(command, &open, config, printer),
        LabCommand::Down(args) => Lab::down(&roots, &args.name),
    };
    done.map(|()| 0).map_err(failed)
}

fn failed(error: snowmelt_lab::Error) -> CommandFailure {
    error.report().into()
}

fn up(args: &LabUpArgs, roots: &Roots, config: &Config, printer: Printer) -> CommandOutcome {
    let begun = Instant::now();
    let name = &args.lab.name;
    let lab = Lab::up(roots, name, plan(args, roots)?, &program()?).map_err(failed)?;
    let created = begun.elapsed();
    printer.note(&format!(
        "{} created in {}",
        counted(lab.plan().hosts),
        text::setting(rounded(created))
    ));
    if let Err(failure) = join(&lab, config, printer) {
        Lab::down(roots, name).map_err(failed)?;
        return Err(failure);
    }
    printer.note(&joined(&lab, begun));
    Ok(0)
}

fn plan(args: &LabUpArgs, roots: &Roots) -> Result<LabPlan, ErrorReport> {
    let link = LabLink { rate: args.link, delay: args.delay };
    let service = |wanted: bool, rate: Option<BitRate>, program: &Path| {
        let link = LabLink { rate: rate.or(link.rate), ..link };
        wanted.then(|| ServicePlan { program: program.to_owned(), link })
    };
    let pool = args.started.filter(|started| *started < args.hosts);
    let pool = pool.map(|started| pool_plan(started, &args.lab.name, roots)).transpose()?;
    Ok(LabPlan {
        hosts: args.hosts,
        pool,
        link,
        memory: args.memory.unwrap_or_else(|| share(args.hosts)),
        control_only: args.control_only,
        disk: args.disk,
        registry: service(args.registry, args.registry_link, &args.registry_program),
        store: service(args.store, args.store_link, &args.store_program),
    })
}

/// The plan of a pool, whose program runs this binary for the lab: control has settings of its own.
fn pool_plan(started: u32, lab: &HostName, roots: &Roots) -> Result<PoolPlan, ErrorReport> {
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', "'\\''"));
    let state = quoted(&roots.state);
    let run = quoted(&roots.run);
    let binary = quoted(&binary()?);
    let variables = format!("{}={state} {}={run}", env::STATE, env::RUN);
    let command = format!("{variables} exec {binary} lab pool \"$@\" --name {lab}");
    let program = format!("#!/bin/sh\n{command}\n");
    Ok(PoolPlan { started, program })
}

fn pool(
    command: &LabPoolCommand,
    open: &impl Fn(&HostName) -> Result<Lab, ErrorReport>,
    config: &Config,
    printer: Printer,
) -> CommandOutcome {
    let done = match command {
        LabPoolCommand::List(args) => open(&args.name)?.running().map(|hosts| {
            let names: Vec<_> = hosts.iter().map(LabHost::name).collect();
            printer::print(&(names.join("\n") + "\n"))
        }),
        LabPoolCommand::Start { count, lab } => {
            let lab = open(&lab.name)?;
            lab.start(*count, &program()?).map_err(failed)?;
            let platform = CommandPlatform::server(Some(&lab.control().socket), config)?;
            platform::with(platform, printer, async |client, _| joins::of_lab(&lab, client).await)?;
            return Ok(0);
        }
        LabPoolCommand::Stop { host, lab } => {
            let lab = open(&lab.name)?;
            lab.other_host(host).and_then(|host| lab.stop(&host)).map(Ok)
        }
    };
    done.map_err(failed)??;
    Ok(0)
}

fn add(args: &LabAddArgs, mut lab: Lab, config: &Config, printer: Printer) -> CommandOutcome {
    let begun = Instant::now();
    lab.add(args.hosts, &program()?).map_err(failed)?;
    join(&lab, config, printer)?;
    printer.note(&joined(&lab, begun));
    Ok(0)
}

fn joined(lab: &Lab, begun: Instant) -> String {
    let plan = lab.plan();
    let wall = text::setting(rounded(begun.elapsed()));
    let hosts = plan.pool.as_ref().map_or(plan.hosts, |pool| pool.started);
    let services = lab.services().into_iter();
    let services =
        services.map(|service| format!(", the {} at {}", service.machine.name, service.address));
    let socket = lab.control().socket;
    let hosts = counted(hosts);
    format!("{hosts} joined after {wall}; control is at {}", socket.display())
        + &services.collect::<String>()
}

/// Waits until all hosts have joined control, or fails if one of them exits.
fn join(lab: &Lab, config: &Config, printer: Printer) -> Result<(), CommandFailure> {
    lab.wait_for_services().map_err(failed)?;
    let platform = CommandPlatform::server(Some(&lab.control().socket), config)?;
    platform::with(platform, printer, async |client, _| {
        let deadline = Instant::now() + JOIN_TIMEOUT;
        loop {
            lab.check_running().map_err(|error| error.report())?;
            let joined = client.hosts().await.map_or(0, |hosts| hosts.len());
            if joined > 0 {
                joins::of_lab(lab, client).await?;
            }
            let started = 1 + lab.running().map_err(|error| error.report())?.len();
            if joined >= started {
                return Ok(());
            }
            if Instant::now() > deadline {
                let message = format!("only {joined} of {started} hosts joined");
                return Err(ErrorReport::new(Code::LAB_STEP, message)
                    .hint("use fewer hosts: this machine is too slow for so many"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    })
}

fn ls(args: &LabLsArgs, roots: &Roots) -> CommandOutcome {
    let labs = Lab::all(roots).map_err(failed)?;
    let mut rows = Vec::new();
    let mut values = Vec::new();
    for lab in &labs {
        let (hosts, services) =
            (lab.states().map_err(failed)?, lab.service_states().map_err(failed)?);
        rows.extend(hosts.iter().map(|state| host_row(lab, state)));
        rows.extend(services.iter().map(|state| service_row(lab, state)));
        let name = lab.name();
        let plan = lab.plan();
        values.push(serde_json::json!({
            "name": name, "plan": plan, "hosts": hosts, "services": services,
        }));
    }
    let headings = ["lab", "host", "address", ">memory", "link", "state"];
    list::print(args.output, &headings, &rows, &values)?;
    Ok(0)
}

fn host_row(lab: &Lab, state: &State<LabHost>) -> Vec<String> {
    let address = state.of.address.to_string();
    let memory = state.of.memory.to_string();
    row(lab, &state.of.machine, state.runs, &state.faults, address, memory)
}

fn service_row(lab: &Lab, state: &State<Service>) -> Vec<String> {
    let address = state.of.address.to_string();
    row(lab, &state.of.machine, state.runs, &state.faults, address, String::new())
}

fn row(
    lab: &Lab,
    machine: &Machine,
    runs: bool,
    faults: &[Fault],
    address: String,
    memory: String,
) -> Vec<String> {
    let link = machine.link();
    let rate = link.rate.map_or_else(|| "unlimited".to_owned(), |rate| rate.to_string());
    let delay = link.delay.map(|delay| format!(", {}", text::setting(delay)));
    let mut states: Vec<&str> = vec![if runs { "running" } else { "stopped" }];
    states.extend(faults.iter().map(|fault| match fault {
        Fault::Kill => "killed",
        Fault::Freeze => "frozen",
        Fault::Unplug => "unplugged",
        Fault::Slow => "slow",
        Fault::Partition => "partitioned",
        Fault::Corrupt => "corrupt",
        Fault::DiskFull => "disk full",
        Fault::ClockAhead => "clock ahead",
        Fault::ClockBehind => "clock behind",
    }));
    let link = rate + &delay.unwrap_or_default();
    vec![lab.name().to_string(), machine.name.clone(), address, memory, link, states.join(", ")]
}

fn execute_as_client(args: &LabRunArgs, lab: &Lab) -> CommandOutcome {
    let control = lab.control();
    lab.enter(&control.machine).map_err(failed)?;
    let mut command = command_of(&args.command);
    command.env(env::SOCKET, &control.socket);
    set_services(&mut command, lab);
    execute(command)
}

fn execute_on(args: &LabExecArgs, lab: &Lab) -> CommandOutcome {
    let member = lab.member_named(&args.host.host).map_err(failed)?;
    lab.enter(member.machine()).map_err(failed)?;
    let mut command = command_of(&args.command);
    // A server of the machine would work in its own network, and not in that of the lab.
    let nowhere = lab.control().socket.with_file_name("no-server.sock");
    command.env(env::SOCKET, nowhere);
    set_services(&mut command, lab);
    execute(command)
}

/// The variables with which a command finds the services of the lab.
fn set_services(command: &mut Command, lab: &Lab) {
    for service in lab.services() {
        if service.kind == ServiceKind::Store {
            // Those of another store would be mixed with its own.
            for (name, _) in env::aws() {
                command.env_remove(name);
            }
        }
        command.envs(service.variables);
    }
}

fn command_of(words: &[std::ffi::OsString]) -> Command {
    // The grammar requires at least one word.
    let mut words = words.iter();
    let mut command = Command::new(words.next().map_or("".as_ref(), |word| word.as_os_str()));
    command.args(words);
    command
}

/// Replaces this process by the command, in this thread's network namespace.
fn execute(mut command: Command) -> CommandOutcome {
    let error = command.exec();
    let program = command.get_program().to_string_lossy().into_owned();
    let message = format!("`{program}` cannot be executed: {}", text::reason(&error));
    Err(ErrorReport::new(Code::OPTION, message).into())
}

fn binary() -> Result<PathBuf, ErrorReport> {
    std::env::current_exe().map_err(|error| {
        ErrorReport::new(Code::INTERNAL, format!("the path of this binary is unknown: {error}"))
    })
}

/// Returns the program of hosts, which is this binary. The settings of the user's own platform do
/// not apply to it.
fn program() -> Result<impl Fn(&LabHost) -> Command, ErrorReport> {
    let binary = binary()?;
    Ok(move |host: &LabHost| {
        let mut command = Command::new(&binary);
        match host.is_control() {
            true => command.args(["up", "--foreground", "--listen"]).arg(host.address.to_string()),
            false => command
                .args(["node", "--control", &host.control.to_string()])
                .args(["--address", &host.address.to_string()])
                .arg(format!("--join=@{}", host.join_file.display())),
        };
        command
            .args(["--name", host.name(), "--memory", &host.memory.bytes().to_string()])
            .env(env::STATE, &host.state)
            .env(env::RUN, &host.run)
            .env(env::SOCKET, &host.socket)
            .env(env::HANDLER_CACHE, (host.memory.bytes() / 4).to_string())
            .env(env::IMPORT_CACHE, (host.memory.bytes() / 4).to_string());
        for name in [
            env::LISTEN,
            env::TOKEN_FILE,
            env::HOST,
            env::HOST_MEMORY,
            env::PROVIDER,
            env::JOIN,
            env::PLAINTEXT,
        ] {
            command.env_remove(name);
        }
        if let Some(provider) = &host.provider {
            command
                .env(env::PROVIDER, &provider.program)
                .env(env::MIN_HOSTS, provider.least.to_string())
                .env(env::MAX_HOSTS, provider.most.to_string());
        }
        if let Some(file) = &host.ca_file {
            command.env(env::CA_FILE, file);
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
