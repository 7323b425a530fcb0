//! The command line: it parses the arguments, finds or starts a platform, and prints the results.
//! It composes the other crates and holds no logic of its own. Rooms use those above them in this
//! table only:
//!
//! | room | owns |
//! |---|---|
//! | `env` | environment variables |
//! | `args` | the grammar of the command line |
//! | `terminal` | messages, progress, signals; text that is safe to show |
//! | `config` | the effective settings, and the origin of each |
//! | `input` | what the user names: files, stdin, events, secrets |
//! | `output` | results and lists in the format that the user chose |
//! | `platform` | the platform that a command uses |
//! | `server` | `up`, `down` and `status`, and processes of the own binary |
//! | `query` | `sql` |
//! | `functions` | `fn`, `udf`, `burst` and `run` |
//! | `image` | `image` |
//! | `cluster` | `node`, `hosts`, `tree`, `net`, `token`, `quota`, `login`, `context` and `lab` |
//! | `maintenance` | `backup`, `store`, `du`, `prune`, `doctor` and `top` |
//! | `simulate` | `simulate` |
//! | `manual` | completions and manual pages |
//!
//! Invariant: data goes to stdout, everything else to stderr, and the exit code says which kind of
//! failure occurred ([`snowmelt_types::ExitClass`]).

mod args;
mod cluster;
mod config;
mod env;
mod functions;
mod image;
mod input;
mod maintenance;
mod manual;
mod output;
mod platform;
mod query;
mod server;
mod simulate;
mod terminal;

use std::process::ExitCode;

use crate::args::{Cli, Command, ConfigCommand, ProgressMode, usage};
use crate::cluster::{contexts, hosts, joins, lab, login, networks, node, quotas, tokens, trees};
use crate::config::Config;
use crate::functions::{burst, run, udfs};
use crate::maintenance::{audit, backup, disk_use, doctor, pruning, store_copy, top};
use crate::query::sql;
use crate::server::{processes, spans};
use crate::terminal::{CommandOutcome, Printer, printer};

fn main() -> ExitCode {
    let typed: Vec<_> = std::env::args_os().collect();
    if let Some(exit) = processes::run(&typed) {
        return exit;
    }
    // Until the configuration is read, only the option and the variable choose the form of errors.
    let early = Printer::new(usage::error_form(&typed), ProgressMode::Auto);
    let cli = match usage::parse(typed) {
        Ok(cli) => cli,
        Err(usage::Stop::Shown(exit)) => return ExitCode::from(exit),
        Err(usage::Stop::Wrong(report)) => return exit_code(Err((*report).into()), early),
    };
    let config = match Config::load(&cli) {
        Ok(config) => config,
        Err(report) => return exit_code(Err(report.into()), early),
    };
    let printer = Printer::new(config.errors.value, config.progress.value);
    exit_code(command(&cli, &config, printer), printer)
}

fn command(cli: &Cli, config: &Config, printer: Printer) -> CommandOutcome {
    match &cli.command {
        // `up` without a terminal starts another process, which logs and exports.
        Command::Up(args) if args.foreground => processes::log("info", spans::settings(config)?),
        Command::Node(_) => processes::log("info", spans::settings(config)?),
        Command::Up(_) | Command::Serve(_) => processes::log("info", None),
        _ => processes::log("off", None),
    }
    match &cli.command {
        Command::Sql(args) => sql::run(args, config, printer),
        Command::Run(args) => run::run(args, config, printer),
        Command::Function(command) => functions::run(command, config, printer),
        Command::Udf(command) => udfs::run(command, config, printer),
        Command::Image(args) => image::run(&args.command, config, printer),
        Command::Up(args) => server::up(args, config, printer),
        Command::Down(args) => server::down(args, config, printer),
        Command::Backup(args) => backup::run(args, config, printer),
        Command::Store(command) => store_copy::run(command, config, printer),
        Command::Du(args) => disk_use::run(args, config, printer),
        Command::Prune(args) => pruning::run(args, config, printer),
        Command::Status(args) => server::status(args, config, printer),
        Command::Top(args) => top::run(args, config, printer),
        Command::Node(args) => node::run(args, config, printer),
        Command::Token(command) => tokens::run(command, config, printer),
        Command::Audit(command) => audit::run(command, config, printer),
        Command::Quota(command) => quotas::run(command, config, printer),
        Command::Login(args) => login::login(args, &cli.global, config, printer),
        Command::Logout(args) => login::logout(args, &cli.global, config, printer),
        Command::Context(command) => contexts::run(command, &cli.global, config, printer),
        Command::Hosts(args) => hosts::run(args, config, printer),
        Command::Cluster(command) => joins::run(command, config, printer),
        Command::Tree(args) => trees::run(args, config, printer),
        Command::Burst(command) => burst::manage(command, config, printer),
        Command::Net(command) => networks::run(command, config, printer),
        Command::Lab(command) => lab::run(command, config, printer),
        Command::Simulate(args) => simulate::run(args, config, printer),
        Command::Doctor(args) => doctor::run(args, config, printer),
        Command::Config(ConfigCommand::Show { origin }) => {
            printer::print(&config::show(config, *origin))?;
            Ok(0)
        }
        Command::Completions { shell } => manual::completions(*shell),
        Command::Man { folder } => manual::man(folder),
        Command::Serve(_) => server::private(config, printer),
    }
}

fn exit_code(outcome: CommandOutcome, printer: Printer) -> ExitCode {
    match outcome {
        Ok(exit) => ExitCode::from(exit),
        Err(failure) => {
            printer.error(&failure.report);
            ExitCode::from(failure.exit)
        }
    }
}
