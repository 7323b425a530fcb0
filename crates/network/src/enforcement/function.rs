//! A function whose system calls wait for an answer, and what every answer needs of a call.
//!
//! Invariant: memory of the caller is used only after a check that the call still waits; otherwise
//! its thread id may belong to another process.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::bind;
use snowmelt_kernel::notify::{self, CallAnswer, NotifiedCall, NotifyListener};
use snowmelt_kernel::socket::set_bind_address_only;

use crate::Address;

/// A function and the listener of its calls.
#[derive(Debug)]
pub(super) struct NotifiedFunction {
    pub listener: NotifyListener,
    pub own: Address,
}

impl NotifiedFunction {
    /// Answers a call. It is not an error if the caller has died.
    pub fn answer(&self, call: &NotifiedCall, decided: Result<CallAnswer, Errno>) {
        let answer = decided.unwrap_or_else(|error| CallAnswer::Error(error.raw_os_error()));
        if let Err(error) = self.listener.answer(call, answer)
            && !is_death(&error)
        {
            tracing::debug!(%error, "cannot answer a call of a function");
        }
    }
}

/// Returns whether an answer failed because the caller has died.
pub(super) fn is_death(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOENT.raw_os_error())
}

/// Binds a socket that has no port yet to an address only.
pub(super) fn bind_address(socket: &OwnedFd, address: IpAddr) -> Result<(), Errno> {
    set_bind_address_only(socket, true).map_err(errno)?;
    let bound = bind(socket, &SocketAddr::new(address, 0));
    // A later bind to port 0 must choose a port immediately.
    set_bind_address_only(socket, false).map_err(errno)?;
    bound
}

/// Copies a descriptor of the calling process.
pub(super) fn copy_of(call: &NotifiedCall, number: u64) -> Result<OwnedFd, Errno> {
    let number = i32::try_from(number as u32).map_err(|_| Errno::BADF)?;
    notify::copy_descriptor(call.thread, number).map_err(errno)
}

/// Checks that the call still waits; otherwise its thread id, and memory read by it, may belong to
/// another process.
pub(super) fn check_waiting(function: &NotifiedFunction, call: &NotifiedCall) -> Result<(), Errno> {
    if function.listener.is_waiting(call) { Ok(()) } else { Err(Errno::SRCH) }
}

/// Returns the number of an error of the kernel.
pub(super) fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
