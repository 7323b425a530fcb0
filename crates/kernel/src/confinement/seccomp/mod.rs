//! System call filters: policy as data, compiled to one BPF program.
//!
//! A policy is a list of refusals, each with its own error number, and then a list of allowed
//! calls; all others fail with `EPERM`. `seccompiler` compiles each list; the programs are chained
//! here, so that the first result other than "allow" counts and only one filter has to be
//! installed. Calls that are allowed whatever their arguments become a search tree: at each
//! installation the kernel translates the filter and runs it for every system call number.

mod answer;
mod search;

use std::collections::BTreeMap;
use std::io;

use seccompiler::{BpfProgram, TargetArch, compile_from_json, sock_filter};
use serde::{Deserialize, Serialize};

/// A policy in the form of its JSON file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeccompPolicy {
    /// Refusals by error number, checked in order before `allow`.
    #[serde(default)]
    pub refuse: Vec<CallRefusal>,
    /// The allowed calls.
    pub allow: CallSet,
}

/// Calls with their own error number.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallRefusal {
    /// The reason, for readers of the file.
    pub why: String,
    /// The error number.
    pub errno: u16,
    /// The calls.
    pub calls: CallSet,
}

/// A set of calls.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallSet {
    /// Names on all architectures.
    #[serde(default)]
    pub names: Vec<String>,
    /// Names only on this architecture (`x86_64`, `aarch64`).
    #[serde(default)]
    pub only: BTreeMap<String, Vec<String>>,
    /// Calls with conditions on their arguments, which must all hold; a call named twice is in the
    /// set if the conditions of either hold.
    #[serde(default)]
    pub conditional: Vec<Conditional>,
}

/// A call with conditions on its arguments.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditional {
    /// The name of the system call.
    pub name: String,
    /// The conditions, which must all hold.
    pub when: Vec<serde_json::Value>,
}

/// A compiled policy: the instructions in the kernel's form.
#[derive(Clone, Debug)]
pub struct FilterProgram(pub(crate) Vec<sock_filter>);

/// A policy that cannot be compiled.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CompileError(String);

/// Instruction codes, and the result "allow".
const RETURN: u16 = 0x06;
const JUMP: u16 = 0x05;
const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;

/// The error of a refused call unless the policy sets another.
const PERMISSION: u16 = libc::EPERM as u16;

/// Skips this many instructions.
fn jump(count: usize) -> sock_filter {
    sock_filter { code: JUMP, jt: 0, jf: 0, k: count as u32 }
}

impl SeccompPolicy {
    /// Parses a policy.
    pub fn parse(json: &str) -> Result<Self, CompileError> {
        serde_json::from_str(json).map_err(|error| CompileError(error.to_string()))
    }

    /// Adds the allowed calls and the refusals of another policy.
    pub fn extend(&mut self, other: Self) {
        self.refuse.extend(other.refuse);
        self.allow.names.extend(other.allow.names);
        self.allow.conditional.extend(other.allow.conditional);
        for (architecture, names) in other.allow.only {
            self.allow.only.entry(architecture).or_default().extend(names);
        }
    }

    /// Compiles it for the architecture that this program runs on.
    pub fn compile(&self) -> Result<FilterProgram, CompileError> {
        self.compile_for(std::env::consts::ARCH)
    }

    /// Compiles only the calls that `wider` allows and this policy refuses, for a process that has
    /// `wider` installed already: the kernel takes ten times as long for a whole policy. Both
    /// filters together answer as this policy alone: of two filters that allow and refuse a call,
    /// the refusal counts, so what both policies refuse with the same error is left to `wider`.
    ///
    /// # Errors
    /// When a call has conditions here that differ from those in `wider`, or `wider` has a refusal
    /// that this policy has not.
    pub fn compile_within(&self, wider: &Self) -> Result<FilterProgram, CompileError> {
        let conditions = |policy: &Self| -> Vec<_> {
            let all = policy.allow.conditional.iter();
            all.map(|call| (call.name.clone(), format!("{:?}", call.when))).collect()
        };
        let own = conditions(self);
        // What has conditions only there is refused whatever its arguments.
        let (shared, only_wider): (Vec<_>, Vec<_>) = conditions(wider)
            .into_iter()
            .partition(|(name, _)| own.iter().any(|(known, _)| known == name));
        let is_common = wider.refuse.iter().all(|refusal| self.refuse.contains(refusal));
        if !is_common || own != shared {
            let reason = "the wider policy has other refusals, or other conditions";
            return Err(CompileError(reason.to_owned()));
        }
        let architecture = std::env::consts::ARCH;
        let ours = self.allow.all_names(architecture);
        let all = wider.allow.all_names(architecture);
        let plain = all.into_iter().cloned();
        let wider_names = plain.chain(only_wider.into_iter().map(|(name, _)| name));
        let mut names: Vec<_> = wider_names.filter(|name| !ours.contains(&name)).collect();
        // A call has an entry for each of its conditions.
        names.dedup();
        let rest = CallRefusal {
            why: "the wider policy allows it".to_owned(),
            errno: libc::EPERM as u16,
            calls: CallSet { names, ..CallSet::default() },
        };
        let mut plain = Vec::new();
        let mut conditional = Vec::new();
        let own = self.refuse.iter().filter(|refusal| !wider.refuse.contains(refusal));
        for refusal in own.chain([&rest]) {
            let compile = |calls: &CallSet| {
                compile_calls(calls, Action::Errno(refusal.errno), Action::Allow, architecture)
            };
            let answer = ERRNO | u32::from(refusal.errno);
            let whatever = CallSet { conditional: Vec::new(), ..refusal.calls.clone() };
            plain.push((compile(&whatever)?, answer));
            let with = refusal.calls.conditional.clone();
            if !with.is_empty() {
                let with = CallSet { conditional: with, ..CallSet::default() };
                conditional.extend(jump_on_where_allowed(compile(&with)?));
            }
        }
        let plain: Vec<_> = plain.iter().map(|(program, answer)| (&**program, *answer)).collect();
        let mut chained = search::answer_numbers(&plain);
        chained.extend(conditional);
        chained.push(sock_filter { code: RETURN, jt: 0, jf: 0, k: ALLOW });
        Ok(FilterProgram(chained))
    }

    /// Compiles a program that refuses every call that this policy allows, whatever its arguments,
    /// and allows the others: for a process that has a wider policy already.
    pub fn compile_refusal(&self) -> Result<FilterProgram, CompileError> {
        let conditional = self.allow.conditional.iter().map(|call| call.name.clone());
        let mut names: Vec<_> = self.allow.names.iter().cloned().chain(conditional).collect();
        // A call has an entry for each of its conditions.
        names.sort_unstable();
        names.dedup();
        let calls = CallSet { names, only: self.allow.only.clone(), conditional: Vec::new() };
        let architecture = std::env::consts::ARCH;
        let mut chained = self.refusals(architecture)?;
        let refused = Action::Errno(PERMISSION);
        chained.extend(compile_calls(&calls, refused, Action::Allow, architecture)?);
        Ok(FilterProgram(chained))
    }

    fn refusals(&self, architecture: &str) -> Result<BpfProgram, CompileError> {
        let mut chained = Vec::new();
        for refusal in &self.refuse {
            let matched = Action::Errno(refusal.errno);
            let program = compile_calls(&refusal.calls, matched, Action::Allow, architecture)?;
            chained.extend(jump_on_where_allowed(program));
        }
        Ok(chained)
    }

    /// Compiles it for an architecture by its Rust name.
    pub fn compile_for(&self, architecture: &str) -> Result<FilterProgram, CompileError> {
        let mut chained = self.refusals(architecture)?;
        let denied = || Action::Errno(PERMISSION);
        let plain = CallSet { conditional: Vec::new(), ..self.allow.clone() };
        let plain = compile_calls(&plain, Action::Allow, denied(), architecture)?;
        chained.extend(search::allow_numbers(&plain));
        let rest = CallSet { conditional: self.allow.conditional.clone(), ..CallSet::default() };
        chained.extend(compile_calls(&rest, Action::Allow, denied(), architecture)?);
        Ok(FilterProgram(chained))
    }
}

impl CallSet {
    /// The names of an architecture that are allowed whatever the arguments.
    fn all_names(&self, architecture: &str) -> Vec<&String> {
        let only = self.only.get(architecture).into_iter().flatten();
        self.names.iter().chain(only).collect()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    Allow,
    Errno(u16),
}

fn compile_calls(
    calls: &CallSet,
    matched: Action,
    otherwise: Action,
    architecture: &str,
) -> Result<BpfProgram, CompileError> {
    let only = calls.only.get(architecture).into_iter().flatten();
    let plain = calls.names.iter().chain(only).map(|name| serde_json::json!({ "syscall": name }));
    let conditional = calls.conditional.iter();
    let conditional =
        conditional.map(|call| serde_json::json!({ "syscall": call.name, "args": call.when }));
    let filter: Vec<_> = plain.chain(conditional).collect();
    let source = serde_json::json!({ "calls": {
        "match_action": matched, "mismatch_action": otherwise, "filter": filter,
    }});
    let failed = |error: &dyn std::fmt::Display| CompileError(error.to_string());
    let target = TargetArch::try_from(architecture).map_err(|error| failed(&error))?;
    let text = source.to_string();
    let mut programs =
        compile_from_json(text.as_bytes(), target).map_err(|error| failed(&error))?;
    programs.remove("calls").ok_or_else(|| failed(&"the compiler returned no program"))
}

/// Replaces each "allow" by a jump past the program's end.
fn jump_on_where_allowed(mut program: BpfProgram) -> BpfProgram {
    let length = program.len();
    for (index, instruction) in program.iter_mut().enumerate() {
        if instruction.code == RETURN && instruction.k == ALLOW {
            *instruction = jump(length - index - 1);
        }
    }
    program
}

impl FilterProgram {
    /// Installs it in the calling thread, which must have `no_new_privs` or SYS_ADMIN; its children
    /// and the programs that it executes inherit it, and it cannot be removed.
    pub fn install(&self) -> io::Result<()> {
        let program = libc::sock_fprog {
            len: u16::try_from(self.0.len()).map_err(io::Error::other)?,
            // The kernel only reads it.
            filter: self.0.as_ptr().cast::<libc::sock_filter>().cast_mut(),
        };
        // SAFETY: both structures are alive and have the layout that the kernel reads.
        let result = unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The result of the program for a call, as the kernel would compute it: for tests of policies.
    /// `None` if the program is malformed.
    pub fn answer(&self, architecture: u32, number: u32, arguments: [u64; 6]) -> Option<u32> {
        answer::of(&self.0, architecture, number, arguments)
    }

    /// The number of instructions.
    pub fn length(&self) -> usize {
        self.0.len()
    }

    /// The instructions in the machine's byte order (`struct sock_filter[]`), for a process that
    /// installs them itself.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.len() * 8);
        for instruction in &self.0 {
            bytes.extend(instruction.code.to_ne_bytes());
            bytes.extend([instruction.jt, instruction.jf]);
            bytes.extend(instruction.k.to_ne_bytes());
        }
        bytes
    }
}
