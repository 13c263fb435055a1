//! A small assembler for eBPF: instructions, and labels ahead of their place.

use std::fmt;

/// Bytes of an instruction.
pub(super) const INSTRUCTION_BYTES: usize = 8;

/// Instruction classes, sizes and operations (RFC 9669).
mod code {
    pub(super) const LOAD_IMMEDIATE_64: u8 = 0x18;
    pub(super) const LOAD_BYTE: u8 = 0x71;
    pub(super) const LOAD_HALF: u8 = 0x69;
    pub(super) const LOAD_WORD: u8 = 0x61;
    pub(super) const MOVE: u8 = 0xbf;
    pub(super) const MOVE_IMMEDIATE: u8 = 0xb7;
    pub(super) const ADD: u8 = 0x0f;
    pub(super) const ADD_IMMEDIATE: u8 = 0x07;
    pub(super) const AND_IMMEDIATE: u8 = 0x57;
    pub(super) const TO_BIG_ENDIAN: u8 = 0xdc;
    pub(super) const MOVE_WORD: u8 = 0xbc;
    pub(super) const SHIFT_RIGHT_IMMEDIATE: u8 = 0x77;
    pub(super) const JUMP: u8 = 0x05;
    pub(super) const JUMP_SAME: u8 = 0x1d;
    pub(super) const JUMP_ABOVE: u8 = 0x2d;
    pub(super) const JUMP_BELOW: u8 = 0xad;
    pub(super) const JUMP_BELOW_IMMEDIATE: u8 = 0xa5;
    pub(super) const JUMP32_EQUAL_IMMEDIATE: u8 = 0x16;
    pub(super) const JUMP32_UNEQUAL_IMMEDIATE: u8 = 0x56;
    pub(super) const CALL: u8 = 0x85;
    pub(super) const EXIT: u8 = 0x95;
}

/// The "register" that makes the immediate of a 64-bit load the descriptor of a map (`BPF_PSEUDO_MAP_FD`).
const MAP_DESCRIPTOR: u8 = 1;

/// A register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Register(pub(super) u8);

/// Bytes that a load takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    Byte,
    Half,
    Word,
}

/// A place in the program, known once [`Assembler::place`] was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Label(usize);

/// One instruction as the kernel takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    const fn new(code: u8, to: Register, from: Register, offset: i16, immediate: i32) -> Self {
        Self { code, registers: (from.0 << 4) | to.0, offset, immediate }
    }

    /// Returns the instruction's bytes, in the machine's order as the kernel wants them.
    pub(super) fn bytes(self) -> [u8; INSTRUCTION_BYTES] {
        // The two register numbers share a byte, whose halves change places with the byte order.
        let registers =
            if cfg!(target_endian = "big") { self.registers.rotate_left(4) } else { self.registers };
        let [o0, o1] = self.offset.to_ne_bytes();
        let [i0, i1, i2, i3] = self.immediate.to_ne_bytes();
        [self.code, registers, o0, o1, i0, i1, i2, i3]
    }
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (to, from) = (self.registers & 0xf, self.registers >> 4);
        write!(f, "{:02x} r{to} r{from} {:+} {:#x}", self.code, self.offset, self.immediate)
    }
}

const NONE: Register = Register(0);

/// A program in the making.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    instructions: Vec<Instruction>,
    /// Where labels are, once that is known.
    places: Vec<Option<usize>>,
    /// Jumps, and where they lead.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// Makes a label without a place.
    pub(super) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// Puts a label in front of the next instruction.
    pub(super) fn place(&mut self, label: Label) {
        let here = self.instructions.len();
        if let Some(place) = self.places.get_mut(label.0) {
            *place = Some(here);
        }
    }

    fn push(&mut self, code: u8, to: Register, from: Register, offset: i16, immediate: i32) {
        self.instructions.push(Instruction::new(code, to, from, offset, immediate));
    }

    fn push_jump(&mut self, code: u8, to: Register, from: Register, immediate: i32, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.push(code, to, from, 0, immediate);
    }

    /// Loads what `from` points to, `offset` bytes further; in the machine's byte order, without sign.
    pub(super) fn load(&mut self, width: Width, to: Register, from: Register, offset: i16) {
        let code = match width {
            Width::Byte => code::LOAD_BYTE,
            Width::Half => code::LOAD_HALF,
            Width::Word => code::LOAD_WORD,
        };
        self.push(code, to, from, offset, 0);
    }

    /// Loads the map with this descriptor.
    pub(super) fn load_map(&mut self, to: Register, descriptor: i32) {
        self.push(code::LOAD_IMMEDIATE_64, to, Register(MAP_DESCRIPTOR), 0, descriptor);
        self.push(0, NONE, NONE, 0, 0);
    }

    /// Copies a register.
    pub(super) fn copy(&mut self, to: Register, from: Register) {
        self.push(code::MOVE, to, from, 0, 0);
    }

    /// Copies a register's lower 32 bits.
    pub(super) fn copy_word(&mut self, to: Register, from: Register) {
        self.push(code::MOVE_WORD, to, from, 0, 0);
    }

    /// Shifts to the right.
    pub(super) fn shift_right(&mut self, to: Register, bits: i32) {
        self.push(code::SHIFT_RIGHT_IMMEDIATE, to, NONE, 0, bits);
    }

    /// Sets a register.
    pub(super) fn set(&mut self, to: Register, value: i32) {
        self.push(code::MOVE_IMMEDIATE, to, NONE, 0, value);
    }

    /// Adds a register.
    pub(super) fn add(&mut self, to: Register, from: Register) {
        self.push(code::ADD, to, from, 0, 0);
    }

    /// Adds a number.
    pub(super) fn add_number(&mut self, to: Register, value: i32) {
        self.push(code::ADD_IMMEDIATE, to, NONE, 0, value);
    }

    /// Keeps the bits that `mask` has.
    pub(super) fn and(&mut self, to: Register, mask: i32) {
        self.push(code::AND_IMMEDIATE, to, NONE, 0, mask);
    }

    /// Turns 16 bits in network order into a number.
    pub(super) fn number_from16(&mut self, to: Register) {
        self.push(code::TO_BIG_ENDIAN, to, NONE, 0, 16);
        // Older verifiers take the result for any number.
        self.and(to, 0xffff);
    }

    /// Jumps always.
    pub(super) fn jump(&mut self, label: Label) {
        self.push_jump(code::JUMP, NONE, NONE, 0, label);
    }

    /// Jumps if both are the same.
    pub(super) fn jump_same(&mut self, left: Register, right: Register, label: Label) {
        self.push_jump(code::JUMP_SAME, left, right, 0, label);
    }

    /// Jumps if `left` is above `right`.
    pub(super) fn jump_above(&mut self, left: Register, right: Register, label: Label) {
        self.push_jump(code::JUMP_ABOVE, left, right, 0, label);
    }

    /// Jumps if `left` is below `right`.
    pub(super) fn jump_below(&mut self, left: Register, right: Register, label: Label) {
        self.push_jump(code::JUMP_BELOW, left, right, 0, label);
    }

    /// Jumps if `left` is below `number`.
    pub(super) fn jump_below_number(&mut self, left: Register, number: i32, label: Label) {
        self.push_jump(code::JUMP_BELOW_IMMEDIATE, left, NONE, number, label);
    }

    /// Jumps if the lower 32 bits of `left` are `number`.
    pub(super) fn jump_equal(&mut self, left: Register, number: i32, label: Label) {
        self.push_jump(code::JUMP32_EQUAL_IMMEDIATE, left, NONE, number, label);
    }

    /// Jumps if the lower 32 bits of `left` are not `number`.
    pub(super) fn jump_unequal(&mut self, left: Register, number: i32, label: Label) {
        self.push_jump(code::JUMP32_UNEQUAL_IMMEDIATE, left, NONE, number, label);
    }

    /// Calls a helper of the kernel.
    pub(super) fn call(&mut self, helper: i32) {
        self.push(code::CALL, NONE, NONE, 0, helper);
    }

    /// Ends the program; the result is in register 0.
    pub(super) fn exit(&mut self) {
        self.push(code::EXIT, NONE, NONE, 0, 0);
    }

    /// Returns the program. `None` if a label has no place, or one that is too far for a jump.
    pub(super) fn finish(mut self) -> Option<Vec<Instruction>> {
        for (at, label) in self.jumps {
            let place = (*self.places.get(label.0)?)?;
            let distance = i64::try_from(place).ok()? - i64::try_from(at).ok()? - 1;
            self.instructions.get_mut(at)?.offset = i16::try_from(distance).ok()?;
        }
        Some(self.instructions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_lead_to_their_labels_and_labels_without_a_place_are_noticed() {
        let mut assembler = Assembler::default();
        let (end, other) = (assembler.label(), assembler.label());
        assembler.jump_equal(Register(1), -1, end);
        assembler.set(Register(0), 2);
        assembler.place(end);
        assembler.exit();
        let program = assembler.finish().unwrap();
        assert_eq!(program[0].bytes(), [0x16, 0x01, 1, 0, 0xff, 0xff, 0xff, 0xff].map(u8::to_le));
        assert_eq!(program[2].bytes()[0], 0x95);

        let mut assembler = Assembler::default();
        let _ = assembler.label();
        assembler.jump(other);
        assert!(assembler.finish().is_none());
    }

    #[test]
    fn a_map_takes_two_instructions() {
        let mut assembler = Assembler::default();
        assembler.load_map(Register(1), 7);
        let program = assembler.finish().unwrap();
        assert_eq!(program.len(), 2);
        assert_eq!(program[0].to_string(), "18 r1 r1 +0 0x7");
    }
}
