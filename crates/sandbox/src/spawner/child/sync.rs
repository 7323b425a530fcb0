//! The socket pair between the spawner and a child that is being set up.
//!
//! The spawner sends "go" when ids and control group are set. The child sends one fault, or closes
//! its end, by exec or explicitly, when it is about to run its program.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use snowmelt_kernel::packet;

use crate::fault::StepFault;
use crate::message::StartFailure;

/// The longest packet from a child.
const LONGEST: usize = 512;

/// The messages of a child: it runs in its own user and is this process; its seccomp listener is
/// attached; a step failed, followed by the error number, a space and the step.
pub(crate) const HERE: &str = "here";
pub(crate) const HEARD: &str = "heard";
pub(crate) const FAULT: &str = "fault ";

/// A message of a child, or the end of its socket.
pub(in crate::spawner) enum ChildMessage {
    /// A child of a zygote runs and is this process.
    Here(packet::PacketSender),
    /// The child has a seccomp listener, which is this descriptor.
    Listener(OwnedFd),
    /// A step failed.
    Fault(StartFailure),
    /// The child has closed its end: it runs its program, or is dead.
    Closed,
}

/// Lets the child continue.
pub(in crate::spawner) fn send_go(socket: impl AsFd) -> io::Result<()> {
    packet::send(socket, b"go", &[])
}

/// Waits for [`send_go`]. The caller ends with the spawner: it has the other end of the socket too,
/// so no end of file would wake it.
pub(super) fn wait_for_go(socket: impl AsFd) -> io::Result<()> {
    match packet::receive(socket, &mut [0; 8])?.length {
        0 => Err(io::ErrorKind::BrokenPipe.into()),
        _ => Ok(()),
    }
}

/// Sends the seccomp listener.
pub(super) fn send_listener(socket: impl AsFd, listener: impl AsFd) -> io::Result<()> {
    packet::send(socket, HEARD.as_bytes(), &[listener.as_fd()])
}

/// Reports the failed step.
pub(in crate::spawner) fn send_fault(socket: impl AsFd, fault: &StepFault) -> io::Result<()> {
    let errno = fault.source.raw_os_error().unwrap_or(0);
    let mut step = &*fault.step;
    // The rest of the packet is the prefix and the number of the error.
    while step.len() > LONGEST - 16 {
        let cut = step.char_indices().nth_back(0).map_or(0, |(index, _)| index);
        step = &step[..cut];
    }
    packet::send(socket, format!("{FAULT}{errno} {step}").as_bytes(), &[])
}

/// Receives the next message of the child. The message comes from the tenant, so it is not trusted.
pub(in crate::spawner) fn receive(socket: impl AsFd) -> ChildMessage {
    let mut buffer = [0; LONGEST];
    // A child that sends what cannot be received is treated as one that is gone.
    let Ok(mut packet) = packet::receive(socket, &mut buffer) else { return ChildMessage::Closed };
    let text = String::from_utf8_lossy(&buffer[..packet.length]);
    match (&*text, packet.sender) {
        (HERE, Some(sender)) => ChildMessage::Here(sender),
        (HEARD, _) if packet.fds.len() == 1 => {
            packet.fds.pop().map_or(ChildMessage::Closed, ChildMessage::Listener)
        }
        ("", _) => ChildMessage::Closed,
        // Unknown messages count as faults too: nothing that a child sends may keep its start open.
        (text, _) => ChildMessage::Fault(parse_fault(text)),
    }
}

/// Receives a message of the child if there is one already.
pub(in crate::spawner) fn try_receive(socket: impl AsFd) -> Option<ChildMessage> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut watched = [PollFd::new(&socket, PollFlags::IN)];
    let ready = poll(&mut watched, Some(&now)).is_ok_and(|ready| ready > 0);
    ready.then(|| receive(socket))
}

fn parse_fault(text: &str) -> StartFailure {
    let parsed = text.strip_prefix(FAULT).and_then(|rest| rest.split_once(' '));
    let (errno, step) = parsed.unwrap_or(("0", "send a valid message to the spawner"));
    StartFailure::Step { step: step.to_owned(), errno: errno.parse().unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(step: &str) -> StepFault {
        StepFault { step: step.to_owned(), source: io::Error::from_raw_os_error(2) }
    }

    #[test]
    fn a_fault_arrives_with_its_step_and_number() {
        let (left, right) = packet::pair().unwrap();
        send_fault(&left, &fault("execute /bin/nothing")).unwrap();
        let ChildMessage::Fault(StartFailure::Step { step, errno }) = receive(&right) else {
            panic!()
        };
        assert_eq!((&*step, errno), ("execute /bin/nothing", 2));
    }

    #[test]
    fn a_long_step_is_cut_between_characters() {
        let (left, right) = packet::pair().unwrap();
        send_fault(&left, &fault(&"ä".repeat(1000))).unwrap();
        assert!(matches!(receive(&right), ChildMessage::Fault(_)));
    }
}
