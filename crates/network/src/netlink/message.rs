//! Netlink messages as bytes, `struct nlmsghdr` and `struct nlattr`, in both directions.
//!
//! Invariant: every message and attribute is padded to four bytes and its length excludes the
//! padding; lengths in messages of the kernel are checked.

use super::constants::{NLM_F_REQUEST, NLMSG_DONE};

/// The size of `struct nlmsghdr` in bytes.
pub(super) const HEADER: usize = 16;
const NESTED: u16 = 0x8000;
const KIND: u16 = 0x3fff;

/// Messages for one socket, in order, each with a description of its step for error messages.
#[derive(Debug, Default)]
pub struct Batch {
    pub(super) bytes: Vec<u8>,
    pub(super) messages: Vec<(usize, &'static str)>,
}

impl Batch {
    /// Makes an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of messages.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Adds a message: `step` as a verb phrase, the type, its flags, the fixed part that this
    /// type has, and its attributes.
    pub fn add(
        &mut self,
        step: &'static str,
        kind: u16,
        flags: u16,
        fixed: &[u8],
        fill: impl FnOnce(&mut Attributes<'_>),
    ) {
        let begin = self.bytes.len();
        self.messages.push((begin, step));
        self.bytes.extend([0; 4]);
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend((flags | NLM_F_REQUEST).to_ne_bytes());
        // Sequence number and port: the socket fills them in.
        self.bytes.extend([0; 8]);
        self.bytes.extend(fixed);
        pad(&mut self.bytes);
        fill(&mut Attributes(&mut self.bytes));
        let length = (self.bytes.len() - begin) as u32;
        self.bytes[begin..begin + 4].copy_from_slice(&length.to_ne_bytes());
    }
}

/// The attributes of a message under construction.
pub struct Attributes<'a>(&'a mut Vec<u8>);

impl Attributes<'_> {
    /// Adds an attribute with these bytes.
    pub fn bytes(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        let length = (value.len() + 4) as u16;
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        pad(self.0);
        self
    }

    /// Adds an attribute of one byte.
    pub fn u8(&mut self, kind: u16, value: u8) -> &mut Self {
        self.bytes(kind, &[value])
    }

    /// Adds a number in native byte order.
    pub fn u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// Adds a number in network byte order.
    pub fn be32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    /// Adds a zero-terminated string.
    pub fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes)
    }

    /// Adds a nested attribute.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Attributes<'_>)) -> &mut Self {
        self.nest_after(kind, &[], fill)
    }

    /// Adds a nested attribute that begins with a fixed part.
    pub fn nest_after(
        &mut self,
        kind: u16,
        fixed: &[u8],
        fill: impl FnOnce(&mut Attributes<'_>),
    ) -> &mut Self {
        let begin = self.0.len();
        self.0.extend([0; 2]);
        self.0.extend((kind | NESTED).to_ne_bytes());
        self.0.extend(fixed);
        pad(self.0);
        fill(&mut Attributes(self.0));
        let length = (self.0.len() - begin) as u16;
        self.0[begin..begin + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// A message of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The type of the message.
    pub kind: u16,
    /// The sequence number of the request that the message answers.
    pub sequence: u32,
    /// The bytes after the header.
    pub body: Vec<u8>,
}

impl Parsed {
    /// Whether the message ends a list.
    pub fn is_done(&self) -> bool {
        self.kind == NLMSG_DONE
    }

    /// The attribute `kind`, after a fixed part of `fixed` bytes.
    pub fn attribute(&self, fixed: usize, kind: u16) -> Option<&[u8]> {
        find(self.body.get(fixed..)?, kind)
    }
}

/// The messages in the received bytes; a truncated one is ignored.
pub(super) fn messages(mut bytes: &[u8]) -> Vec<Parsed> {
    let mut all = Vec::new();
    while let Some(header) = bytes.get(..HEADER) {
        let length = u32_at(header, 0) as usize;
        let Some(body) = bytes.get(HEADER..length) else { break };
        all.push(Parsed {
            kind: u16::from_ne_bytes([header[4], header[5]]),
            sequence: u32_at(header, 8),
            body: body.to_vec(),
        });
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    all
}

/// Attributes by their kind, in their order.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & KIND, value))
    })
}

/// The first attribute of a kind.
fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

/// The number at an offset, which must be in bounds.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_messages_and_attributes_are_parsed_back() {
        let mut batch = Batch::new();
        batch.add("try it", 16, 0, &[1, 2, 3, 4], |a| {
            a.text(3, "lo").nest(18, |a| {
                a.u8(1, 7).be32(2, 0x0102_0304);
            });
        });
        batch.add("try it again", 17, 0, &[], |_| {});
        let all = messages(&batch.bytes);
        assert_eq!(all.iter().map(|m| m.kind).collect::<Vec<_>>(), [16, 17]);
        assert_eq!(all[0].attribute(4, 3), Some(&b"lo\0"[..]));
        let nested = all[0].attribute(4, 18).unwrap();
        assert_eq!(find(nested, 2), Some(&[1, 2, 3, 4][..]));
        assert_eq!(find(nested, 3), None);
    }

    #[test]
    fn invalid_lengths_end_the_list_without_a_panic() {
        for bytes in [&[0, 0, 0, 0][..], &[255, 255, 1, 0, 9][..], &[3, 0, 1, 0][..], &[1][..]] {
            assert_eq!(attributes(bytes).count(), 0, "{bytes:?}");
        }
        let mut header = vec![0; HEADER];
        header[0] = 200;
        assert!(messages(&header).is_empty());
        header[0] = 3;
        assert!(messages(&header).is_empty());
    }
}
