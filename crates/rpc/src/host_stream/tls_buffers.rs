//! The buffers of a connection with TLS: encrypted bytes that have arrived, decrypted ones that were
//! not passed on, and encrypted ones to send.
//!
//! Invariant: a connection on which nothing happens holds next to nothing.

use std::io;

use tokio::io::ReadBuf;

/// The size of the buffer of a connection on which little arrives.
const SMALL: usize = 4 << 10;

/// The most encrypted bytes that are read at once.
const LARGE: usize = 128 << 10;

/// The room that is left for a read: that of the longest record.
const ROOM: usize = 5 + (16 << 10) + 256;

/// Encrypted bytes that have arrived.
#[derive(Default)]
pub(super) struct Arrived {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// The number of bytes that came at the last time.
    last: usize,
}

impl Arrived {
    /// Returns the bytes that are not done with.
    pub fn waiting(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    pub fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    /// Returns the room for a read. The buffer grows with the amount that arrives at a time.
    ///
    /// # Errors
    /// A message of the other side is longer than any that it may send.
    pub fn room(&mut self) -> io::Result<&mut [u8]> {
        let was_filled = self.end == self.bytes.len();
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.bytes.len() - self.end < ROOM && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.bytes.is_empty() {
            self.bytes = vec![0; self.last.next_power_of_two().clamp(SMALL, LARGE)];
        } else if was_filled && self.bytes.len() < LARGE {
            self.bytes.resize(self.bytes.len() * 2, 0);
        }
        match &mut self.bytes[self.end..] {
            [] => Err(io::Error::new(io::ErrorKind::InvalidData, "a message of TLS is too long")),
            room => Ok(room),
        }
    }

    /// Takes note of bytes that were put into the room.
    pub fn add(&mut self, count: usize) {
        self.end += count;
        self.last = count;
    }

    /// Gives the buffer up while nothing arrives, unless the other side fills it each time.
    pub fn rest(&mut self) {
        if self.start == self.end && self.last < self.bytes.len() / 2 {
            (self.bytes, self.start, self.end) = (Vec::new(), 0, 0);
        }
    }
}

/// Decrypted bytes that were not passed on, because the reader had no room for them.
#[derive(Default)]
pub(super) struct Decrypted {
    bytes: Vec<u8>,
    start: usize,
}

impl Decrypted {
    pub fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    pub fn keep(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub fn give(&mut self, to: &mut ReadBuf<'_>) {
        let given = to.remaining().min(self.bytes.len() - self.start);
        to.put_slice(&self.bytes[self.start..self.start + given]);
        self.start += given;
        if self.is_empty() && !self.bytes.is_empty() {
            (self.bytes, self.start) = (Vec::new(), 0);
        }
    }
}

/// Encrypted bytes to send.
#[derive(Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Outgoing {
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Appends what `put` puts into a room of about this size. It returns the number of bytes, or the
    /// size that it needs.
    pub fn put<E>(
        &mut self,
        mut size: usize,
        mut put: impl FnMut(&mut [u8]) -> Result<Result<usize, usize>, E>,
    ) -> Result<usize, E> {
        loop {
            if self.bytes.len() - self.end < size {
                self.bytes.resize(self.end + size, 0);
            }
            match put(&mut self.bytes[self.end..])? {
                Ok(count) => {
                    self.end += count;
                    return Ok(count);
                }
                Err(needed) => size = needed,
            }
        }
    }

    /// Returns the bytes that were not sent.
    pub fn unsent(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub fn sent(&mut self, count: usize) {
        self.start += count;
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Gives the buffer up after a short write, which is mostly the last one for a while.
    pub fn rest(&mut self) {
        if self.is_empty() && self.bytes.len() > SMALL {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrive(arrived: &mut Arrived, count: usize) -> usize {
        let room = arrived.room().unwrap().len();
        arrived.add(count.min(room));
        room
    }

    #[test]
    fn the_room_grows_with_what_arrives_and_is_given_up() {
        let mut arrived = Arrived::default();
        let mut rooms = Vec::new();
        for _ in 0..7 {
            rooms.push(arrive(&mut arrived, LARGE));
            let waiting = arrived.waiting().len();
            arrived.consume(waiting);
        }
        assert_eq!(rooms, [4, 8, 16, 32, 64, 128, 128].map(|kib| kib << 10));
        arrived.rest();
        assert_eq!(arrived.bytes.len(), LARGE, "all of it was filled");
        arrive(&mut arrived, 100);
        arrived.rest();
        assert_eq!(arrived.bytes.len(), LARGE, "something waits");
        arrived.consume(100);
        arrived.rest();
        assert_eq!(arrived.bytes.capacity(), 0);
        assert_eq!(arrive(&mut arrived, 100), SMALL);
    }

    #[test]
    fn a_record_that_has_begun_has_room_and_a_message_has_an_end() {
        let mut arrived = Arrived::default();
        while arrived.bytes.len() < LARGE {
            arrive(&mut arrived, LARGE);
        }
        arrived.room().unwrap_err();
        arrived.waiting()[LARGE - 1] = 7;
        arrived.consume(LARGE - 3);
        assert_eq!(arrived.room().unwrap().len(), LARGE - 3);
        assert_eq!(arrived.waiting(), [0, 0, 7]);
    }

    #[test]
    fn what_is_put_is_sent_in_its_order() {
        let mut outgoing = Outgoing::default();
        let put = |text: &'static [u8]| {
            move |room: &mut [u8]| match room.get_mut(..text.len()) {
                None => Ok(Err(text.len())),
                Some(room) => {
                    room.copy_from_slice(text);
                    Ok::<_, ()>(Ok(text.len()))
                }
            }
        };
        outgoing.put(0, put(b"one")).unwrap();
        outgoing.sent(1);
        outgoing.put(9, put(b"two")).unwrap();
        assert_eq!(outgoing.unsent(), b"netwo");
        outgoing.sent(5);
        assert!(outgoing.is_empty());
        outgoing.put(0, put(b"three")).unwrap();
        assert_eq!(outgoing.unsent(), b"three");
    }
}
