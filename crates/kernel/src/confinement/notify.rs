//! System calls of another process that wait until this one has answered them (seccomp user
//! notification).
//!
//! Invariant for the answering side: the memory that a call points to can change at any moment, so
//! an answer that lets the kernel continue must be right for any contents. Operations that must be
//! checked are performed here instead, on a copy of the descriptor and with a copy of the memory.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use seccompiler::sock_filter;

use super::seccomp::FilterProgram;

const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
/// The least call number of the x32 interface, which has no architecture of its own.
const X32: u32 = 0x4000_0000;
const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
const NOTIFY: u32 = 0x7fc0_0000;
const NO_SUCH_CALL: u32 = 0x0005_0000 | libc::ENOSYS as u32;
/// Families of sockets: IPv4 and IPv6.
const INTERNET: [u32; 2] = [2, 10];
/// The number of instructions until the call number of this architecture is loaded.
const BEGUN: usize = 6;
/// Offsets in `struct seccomp_data`; the lower half of an argument is first.
const NUMBER: u32 = 0;
const PLATFORM: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;
const SIXTH_ARGUMENT: u32 = 56;
/// The shortest IPv6 address that the kernel accepts; an IPv4 address has 16 bytes.
const SHORTEST6: u32 = 24;

/// `SECCOMP_FILTER_FLAG_NEW_LISTENER`.
pub const NEW_LISTENER: libc::c_ulong = 1 << 3;
/// The flag that makes a caller whose call was received wait through signals (Linux 5.19).
pub const WAIT_KILLABLE: libc::c_ulong = 1 << 5;
/// `SECCOMP_IOCTL_NOTIF_ID_VALID`.
const IS_WAITING: libc::c_ulong = 0x4008_2102;

/// Numbers of the calls that name an address, on this architecture.
#[allow(missing_docs)]
pub mod calls {
    pub const BIND: i64 = libc::SYS_bind;
    pub const CONNECT: i64 = libc::SYS_connect;
    pub const SEND_MESSAGE: i64 = libc::SYS_sendmsg;
    pub const SEND_MESSAGES: i64 = libc::SYS_sendmmsg;
    pub const SEND_TO: i64 = libc::SYS_sendto;
    pub const SOCKET: i64 = libc::SYS_socket;
}

/// Makes a filter by which every call waits that names an internet address. Calls that only send
/// data, or send to an IPv4 address, do not wait: an IPv4 socket sends from the address that it
/// has. Messages through the descriptor `exempt_fd` do not wait either, for instance one with the
/// listener of this filter; the installer must ensure that this number is never used otherwise.
pub fn address_filter(exempt_fd: Option<u32>) -> FilterProgram {
    let mut program = filter(
        &[calls::BIND, calls::CONNECT, calls::SEND_MESSAGES],
        Some((calls::SOCKET, &INTERNET)),
    );
    let put = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let mut messages = vec![put(IF_EQUAL, 0, 1, calls::SEND_MESSAGE as u32)];
    if let Some(exempt_fd) = exempt_fd {
        messages = vec![
            put(IF_EQUAL, 0, 4, calls::SEND_MESSAGE as u32),
            put(LOAD, 0, 0, FIRST_ARGUMENT),
            put(IF_EQUAL, 0, 1, exempt_fd),
            put(RETURN, 0, 0, ALLOW),
        ];
    }
    messages.push(put(RETURN, 0, 0, NOTIFY));
    messages.extend([
        put(IF_EQUAL, 0, 4, calls::SEND_TO as u32),
        put(LOAD, 0, 0, SIXTH_ARGUMENT),
        put(IF_AT_LEAST, 0, 1, SHORTEST6),
        put(RETURN, 0, 0, NOTIFY),
        put(RETURN, 0, 0, ALLOW),
    ]);
    program.0.splice(BEGUN..BEGUN, messages);
    program
}

/// Makes a filter by which these calls wait for an answer, the conditional one only if its first
/// argument is one of the numbers. All other calls are allowed.
fn filter(calls: &[i64], conditional: Option<(i64, &[u32])>) -> FilterProgram {
    let put = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let mut code = vec![
        put(LOAD, 0, 0, PLATFORM),
        put(IF_EQUAL, 1, 0, ARCHITECTURE),
        put(RETURN, 0, 0, NO_SUCH_CALL),
        put(LOAD, 0, 0, NUMBER),
        put(IF_AT_LEAST, 0, 1, X32),
        put(RETURN, 0, 0, NO_SUCH_CALL),
    ];
    for call in calls {
        code.extend([put(IF_EQUAL, 0, 1, *call as u32), put(RETURN, 0, 0, NOTIFY)]);
    }
    if let Some((call, firsts)) = conditional {
        code.extend([put(IF_EQUAL, 1, 0, call as u32), put(RETURN, 0, 0, ALLOW)]);
        code.push(put(LOAD, 0, 0, FIRST_ARGUMENT));
        for first in firsts {
            code.extend([put(IF_EQUAL, 0, 1, *first), put(RETURN, 0, 0, NOTIFY)]);
        }
    }
    code.push(put(RETURN, 0, 0, ALLOW));
    FilterProgram(code)
}

/// Installs a filter in the calling thread and returns its listener.
pub fn install(filter: &FilterProgram) -> io::Result<NotifyListener> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.0.len()).map_err(io::Error::other)?,
        // The kernel only reads it.
        filter: filter.0.as_ptr().cast::<libc::sock_filter>().cast_mut(),
    };
    let with = |flags: libc::c_ulong| {
        // SAFETY: both structures are alive and have the layout that the kernel reads.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const program,
            )
        };
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(fd as i32) }
    };
    let fd = with(NEW_LISTENER | WAIT_KILLABLE).or_else(|_| with(NEW_LISTENER))?;
    // SAFETY: the kernel has just made it, so it has no other owner.
    Ok(NotifyListener(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// A waiting call.
#[derive(Clone, Copy, Debug)]
pub struct NotifiedCall {
    id: u64,
    /// The thread that made the call.
    pub thread: u32,
    /// The number of the system call.
    pub number: i64,
    /// The arguments of the system call.
    pub arguments: [u64; 6],
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallAnswer {
    /// The call returns this value.
    Value(i64),
    /// The call fails with this error number.
    Error(i32),
    /// The kernel performs the call, with the current contents of the memory that it points to.
    Continue,
}

/// The queue of waiting calls of processes with a filter.
#[derive(Debug)]
pub struct NotifyListener(OwnedFd);

impl From<OwnedFd> for NotifyListener {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for NotifyListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl NotifyListener {
    /// Checks that the descriptor is a listener: a descriptor from another process could be
    /// anything.
    pub fn check(&self) -> io::Result<()> {
        let mut unused_id = 0u64;
        match self.control(IS_WAITING, (&raw mut unused_id).cast()) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            Err(error) => Err(error),
            Ok(()) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Waits for the next call and returns it. `ENOENT` when the caller died in between.
    pub fn receive(&self) -> io::Result<NotifiedCall> {
        // SAFETY: the structure holds only numbers, for which 0 is valid; the kernel requires
        // zeros.
        let mut notice: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        self.control(libc::SECCOMP_IOCTL_NOTIF_RECV as libc::c_ulong, (&raw mut notice).cast())?;
        Ok(NotifiedCall {
            id: notice.id,
            thread: notice.pid,
            number: i64::from(notice.data.nr),
            arguments: notice.data.args,
        })
    }

    /// Answers a call. `ENOENT` if the caller no longer waits.
    pub fn answer(&self, call: &NotifiedCall, answer: CallAnswer) -> io::Result<()> {
        let (val, error, flags) = match answer {
            CallAnswer::Value(value) => (value, 0, 0),
            CallAnswer::Error(number) => (0, -number, 0),
            CallAnswer::Continue => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        };
        let mut reply = libc::seccomp_notif_resp { id: call.id, val, error, flags };
        self.control(libc::SECCOMP_IOCTL_NOTIF_SEND as libc::c_ulong, (&raw mut reply).cast())
    }

    /// Answers a call with a new descriptor of the caller, a copy of this one (Linux 5.14).
    pub fn add_descriptor(
        &self,
        call: &NotifiedCall,
        fd: BorrowedFd<'_>,
        close_on_exec: bool,
    ) -> io::Result<()> {
        let mut reply = libc::seccomp_notif_addfd {
            id: call.id,
            flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
            srcfd: fd.as_raw_fd() as u32,
            newfd: 0,
            newfd_flags: if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
        };
        self.control(libc::SECCOMP_IOCTL_NOTIF_ADDFD as libc::c_ulong, (&raw mut reply).cast())
    }

    /// Whether the caller still waits: if so, the memory that was read was the caller's own.
    pub fn is_waiting(&self, call: &NotifiedCall) -> bool {
        let mut id = call.id;
        self.control(IS_WAITING, (&raw mut id).cast()).is_ok()
    }

    fn control(&self, request: libc::c_ulong, argument: *mut libc::c_void) -> io::Result<()> {
        // SAFETY: each caller above passes the structure for its request, alive and not shared.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), request, argument) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// A copy of another process's descriptor, by one of its threads.
pub fn copy_descriptor(thread: u32, fd: i32) -> io::Result<OwnedFd> {
    let process = match open_process(thread as i32) {
        // Before Linux 6.9 only the first thread has a pidfd.
        Err(_) => open_process(process_of(thread)?)?,
        Ok(process) => process,
    };
    // SAFETY: takes numbers and an open descriptor; returns a new descriptor or an error.
    let copy = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy as i32) })
}

fn open_process(id: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers; returns a new descriptor or an error.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn process_of(thread: u32) -> io::Result<i32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status"))?;
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    let group = group.and_then(|text| text.trim().parse().ok());
    group.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Reads another process's memory, completely or with an error.
pub fn read_memory(thread: u32, address: u64, into: &mut [u8]) -> io::Result<()> {
    let here = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let there = libc::iovec { iov_base: address as *mut _, iov_len: into.len() };
    // SAFETY: writes at most the length of `into`, which is borrowed only for this; the other
    // address is in the other process, and only read.
    let read = unsafe { libc::process_vm_readv(thread as i32, &here, 1, &there, 1, 0) };
    match usize::try_from(read) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(length) if length < into.len() => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_calls_wait() {
        let program = filter(&[libc::SYS_bind], Some((libc::SYS_socket, &[2, 10])));
        let ask = |platform, number: i64, first| {
            program.answer(platform, number as u32, [first, 0, 0, 0, 0, 0])
        };
        assert_eq!(ask(ARCHITECTURE, libc::SYS_bind, 0), Some(NOTIFY));
        assert_eq!(ask(ARCHITECTURE, libc::SYS_socket, 2), Some(NOTIFY));
        assert_eq!(ask(ARCHITECTURE, libc::SYS_socket, 10), Some(NOTIFY));
        assert_eq!(ask(ARCHITECTURE, libc::SYS_socket, 1), Some(ALLOW));
        assert_eq!(ask(ARCHITECTURE, libc::SYS_read, 0), Some(ALLOW));
        assert_eq!(ask(ARCHITECTURE, i64::from(X32) | libc::SYS_bind, 0), Some(NO_SUCH_CALL));
        assert_eq!(ask(0x4000_0003, libc::SYS_bind, 0), Some(NO_SUCH_CALL));
    }

    #[test]
    fn messages_wait_except_on_the_exempt_descriptor() {
        for exempt_fd in [None, Some(1023)] {
            let program = address_filter(exempt_fd);
            let ask = |number: i64, first| {
                program.answer(ARCHITECTURE, number as u32, [first, 0, 0, 0, 0, 0])
            };
            for call in [libc::SYS_bind, libc::SYS_connect, libc::SYS_sendmmsg] {
                assert_eq!(ask(call, 1023), Some(NOTIFY));
            }
            let through = if exempt_fd.is_some() { ALLOW } else { NOTIFY };
            assert_eq!(ask(libc::SYS_sendmsg, 1023), Some(through));
            assert_eq!(ask(libc::SYS_sendmsg, 1022), Some(NOTIFY));
            assert_eq!(ask(libc::SYS_socket, 10), Some(NOTIFY));
            assert_eq!(ask(libc::SYS_socket, 1), Some(ALLOW));
            for (length, answer) in [(0, ALLOW), (16, ALLOW), (24, NOTIFY), (128, NOTIFY)] {
                let arguments = [4, 0, 0, 0, 0, length];
                let found = program.answer(ARCHITECTURE, libc::SYS_sendto as u32, arguments);
                assert_eq!(found, Some(answer), "{length}");
            }
        }
    }

    #[test]
    fn another_descriptor_is_not_a_listener() {
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(NotifyListener::from(OwnedFd::from(null)).check().is_err());
    }

    #[test]
    fn memory_is_read_completely_or_not_at_all() {
        let text = *b"there";
        let mut found = [0; 5];
        // SAFETY: only returns the calling thread's id.
        let thread = unsafe { libc::gettid() } as u32;
        read_memory(thread, text.as_ptr() as u64, &mut found).unwrap();
        assert_eq!(found, text);
        assert!(read_memory(thread, 8, &mut found).is_err());
    }
}
