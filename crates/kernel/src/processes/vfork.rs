//! Creating a process that borrows this one's memory until it executes a program, like vfork(2):
//! nothing is copied, so the cost does not depend on this process's size.
//!
//! Invariant: this process, which must have one thread, is suspended while the child runs on its
//! own stack, so the two never run concurrently in the same memory. The parent sees the child's
//! writes; values that the child owned at its exec are never dropped.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use super::clone::{CLONE_INTO_CGROUP, CloneArguments, Cloned, check_single_thread};

/// Memory for the stack of a child, reused by one child after another.
#[derive(Debug)]
pub struct Stack {
    base: NonNull<c_void>,
}

impl Stack {
    const SIZE: usize = 512 << 10;
    const GUARD: usize = 64 << 10;

    /// Maps it, with a guard area below, where an overflow ends the child.
    pub fn new() -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE;
        let flags = kind | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        // SAFETY: a fresh mapping at an address that the kernel chooses overlaps no other.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), Self::SIZE, access, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the lowest pages of the mapping that was just made, which are not in use yet.
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

/// Makes a process in new `namespaces` (`CLONE_NEW*`), directly in `cgroup` if given (version 2),
/// that runs `child` on `stack`. Returns when the child has executed a program or has ended;
/// `child` returns the exit code in the latter case.
///
/// # Errors
/// `EBUSY` in a process that has more than one thread, and the kernel's error.
pub fn clone_vfork(
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
    // only one, waits in the kernel meanwhile (CLONE_VFORK), so everything that `work` borrows
    // stays.
    let result = unsafe { clone3(&raw const arguments, (&raw mut work).cast()) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result as i32));
    }
    // SAFETY: the kernel has just stored a new descriptor there, which has no other owner.
    Ok(Cloned { pid: result as i32, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })
}

struct Work<'a> {
    child: &'a mut dyn FnMut() -> i32,
}

/// The entry point of the child.
extern "C" fn enter(work: *mut c_void) -> ! {
    // SAFETY: the pointer is to the `Work` of the caller that waits for us.
    let work = unsafe { &mut *work.cast::<Work<'_>>() };
    // A panic must not unwind off the end of this stack.
    let code = catch_unwind(AssertUnwindSafe(|| (work.child)())).unwrap_or(70);
    // SAFETY: ends the child without running the parent's exit handlers.
    unsafe { libc::_exit(code) }
}

/// Calls clone3(2) in assembly: the C library has no wrapper that gives the child a stack. Returns
/// the child's id or a negated error number.
///
/// # Safety
/// `arguments` must name a stack that is not in use, and `work` must be an argument for [`enter`].
#[cfg(target_arch = "x86_64")]
unsafe fn clone3(arguments: *const CloneArguments, work: *mut c_void) -> isize {
    let result: isize;
    // SAFETY: in the parent only the result and the two registers that the kernel overwrites
    // change; the child has the given stack, whose top is aligned, and never returns.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            // No return address, so a stack trace ends here.
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

/// Makes a process that borrows this one's memory, in the same way as the version for x86-64.
///
/// # Safety
/// The conditions of the version for x86-64 hold here too.
#[cfg(target_arch = "aarch64")]
unsafe fn clone3(arguments: *const CloneArguments, work: *mut c_void) -> isize {
    let result: isize;
    // SAFETY: in the parent only the result changes; the child has the given stack, whose top is
    // aligned, and never returns.
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
    use crate::processes::execute::ExecProgram;
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    use std::os::fd::AsFd;

    // Tests run in threads, but this needs a process with one thread: so it runs in a child.
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
    fn the_parent_sees_what_each_child_wrote() {
        let test = || {
            let mut stack = Stack::new().unwrap();
            let mut written = Vec::new();
            for round in 0..100 {
                let mut child = || {
                    written.push(format!("round {round}"));
                    7
                };
                let made = clone_vfork(0, None, &mut stack, &mut child).unwrap();
                assert_eq!(ended(&made), 7);
            }
            i32::from(written.len() == 100 && written[99] == "round 99")
        };
        assert_eq!(alone(test), 1);
    }

    #[test]
    fn an_executed_program_no_longer_uses_the_parents_memory() {
        let test = || {
            let program =
                ExecProgram::new(&["/bin/sh", "-c", "exit $CODE"], &[("CODE", "5")]).unwrap();
            let mut stack = Stack::new().unwrap();
            let mut failure = None;
            let mut child = || {
                failure = Some(program.execute());
                1
            };
            let made = clone_vfork(0, None, &mut stack, &mut child).unwrap();
            if failure.is_none() { ended(&made) } else { 98 }
        };
        assert_eq!(alone(test), 5);
    }

    #[test]
    fn a_panic_ends_only_the_child() {
        let test = || {
            let mut stack = Stack::new().unwrap();
            // Without the panic hook: another thread may have held its locks at the fork.
            let mut child = || std::panic::resume_unwind(Box::new("in the child"));
            let made = clone_vfork(0, None, &mut stack, &mut child).unwrap();
            ended(&made)
        };
        assert_eq!(alone(test), 70);
    }

    #[test]
    fn refuses_a_process_with_threads() {
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || receive.recv());
        let mut stack = Stack::new().unwrap();
        let error = clone_vfork(0, None, &mut stack, &mut || 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
        drop(send);
        assert!(other.join().unwrap().is_err());
    }
}
