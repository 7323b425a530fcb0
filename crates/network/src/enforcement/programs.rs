//! The BPF programs that the kernel runs for a function's sockets, loaded for their hooks.
//!
//! Each begins with the same lookup: which control group calls, in which namespace? For a function
//! in its own job's namespace the body follows, with the function's entry in `R7` and the context
//! in `R6`. Any other process is refused in a job's namespace and allowed elsewhere.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use snowmelt_kernel::bpf::Register::{R0, R1, R6, R7, R8};
use snowmelt_kernel::bpf::{Assembler, Helper, Hook, Size, VerifiedProgram};

use super::addresses::{Ends, bind4, bind6, bind6_alone, connect4, connect6, send4, send6};
use super::layout::{BpfTables, NAMESPACE, look_up};
use super::sockets::{create, ingress, option};

/// The part of a program after the function is looked up.
type ProgramBody = fn(&mut Assembler, &Ends);

/// Loads all programs. Linux before 5.15 lacks the hook by which IPv6-only sockets are recognised;
/// then all IPv6 sockets are treated as such.
pub fn load(functions: BorrowedFd<'_>, jobs: BorrowedFd<'_>) -> io::Result<Vec<VerifiedProgram>> {
    let tables = BpfTables { functions, jobs };
    let options = VerifiedProgram::load(Hook::SetSockOption, option());
    let all: [(Hook, ProgramBody); 6] = [
        (Hook::Bind4, bind4),
        (Hook::Bind6, if options.is_ok() { bind6 } else { bind6_alone }),
        (Hook::Connect4, connect4),
        (Hook::Connect6, connect6),
        (Hook::Send4, send4),
        (Hook::Send6, send6),
    ];
    let addresses = all.into_iter().map(|(hook, body)| {
        let mut a = Assembler::new();
        let ends = Ends { allow: a.label(), refuse: a.label() };
        begin(&mut a, tables, &ends);
        body(&mut a, &ends);
        finish(&mut a, &ends);
        VerifiedProgram::load(hook, a)
    });
    let rest = [(Hook::SocketCreate, create(tables)), (Hook::InetIngress, ingress(tables))];
    let rest = rest.into_iter().map(|(hook, a)| VerifiedProgram::load(hook, a));
    addresses.chain(rest).chain(options.ok().map(Ok)).collect()
}

/// Looks up the calling function.
fn begin(a: &mut Assembler, tables: BpfTables<'_>, ends: &Ends) {
    let unknown = a.label();
    let function = a.label();
    a.copy(R6, R1);
    a.call(Helper::NamespaceCookie);
    a.copy(R8, R0);
    a.call(Helper::CurrentGroup);
    look_up(a, tables.functions);
    a.jump_if_zero(R0, unknown);
    a.load(Size::Double, R1, R0, NAMESPACE);
    a.jump_if_same(R1, R8, function);
    a.place(unknown);
    a.copy(R0, R8);
    look_up(a, tables.jobs);
    a.jump_if_zero(R0, ends.allow);
    // The kernel returns EPERM for this.
    a.set(R0, 0);
    a.exit();
    a.place(function);
    a.copy(R7, R0);
}

fn finish(a: &mut Assembler, ends: &Ends) {
    a.place(ends.allow);
    a.set(R0, 1);
    a.exit();
    if !a.is_used(ends.refuse) {
        return;
    }
    a.place(ends.refuse);
    a.set(R1, -Errno::ADDRNOTAVAIL.raw_os_error());
    a.call(Helper::SetResult);
    a.set(R0, 0);
    a.exit();
}
