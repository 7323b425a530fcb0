//! The generated headers of `runtimes/native`, which declare everything that the native loop of
//! zygotes has in common with the Rust code. `UPDATE_NATIVE=1 cargo test -p snowmelt-sandbox --lib
//! c_header` writes them.
//!
//! Invariant: a number, a list or a layout that both need is declared once, in Rust.

use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};

use snowmelt_kernel::landlock::{self, PathBeneath, Ruleset};
use snowmelt_kernel::layout::StructLayout;
use snowmelt_kernel::process::{CAPABILITY_VERSION_3, CapabilityHeader, CapabilityWord};
use snowmelt_kernel::{notify, packet};

use super::child::{self, oom, sync};
use super::zygote;
use super::zygote::protocol::{self, OrderPacket, SetupPacket};
use crate::spec::{CHANNEL_FD, FUNCTION_ID};

const NOTE: &str = "/* Generated from the Rust code by crates/sandbox/src/spawner/c_header.rs. Do not \
                    edit. Write it anew:\n * UPDATE_NATIVE=1 cargo test -p snowmelt-sandbox --lib \
                    c_header */\n";

macro_rules! numbers {
    ($($name:ident,)*) => { [$((stringify!($name), libc::$name as i64),)*] };
}

/// Constants of the kernel. They do not come from its C headers, which are old on some
/// distributions.
fn kernel_numbers() -> Vec<(&'static str, i64)> {
    let mut all = Vec::from(numbers![
        AT_FDCWD,
        O_WRONLY,
        O_NONBLOCK,
        O_CLOEXEC,
        O_PATH,
        F_DUPFD_CLOEXEC,
        SIGCHLD,
        SIG_BLOCK,
        SIG_SETMASK,
        WNOHANG,
        POLLIN,
        EINTR,
        EAGAIN,
        ECHILD,
        EPROTO,
        SOCK_SEQPACKET,
        SOCK_CLOEXEC,
        AF_UNIX,
        SOL_SOCKET,
        SCM_RIGHTS,
        MSG_NOSIGNAL,
        MSG_CMSG_CLOEXEC,
        RLIMIT_NOFILE,
        RLIMIT_NPROC,
        CLONE_NEWNS,
        CLONE_NEWCGROUP,
        CLONE_NEWUSER,
        CLONE_NEWPID,
        CLONE_NEWNET,
        PR_SET_DUMPABLE,
        PR_CAPBSET_DROP,
        PR_CAPBSET_READ,
        PR_SET_NO_NEW_PRIVS,
        PR_CAP_AMBIENT,
        PR_CAP_AMBIENT_CLEAR_ALL,
        SECCOMP_SET_MODE_FILTER,
    ]);
    all.extend([
        ("SECCOMP_NEW_LISTENER", notify::NEW_LISTENER as i64),
        ("SECCOMP_WAIT_KILLABLE", notify::WAIT_KILLABLE as i64),
        ("CAPABILITY_VERSION_3", i64::from(CAPABILITY_VERSION_3)),
        ("LANDLOCK_CREATE_RULESET_VERSION", i64::from(landlock::VERSION)),
        ("LANDLOCK_RULE_PATH_BENEATH", i64::from(landlock::PATH_BENEATH)),
    ]);
    all
}

/// Sizes and offsets of structures of the kernel that the C code declares.
fn kernel_layouts() -> Vec<(&'static str, usize)> {
    vec![
        ("SLICE_SIZE", size_of::<libc::iovec>()),
        ("MESSAGE_SIZE", size_of::<libc::msghdr>()),
        ("MESSAGE_SLICES", offset_of!(libc::msghdr, msg_iov)),
        ("MESSAGE_ANCILLARY", offset_of!(libc::msghdr, msg_control)),
        ("MESSAGE_FLAGS", offset_of!(libc::msghdr, msg_flags)),
        ("ANCILLARY_HEADER_SIZE", size_of::<libc::cmsghdr>()),
        ("ANCILLARY_TYPE", offset_of!(libc::cmsghdr, cmsg_type)),
        ("WAITING_SIZE", size_of::<libc::pollfd>()),
        ("WAITING_FOUND", offset_of!(libc::pollfd, revents)),
        ("FILTER_SIZE", size_of::<libc::sock_fprog>()),
        ("FILTER_START", offset_of!(libc::sock_fprog, filter)),
        ("FILTER_INSTRUCTION_SIZE", size_of::<libc::sock_filter>()),
        ("SIGNAL_RECORD_SIZE", size_of::<libc::signalfd_siginfo>()),
        ("USAGE_SIZE", size_of::<libc::rusage>()),
        ("LIMIT_SIZE", size_of::<libc::rlimit64>()),
    ]
}

/// Numbers that only the native loop and the spawner share.
fn own_numbers() -> Vec<(&'static str, u64)> {
    let set = |numbers: &[u32]| numbers.iter().fold(0, |set, number| set | 1 << number);
    vec![
        ("ZYGOTE_CAPABILITIES", set(&child::ZYGOTE_CAPABILITIES)),
        ("ID_SHARING_CAPABILITIES", set(&child::ID_SHARING_CAPABILITIES)),
        ("SETFCAP", u64::from(child::SETFCAP)),
        ("FUNCTION_ID", FUNCTION_ID.into()),
        ("FUNCTION_UMASK", child::UMASK.into()),
        ("MAX_FDS", packet::MAX_FDS as u64),
        ("MAX_ROOTS", zygote::MAX_ROOTS as u64),
        ("MAX_CHILDREN", zygote::MAX_CHILDREN.into()),
        ("LONGEST_PACKET", protocol::LONGEST_TO_CHILD as u64),
        ("LANDLOCK_NEWEST", landlock::NEWEST.into()),
        ("LANDLOCK_DENIED_IN_WRITABLE", landlock::DENIED_IN_WRITABLE),
        ("LANDLOCK_ALLOWED_IN_DEVICES", landlock::ALLOWED_IN_DEVICES),
    ]
}

/// The header for the author of a zygote. Its names cannot be taken by another header.
fn public() -> String {
    let mut text = format!("{NOTE}#ifndef SNOWMELT_CONSTANTS_H\n#define SNOWMELT_CONSTANTS_H\n\n");
    for (name, value) in [
        ("CONTROL_FD", CHANNEL_FD.to_string()),
        ("CHANNEL_FD", CHANNEL_FD.to_string()),
        ("KIND_HANDLER", protocol::HANDLER_KIND.to_string()),
        ("KIND_ZYGOTE", protocol::ZYGOTE_KIND.to_string()),
        ("ENTRY_ENVIRONMENT", format!("'{}'", char::from(protocol::ENVIRONMENT))),
        ("ENTRY_IMPORT_PATH", format!("'{}'", char::from(protocol::IMPORT_PATH))),
        ("ENTRY_CALL", format!("'{}'", char::from(protocol::CALL))),
    ] {
        writeln!(text, "#define SNOWMELT_{name} {value}").unwrap();
    }
    text + "\n#endif\n"
}

fn internal() -> String {
    let mut text = format!("{NOTE}#ifndef SNOWMELT_INTERNALS_H\n#define SNOWMELT_INTERNALS_H\n\n");
    text += "typedef unsigned int u32;\ntypedef unsigned long long u64;\n\n/* Of the kernel. */\n";
    for (name, value) in kernel_numbers() {
        let shown = if value < 0 { format!("({value})") } else { format!("{value:#x}") };
        writeln!(text, "#define {name} {shown}").unwrap();
    }
    for (name, number) in [
        ("create_ruleset", libc::SYS_landlock_create_ruleset),
        ("add_rule", libc::SYS_landlock_add_rule),
        ("restrict_self", libc::SYS_landlock_restrict_self),
    ] {
        let name = format!("__NR_landlock_{name}");
        writeln!(text, "#ifndef {name}\n#define {name} {number}\n#endif").unwrap();
    }
    text += "\n/* Structures of the kernel: sizes and offsets in bytes. */\n";
    for (name, value) in kernel_layouts() {
        writeln!(text, "#define {name} {value}").unwrap();
    }
    text += "\n/* Of the spawner. */\n";
    for (name, value) in own_numbers() {
        writeln!(text, "#define {name} {value:#x}").unwrap();
    }
    text += &tables();
    let shared = [Ruleset::LAYOUT, PathBeneath::LAYOUT, CapabilityHeader::LAYOUT];
    let packets = [CapabilityWord::LAYOUT, OrderPacket::LAYOUT, SetupPacket::LAYOUT];
    shared.iter().chain(&packets).for_each(|layout| text += &declare(layout));
    text + "\n#endif\n"
}

/// The texts and lists that both sides need.
fn tables() -> String {
    let mut text = String::new();
    for (name, value) in [
        ("FUNCTION_OOM_SCORE", oom::FUNCTION),
        ("HERE", sync::HERE),
        ("HEARD", sync::HEARD),
        ("FAULT", sync::FAULT),
    ] {
        writeln!(text, "#define {name} \"{value}\"").unwrap();
    }
    let by_version = |of: fn(Ruleset) -> u64| {
        let all = (0..=landlock::NEWEST).map(|version| of(landlock::rules_of(version)));
        all.map(|rights| format!("{rights:#x}")).collect::<Vec<_>>().join(", ")
    };
    text += "/* By the version of Landlock. */\n";
    let files = by_version(|rules| rules.files);
    writeln!(text, "#define LANDLOCK_FILES \\\n\t{{{files}}}").unwrap();
    writeln!(text, "#define LANDLOCK_SCOPED {{{}}}", by_version(|rules| rules.scoped)).unwrap();
    text
}

/// A declaration in C, with a check that it has the same layout as in Rust.
fn declare(layout: &StructLayout) -> String {
    let name = layout.name;
    let mut text = format!("\nstruct {name} {{\n");
    for field in layout.fields {
        writeln!(text, "\t{} {};", field.c_type, field.name).unwrap();
    }
    text += if layout.alignment == 1 { "} __attribute__((packed));\n" } else { "};\n" };
    let check = |text: &mut String, what: String, value: usize| {
        writeln!(text, "_Static_assert({what} == {value}, \"not as in Rust\");").unwrap();
    };
    check(&mut text, format!("sizeof(struct {name})"), layout.size);
    for field in layout.fields {
        let what = format!("__builtin_offsetof(struct {name}, {})", field.name);
        check(&mut text, what, field.offset);
    }
    text
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_c_headers_are_those_of_the_rust_tables() {
    for (name, expected) in [("constants", public()), ("internals", internal())] {
        let path = repository().join(format!("runtimes/native/snowmelt_{name}.h"));
        if std::env::var_os("UPDATE_NATIVE").is_some() {
            std::fs::write(&path, &expected).unwrap();
        }
        let now = std::fs::read_to_string(&path).unwrap();
        let how = "run `UPDATE_NATIVE=1 cargo test -p snowmelt-sandbox --lib c_header`";
        assert!(now == expected, "{} is not as the Rust tables: {how}", path.display());
    }
}

/// Checks the rules of Landlock: a version later than the newest row is used like the newest.
#[test]
fn the_rules_of_landlock_do_not_change_after_the_newest_row() {
    let newest = landlock::rules_of(landlock::NEWEST);
    for version in landlock::NEWEST..landlock::NEWEST + 20 {
        let rules = landlock::rules_of(version);
        assert_eq!((rules.files, rules.scoped), (newest.files, newest.scoped), "{version}");
    }
}

/// Checks the numbers in the Python part of a zygote, which are literals there: importing them
/// would leave one more module in every function.
#[test]
fn the_python_runtime_has_the_same_numbers() {
    let letter = |byte: u8| format!("kind == \"{}\":", char::from(byte));
    for (file, line) in [
        ("enter", format!("CHANNEL_FD = {CHANNEL_FD}")),
        ("enter", letter(protocol::ENVIRONMENT)),
        ("enter", letter(protocol::IMPORT_PATH)),
        ("enter", letter(protocol::CALL)),
        ("zygote", format!("CONTROL_FD = {CHANNEL_FD}")),
        ("zygote", format!("HANDLER = {}", protocol::HANDLER_KIND)),
    ] {
        let path = repository().join(format!("python/snowmelt/_runtime/{file}.py"));
        let text = std::fs::read_to_string(&path).unwrap();
        let found = text.lines().any(|here| here == line || here.ends_with(&format!(" {line}")));
        assert!(found, "{} lacks `{line}`", path.display());
    }
}
