//! The command line of each runtime, with defaults that fit the limits of an instance: no runtime
//! sees the limits by itself, because a sandbox has no view of its control group.

use std::collections::BTreeMap;
use std::path::Path;

use snowmelt_sandbox::{Bind, Root};

use super::search::{Inside, PATH, shown};
use super::{process, runtimes};
use crate::files::code::CODE_FILE;
use crate::user_code::unit::{PROGRAM_CODE, PROGRAM_RUNTIME, bind};
use crate::{Error, InstanceLimits, Program, Result};

/// The heap of a Java instance, in percent of its memory; the rest is for the machine's own code,
/// class data, threads and buffers.
const JAVA_HEAP_PERCENT: u64 = 60;

/// The memory to which the collector of a Go instance keeps, in percent of the instance's memory.
const GO_HEAP_PERCENT: u64 = 90;

/// A command with the folders and variables that it needs beside the code.
pub(super) struct CommandParts {
    command: Vec<String>,
    binds: Vec<Bind>,
    environment: Vec<(&'static str, String)>,
    code: String,
}

impl CommandParts {
    fn new(command: Vec<String>) -> Self {
        let code = PROGRAM_CODE.to_owned();
        Self { command, binds: Vec::new(), environment: Vec::new(), code }
    }

    /// Completes the program. The variables of the image count more than the usual ones; those that
    /// the function's own environment sets are left out here.
    pub fn program(self, inside: Inside, limits: &InstanceLimits) -> Program {
        let common = [
            ("PATH", PATH.to_owned()),
            ("HOME", "/tmp".to_owned()),
            ("LANG", "C.UTF-8".to_owned()),
            ("SNOWMELT_CODE", PROGRAM_CODE.to_owned()),
            ("SNOWMELT_MEMORY", limits.memory.bytes().to_string()),
        ];
        let usual = common.into_iter().chain(self.environment);
        let usual = usual.map(|(name, value)| (name.to_owned(), value));
        // The last variable of a name counts.
        let mut all: BTreeMap<String, String> = usual.collect();
        all.extend(process::environment(&inside.run).cloned());
        let own = all.into_iter().filter(|(name, _)| !limits.environment.contains_key(name));
        Program {
            root: Root { base: inside.base, binds: self.binds, ..Root::default() },
            command: self.command,
            environment: own.collect(),
            process: inside.process,
            code: self.code,
        }
    }
}

/// Runs the module `handler.mjs`, or another of a known name, with Node.js and the platform's
/// runtime for it.
pub(super) fn node(
    inside: &Inside,
    runtimes: &Path,
    limits: &InstanceLimits,
) -> Result<CommandParts> {
    const NAMES: [&str; 4] = ["handler.mjs", "handler.js", "index.mjs", "index.js"];
    let node = inside.program("node", "install it on this machine: apt-get install nodejs")?;
    let module = entry(inside, &NAMES, "a module for Node.js")?;
    let most = limits.memory.bytes() >> 20;
    let mut parts = CommandParts::new(vec![
        node,
        // The kernel's limit is reported with its peak; V8 only has to collect in time.
        format!("--max-old-space-size={most}"),
        format!("{PROGRAM_RUNTIME}/serve.mjs"),
        module,
    ]);
    parts.binds.push(bind(&runtimes::node(runtimes)?, PROGRAM_RUNTIME));
    Ok(parts)
}

/// Runs a class, from a source file, class files or archives, with Java and the platform's runtime
/// for it.
pub(super) fn java(
    inside: &Inside,
    runtimes: &Path,
    limits: &InstanceLimits,
    class: &str,
) -> Result<CommandParts> {
    let hint = "install it on this machine: apt-get install default-jdk-headless";
    let java = inside.program("java", hint)?;
    // System.inheritedChannel, the only public way to a descriptor, is that of standard input.
    let shell = inside.program("/bin/sh", "the Java runtime is started by /bin/sh")?;
    let mib = |bytes: u64| (bytes >> 20).max(1);
    let heap = mib(limits.memory.bytes() / 100 * JAVA_HEAP_PERCENT);
    let processors = limits.cpu.0.div_ceil(1000).max(1);
    let command = [
        &shell,
        "-c",
        "exec \"$0\" \"$@\" <&3",
        &java,
        &format!("-Xmx{heap}m"),
        &format!("-XX:MaxDirectMemorySize={}m", mib(limits.memory.bytes() / 10)),
        &format!("-XX:ActiveProcessorCount={processors}"),
        // The collector with the fewest threads and the least memory, and no file for tools that
        // could not see it.
        "-XX:+UseSerialGC",
        "-XX:-UsePerfData",
        "-Xshare:auto",
        "-cp",
        PROGRAM_RUNTIME,
        "snowmelt.Serve",
        PROGRAM_CODE,
        class,
    ];
    let mut parts = CommandParts::new(command.map(str::to_owned).to_vec());
    parts.binds.push(bind(&runtimes::java(runtimes)?, PROGRAM_RUNTIME));
    parts.binds.extend(java_configuration(inside, &java));
    Ok(parts)
}

/// Returns the folder of Java's configuration where that is in `/etc`, of which a sandbox sees
/// almost nothing: Debian keeps it there.
fn java_configuration(inside: &Inside, java: &str) -> Option<Bind> {
    if inside.base != snowmelt_sandbox::Base::Host {
        return None;
    }
    let home = inside.real(java)?.parent()?.parent()?.to_owned();
    let configuration = home.join("lib/jvm.cfg").canonicalize().ok()?;
    let folder = configuration.parent().filter(|folder| folder.starts_with("/etc"))?;
    Some(bind(folder, folder))
}

/// Runs a program that was made with the platform's Go package.
pub(super) fn go(inside: &Inside, limits: &InstanceLimits) -> Result<CommandParts> {
    let program = entry(inside, &["handler", "main"], "a program")?;
    let name = program.trim_start_matches(PROGRAM_CODE).trim_start_matches('/');
    let mut parts = CommandParts::new(vec![inside.program(&format!("./{name}"), "")?]);
    let heap = limits.memory.bytes() / 100 * GO_HEAP_PERCENT;
    let processors = limits.cpu.0.div_ceil(1000).max(1);
    parts.environment.push(("GOMEMLIMIT", format!("{heap}B")));
    parts.environment.push(("GOMAXPROCS", processors.to_string()));
    Ok(parts)
}

/// Runs Python code in an image, by the interpreter of the image: the platform's own interpreter
/// needs the platform's libraries.
pub(super) fn python(inside: &Inside, runtime: Option<&Path>) -> Result<CommandParts> {
    let hint = "name a root with Python in it";
    let python = inside.program("python3", hint)?;
    // The path is not set by a variable, which child processes of the function would inherit.
    let start = format!(
        "import sys\n\
         if sys.version_info < (3, 10):\n    \
         sys.exit('functions need Python 3.10 or later, and this is %d.%d' % sys.version_info[:2])\n\
         sys.path.insert(0, '{PROGRAM_RUNTIME}')\n\
         from snowmelt._runtime.serve import channel, main\n\
         main(channel())\n"
    );
    let mut parts = CommandParts::new(vec![python, "-c".to_owned(), start]);
    parts.binds.extend(runtime.map(|runtime| bind(runtime, PROGRAM_RUNTIME)));
    parts.code = format!("{PROGRAM_CODE}/{CODE_FILE}");
    Ok(parts)
}

/// Runs the entrypoint and command of an image, where the user names no command.
pub(super) fn of_image(inside: &Inside) -> Result<CommandParts> {
    let words = inside.run.words();
    let Some((program, arguments)) = words.split_first() else {
        return Err(Error::Program {
            program: String::new(),
            reason: "no command is named, and the image has neither an entrypoint nor a command"
                .to_owned(),
            hint: "name a program: --command 'python3 ./serve.py'".to_owned(),
        });
    };
    // The path is resolved as the kernel does it: relative to the working folder.
    let program = match program.contains('/') {
        true => inside.process.working_folder.join(program).display().to_string(),
        false => program.clone(),
    };
    let mut command = vec![inside.program(&program, "")?];
    command.extend_from_slice(arguments);
    Ok(CommandParts::new(command))
}

/// Runs a command of the user's own; words that begin with `./` are files of the code.
pub(super) fn own(inside: &Inside, words: &[String]) -> Result<CommandParts> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(Error::Program {
            program: String::new(),
            reason: "the command is empty".to_owned(),
            hint: "name a program: --command 'python3 ./serve.py'".to_owned(),
        });
    };
    let hint = "install it on this machine, bring it with the code (./name), or give an image with \
                --root";
    let mut command = vec![inside.program(program, hint)?];
    for word in arguments {
        let is_file = word.starts_with("./");
        command.push(if is_file { inside.code_file(word)? } else { word.clone() });
    }
    Ok(CommandParts::new(command))
}

/// Returns the path, inside the sandbox, of the file to begin with: the one of a known name, or
/// else the only file.
fn entry(inside: &Inside, names: &[&str], what: &str) -> Result<String> {
    let files = inside.files();
    let known = names.iter().find(|name| files.iter().any(|file| file == *name));
    let only = files.first().filter(|_| files.len() == 1).map(String::as_str);
    match known.copied().or(only) {
        Some(name) => inside.code_file(name),
        None => Err(Error::Program {
            program: names[0].to_owned(),
            reason: format!("the code has no such file: it has {}", shown(&files)),
            hint: format!("name {what} {}", names.join(" or ")),
        }),
    }
}
