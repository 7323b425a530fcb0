//! Runs the binary in a temporary folder with a clean environment.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A test environment without the machine's own configuration.
pub struct TestEnv {
    folder: tempfile::TempDir,
}

/// The output of a command.
#[derive(Debug)]
pub struct RunOutput {
    pub exit: Option<i32>,
    pub out: String,
    pub err: String,
}

impl TestEnv {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The binary in this environment, with an empty stdin and without the user's settings.
    /// Proxies, certificates and package indexes are the machine's.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_snowmelt"));
        for (name, _) in std::env::vars_os() {
            if is_setting(&name.to_string_lossy()) {
                command.env_remove(name);
            }
        }
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .env("SNOWMELT_STATE", self.path("state"))
            .env("SNOWMELT_RUN", self.path("run"))
            .env("SNOWMELT_SECRETS", self.path("secrets"))
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> RunOutput {
        RunOutput::of(self.command(arguments).output().unwrap())
    }

    pub fn run_with(&self, variables: &[(&str, &str)], arguments: &[&str]) -> RunOutput {
        let mut command = self.command(arguments);
        command.envs(variables.iter().copied());
        RunOutput::of(command.output().unwrap())
    }

    pub fn run_fed(&self, input: impl AsRef<[u8]>, arguments: &[&str]) -> RunOutput {
        let file = self.path("stdin");
        std::fs::write(&file, input).unwrap();
        let stdin = std::fs::File::open(file).unwrap();
        RunOutput::of(self.command(arguments).stdin(stdin).output().unwrap())
    }

    /// Runs it with stdin, stdout and stderr on a terminal; returns the output with visible
    /// escapes.
    pub fn run_on_terminal(&self, variables: &[(&str, &str)], arguments: &[&str]) -> String {
        // Python creates the terminal: the `pty` feature of rustix, for this test alone, would make
        // cargo build every dependent crate a second time.
        const ON_A_TERMINAL: &str = "import pty, sys; pty.spawn(sys.argv[1:])";
        let program = self.command(&[]);
        let mut command = Command::new("python3");
        command.args(["-c", ON_A_TERMINAL]).arg(program.get_program()).args(arguments);
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(folder) = program.get_current_dir() {
            command.current_dir(folder);
        }
        command.envs(variables.iter().copied()).stdin(Stdio::null());
        let shown = command.output().unwrap().stdout;
        String::from_utf8(shown).unwrap().replace("\r\n", "\n").replace('\x1b', "\\u{1b}")
    }

    /// Text with the path of the temporary folder replaced.
    pub fn anonymous(&self, text: &str) -> String {
        text.replace(&*self.folder.path().to_string_lossy(), "[folder]")
    }

    pub fn names(&self) -> Vec<String> {
        names(self.folder.path())
    }
}

/// True for variables that change a command's output, except the paths of tools.
fn is_setting(name: &str) -> bool {
    let tool = ["SNOWMELT_UV", "SNOWMELT_PYTHON"].contains(&name);
    let ours = ["SNOWMELT_", "XDG_", "AWS_", "OTEL_"].iter().any(|prefix| name.starts_with(prefix));
    (ours && !tool) || name == "NO_COLOR"
}

impl RunOutput {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { exit: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The last line of stderr as the JSON object that `--errors json` promises.
    pub fn report(&self) -> serde_json::Value {
        let last = self.err.lines().last().unwrap_or_default();
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
