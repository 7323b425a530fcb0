//! Making a process that borrows this one's memory until it executes a program, as vfork(2) does:
//! nothing is copied, so it costs the same however large this process is.
//!
//! Invariant: this process, which must have one thread, stands still while the child runs on a
//! stack of its own, so the two never run in the same memory at once. What the child writes, the
//! parent finds; what the child owned when it executed is never dropped.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::clone::{CLONE_INTO_CGROUP, CloneArguments, Cloned, check_single_thread};

/// Memory for the stack of a child, used by one after the other.
#[derive(Debug)]
pub struct Stack {
    base: NonNull<c_void>,
}

impl Stack {
    const SIZE: usize = 512 << 10;
    const GUARD: usize = 64 << 10;

    /// Maps it, with a guard below that ends a child which needs more.
    pub fn new() -> io::Result<Self> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        let flags = kind | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        // SAFETY: a fresh mapping at a place that the kernel chooses touches nothing that is there.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), Self::SIZE, access, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the lowest pages of the mapping that was just made, which nobody uses yet.
        if unsafe { libc::mprotect(base, Self::GUARD, libc::PROT_NONE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(base)
            .map(|base| Self { base })
            .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no child runs on it while its owner is dropped.
        unsafe { libc::munmap(self.base.as_ptr(), Self::SIZE) };
    }
}

/// Makes a process in fresh `namespaces` (`CLONE_NEW*`), straight in `cgroup` if there is one
/// (version 2), that runs `child` on `stack`. Returns when the child has executed a program or
/// has ended; `child` gives the exit code of the latter.
///
/// # Errors
/// `EBUSY` in a process that has more than one thread, and what the kernel says.
pub fn run_in_borrowed_memory(
    namespaces: u64,
    cgroup: Option<BorrowedFd<'_>>,
    stack: &mut Stack,
    child: &mut dyn FnMut() -> i32,
) -> io::Result<Cloned> {
    check_single_thread()?;
    let mut pidfd: i32 = -1;
    let kind = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD;
    let mut arguments = CloneArguments {
        flags: namespaces | kind as u64,
        pidfd: (&raw mut pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        stack: stack.base.as_ptr() as u64,
        stack_size: Stack::SIZE as u64,
        ..CloneArguments::default()
    };
    if let Some(cgroup) = cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = cgroup.as_raw_fd() as u64;
    }
    let mut work = Work { child };
    // SAFETY: the child gets a stack of its own and never returns from `enter`; this thread, the
    // only one, waits in the kernel meanwhile (CLONE_VFORK), so all that `work` borrows stays.
    let result = unsafe { clone3(&raw const arguments, (&raw mut work).cast()) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result as i32));
    }
    // SAFETY: the kernel has just put a fresh descriptor there that nobody else owns.
    Ok(Cloned { pid: result as i32, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })
}

struct Work<'a> {
    child: &'a mut dyn FnMut() -> i32,
}

/// Where the child begins.
extern "C" fn enter(work: *mut c_void) -> ! {
    // SAFETY: the pointer is to the `Work` of the caller that waits for us.
    let work = unsafe { &mut *work.cast::<Work<'_>>() };
    // A panic must not unwind off the end of this stack.
    let code = catch_unwind(AssertUnwindSafe(|| (work.child)())).unwrap_or(70);
    // SAFETY: ends the child without running the parent's exit handlers.
    unsafe { libc::_exit(code) }
}

/// clone3(2) by hand: the C library has no wrapper that gives the child a stack. Gives the
/// child's id or a negated error number.
///
/// # Safety
/// `arguments` must name a stack that nobody uses, and `work` must be what [`enter`] takes.
#[cfg(target_arch = "x86_64")]
unsafe fn clone3(arguments: *const CloneArguments, work: *mut c_void) -> isize {
    let result: isize;
    // SAFETY: in the parent only the result and the two registers that the kernel overwrites
    // change; the child has the given stack, whose top is aligned, and never comes back.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            // No return address, which is where a trace of the stack ends.
            "push 0",
            "jmp r12",
            "2:",
            inlateout("rax") libc::SYS_clone3 as isize => result,
            in("rdi") arguments,
            in("rsi") size_of::<CloneArguments>(),
            in("r12") enter as extern "C" fn(*mut c_void) -> !,
            in("r13") work,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// See the other.
///
/// # Safety
/// As there.
#[cfg(target_arch = "aarch64")]
unsafe fn clone3(arguments: *const CloneArguments, work: *mut c_void) -> isize {
    let result: isize;
    // SAFETY: in the parent only the result changes; the child has the given stack, whose top is
    // aligned, and never comes back.
    unsafe {
        core::arch::asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x21",
            "br x20",
            "2:",
            in("x8") libc::SYS_clone3,
            inlateout("x0") arguments => result,
            in("x1") size_of::<CloneArguments>(),
            in("x20") enter as extern "C" fn(*mut c_void) -> !,
            in("x21") work,
        );
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execute::Program;
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    use std::os::fd::AsFd;

    // Tests run in threads, and this needs a process that has one: so it is done in a child.
    fn alone(test: fn() -> i32) -> i32 {
        // SAFETY: the child only runs the test, which takes no lock of another thread, and ends.
        match unsafe { libc::fork() } {
            0 => {
                let code = catch_unwind(test).unwrap_or(99);
                // SAFETY: ends the child without the harness's exit handlers.
                unsafe { libc::_exit(code) }
            }
            pid => {
                let mut status = 0;
                // SAFETY: the status is alive while the kernel writes it.
                unsafe { libc::waitpid(pid, &raw mut status, 0) };
                libc::WEXITSTATUS(status)
            }
        }
    }

    fn ended(child: &Cloned) -> i32 {
        let status = waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED);
        status.unwrap().unwrap().exit_status().unwrap() as i32
    }

    #[test]
    fn what_the_child_wrote_is_there_when_it_has_ended_and_it_can_be_done_again() {
        let test = || {
            let mut stack = Stack::new().unwrap();
            let mut said = Vec::new();
            for round in 0..100 {
                let mut child = || {
                    said.push(format!("round {round}"));
                    7
                };
                let made = run_in_borrowed_memory(0, None, &mut stack, &mut child).unwrap();
                assert_eq!(ended(&made), 7);
            }
            i32::from(said.len() == 100 && said[99] == "round 99")
        };
        assert_eq!(alone(test), 1);
    }

    #[test]
    fn a_program_that_was_executed_has_left_the_memory() {
        let test = || {
            let program = Program::new(&["/bin/sh", "-c", "exit $CODE"], &[("CODE", "5")]).unwrap();
            let mut stack = Stack::new().unwrap();
            let mut failure = None;
            let mut child = || {
                failure = Some(program.execute());
                1
            };
            let made = run_in_borrowed_memory(0, None, &mut stack, &mut child).unwrap();
            if failure.is_none() { ended(&made) } else { 98 }
        };
        assert_eq!(alone(test), 5);
    }

    #[test]
    fn a_panic_is_the_childs_end_alone() {
        let test = || {
            let mut stack = Stack::new().unwrap();
            let mut child = || panic!("in the child");
            let made = run_in_borrowed_memory(0, None, &mut stack, &mut child).unwrap();
            ended(&made)
        };
        assert_eq!(alone(test), 70);
    }

    #[test]
    fn refuses_a_process_with_threads() {
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || receive.recv());
        let mut stack = Stack::new().unwrap();
        let error = run_in_borrowed_memory(0, None, &mut stack, &mut || 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
        drop(send);
        assert!(other.join().unwrap().is_err());
    }
}
