//! eBPF instructions by name (RFC 9669), with labels to jump to.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A register. `R0` is the result of a call and of the program, `R1` to `R5` are arguments and
/// clobbered by a call, `R10` is the end of a stack of 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Register {
    R0 = 0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// The width of a load or store.
#[derive(Clone, Copy, Debug)]
pub enum Size {
    /// Four bytes.
    Word = 0x00,
    /// A single byte.
    Byte = 0x10,
    /// Two bytes.
    Half = 0x08,
    /// Eight bytes.
    Double = 0x18,
}

/// A helper function of the kernel (`enum bpf_func_id`).
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Helper {
    MapLookup = 1,
    StorePacketBytes = 9,
    SetOption = 49,
    Bind = 64,
    PacketBytes = 68,
    CurrentGroup = 80,
    FindTcp = 84,
    FindUdp = 85,
    Release = 86,
    FullSocket = 95,
    NamespaceCookie = 122,
    Assign = 124,
    SocketGroup = 128,
    SetResult = 187,
}

/// A position in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// A program under construction.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<u64>,
    positions: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// An empty program.
    pub fn new() -> Self {
        Self::default()
    }

    /// A new label, to be placed later.
    pub fn label(&mut self) -> Label {
        self.positions.push(None);
        Label(self.positions.len() - 1)
    }

    /// Places the label at the next instruction.
    pub fn place(&mut self, label: Label) {
        self.positions[label.0] = Some(self.code.len());
    }

    /// Whether any jump targets the label: the kernel refuses unreachable instructions.
    pub fn is_used(&self, label: Label) -> bool {
        self.jumps.iter().any(|(_, target)| *target == label)
    }

    /// `to = from`.
    pub fn copy(&mut self, to: Register, from: Register) {
        self.put(0xbf, to, from, 0, 0);
    }

    /// `to = number`, 64 bits.
    pub fn set(&mut self, to: Register, number: i32) {
        self.put(0xb7, to, Register::R0, 0, number);
    }

    /// `to += number`.
    pub fn add(&mut self, to: Register, number: i32) {
        self.put(0x07, to, Register::R0, 0, number);
    }

    /// `to &= mask`, the lower 32 bits; the upper ones become 0.
    pub fn and(&mut self, to: Register, mask: u32) {
        self.put(0x54, to, Register::R0, 0, mask as i32);
    }

    /// `to |= from`, 64 bits.
    pub fn or(&mut self, to: Register, from: Register) {
        self.put(0x4f, to, from, 0, 0);
    }

    /// `to = *(base + offset)`.
    pub fn load(&mut self, size: Size, to: Register, base: Register, offset: i16) {
        self.put(0x61 | size as u8, to, base, offset, 0);
    }

    /// `*(base + offset) = from`.
    pub fn store(&mut self, size: Size, base: Register, offset: i16, from: Register) {
        self.put(0x63 | size as u8, base, from, offset, 0);
    }

    /// `*(base + offset) = number`.
    pub fn store_number(&mut self, size: Size, base: Register, offset: i16, number: i32) {
        self.put(0x62 | size as u8, base, Register::R0, offset, number);
    }

    /// `to = the map`.
    pub fn map(&mut self, to: Register, map: BorrowedFd<'_>) {
        // Two instructions long; source 1 means that the number is a map's descriptor.
        self.put(0x18, to, Register::R1, 0, map.as_raw_fd());
        self.code.push(0);
    }

    /// Calls a helper function of the kernel.
    pub fn call(&mut self, helper: Helper) {
        self.put(0x85, Register::R0, Register::R0, 0, helper as i32);
    }

    /// Jumps to the label.
    pub fn jump(&mut self, label: Label) {
        self.jump_with(0x05, Register::R0, Register::R0, 0, label);
    }

    /// Jumps if the lower 32 bits are this number.
    pub fn jump_if_word_is(&mut self, register: Register, number: u32, label: Label) {
        self.jump_with(0x16, register, Register::R0, number as i32, label);
    }

    /// Jumps if the lower 32 bits are another number.
    pub fn jump_unless_word_is(&mut self, register: Register, number: u32, label: Label) {
        self.jump_with(0x56, register, Register::R0, number as i32, label);
    }

    /// Jumps if all 64 bits are 0.
    pub fn jump_if_zero(&mut self, register: Register, label: Label) {
        self.jump_with(0x15, register, Register::R0, 0, label);
    }

    /// Jumps if not all 64 bits are 0.
    pub fn jump_unless_zero(&mut self, register: Register, label: Label) {
        self.jump_with(0x55, register, Register::R0, 0, label);
    }

    /// Jumps if the registers are equal, 64 bits.
    pub fn jump_if_same(&mut self, one: Register, other: Register, label: Label) {
        self.jump_with(0x1d, one, other, 0, label);
    }

    /// Jumps if the registers differ, 64 bits.
    pub fn jump_unless_same(&mut self, one: Register, other: Register, label: Label) {
        self.jump_with(0x5d, one, other, 0, label);
    }

    /// Jumps if `one` is greater than `other`, 64 bits.
    pub fn jump_if_more(&mut self, one: Register, other: Register, label: Label) {
        self.jump_with(0x2d, one, other, 0, label);
    }

    /// Ends the program with the result `R0`.
    pub fn exit(&mut self) {
        self.put(0x95, Register::R0, Register::R0, 0, 0);
    }

    /// The instructions, with jumps resolved to their labels.
    pub(super) fn finish(mut self) -> io::Result<Vec<u64>> {
        for (at, label) in &self.jumps {
            let target = self.positions[label.0].ok_or(io::ErrorKind::InvalidInput)?;
            let distance = target as i64 - *at as i64 - 1;
            let distance = i16::try_from(distance).map_err(|_| io::ErrorKind::InvalidInput)?;
            self.code[*at] |= u64::from(distance as u16) << 16;
        }
        Ok(self.code)
    }

    fn jump_with(&mut self, code: u8, one: Register, other: Register, number: i32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.put(code, one, other, 0, number);
    }

    /// `struct bpf_insn` as one number, which has the same bytes on a little-endian machine.
    fn put(&mut self, code: u8, to: Register, from: Register, offset: i16, number: i32) {
        let registers = (to as u64) | (from as u64) << 4;
        self.code.push(
            u64::from(code)
                | registers << 8
                | u64::from(offset as u16) << 16
                | u64::from(number as u32) << 32,
        );
    }
}

#[cfg(target_endian = "big")]
compile_error!("instructions are assembled for little-endian machines");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_have_the_bytes_of_the_standard() {
        let mut assembler = Assembler::new();
        assembler.load(Size::Word, Register::R2, Register::R6, 4);
        assembler.store_number(Size::Half, Register::R10, -16, 2);
        assembler.exit();
        let bytes: Vec<_> = assembler.finish().unwrap().into_iter().map(u64::to_le_bytes).collect();
        assert_eq!(bytes[0], [0x61, 0x62, 4, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[1], [0x6a, 0x0a, 0xf0, 0xff, 2, 0, 0, 0]);
        assert_eq!(bytes[2], [0x95, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn jumps_lead_only_to_their_labels() {
        let mut assembler = Assembler::new();
        let back = assembler.label();
        let forward = assembler.label();
        assembler.place(back);
        assembler.jump(forward);
        assembler.jump(back);
        assembler.place(forward);
        assembler.exit();
        let code = assembler.finish().unwrap();
        assert_eq!((code[0] >> 16) as i16, 1);
        assert_eq!((code[1] >> 16) as i16, -2);
        let mut lost = Assembler::new();
        let nowhere = lost.label();
        lost.jump(nowhere);
        assert!(lost.finish().is_err());
    }
}
