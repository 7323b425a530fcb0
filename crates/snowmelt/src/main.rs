//! The command line: it parses the arguments, finds or starts a platform, and prints the results.
//! It composes the other crates and holds no logic of its own.
//!
//! Invariant: data goes to stdout, everything else to stderr, and the exit code says which kind of
//! failure occurred ([`snowmelt_types::ExitClass`]).

mod answer;
mod args;
mod backup;
mod burst;
mod cluster;
mod cluster_settings;
mod code_files;
mod config;
mod csv_options;
mod deploy;
mod doctor;
mod du;
mod env;
mod environment;
mod failure;
mod follow;
mod functions;
mod image;
mod input;
mod internal;
mod keys;
mod lab;
mod list;
mod logs;
mod manual;
mod net;
mod output;
mod pack;
mod parameters;
mod platform;
mod printer;
mod profile;
mod program;
mod progress;
mod prune;
mod python_code;
mod run;
mod secrets;
mod server;
mod shell_code;
mod signals;
mod simulate;
mod spans;
mod sql;
mod template;
mod text;
mod token;
mod top;
mod udf_files;
mod udfs;
mod usage;

use std::process::ExitCode;

use crate::args::{Cli, Command, ConfigCommand, ProgressMode, TokenCommand};
use crate::config::Config;
use crate::failure::Outcome;
use crate::printer::Printer;

fn main() -> ExitCode {
    let typed: Vec<_> = std::env::args_os().collect();
    if let Some(exit) = internal::run(&typed) {
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

fn command(cli: &Cli, config: &Config, printer: Printer) -> Outcome {
    match &cli.command {
        // `up` without a terminal starts another process, which logs and exports.
        Command::Up(args) if args.foreground => internal::log("info", spans::settings(config)?),
        Command::Node(_) => internal::log("info", spans::settings(config)?),
        Command::Up(_) | Command::Serve(_) => internal::log("info", None),
        _ => internal::log("off", None),
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
        Command::Du(args) => du::run(args, config, printer),
        Command::Prune(args) => prune::run(args, config, printer),
        Command::Status(args) => server::status(args, config, printer),
        Command::Top(args) => top::run(args, config, printer),
        Command::Node(args) => cluster::node(args, config, printer),
        Command::Token(TokenCommand::New(args)) => token::new(args, config, printer),
        Command::Hosts(args) => cluster::hosts(args, config, printer),
        Command::Tree(args) => cluster::tree(args, config, printer),
        Command::Burst(command) => burst::manage(command, config, printer),
        Command::Net(command) => net::run(command, config, printer),
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

fn exit_code(outcome: Outcome, printer: Printer) -> ExitCode {
    match outcome {
        Ok(exit) => ExitCode::from(exit),
        Err(failure) => {
            printer.error(&failure.report);
            ExitCode::from(failure.exit)
        }
    }
}
