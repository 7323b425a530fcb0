//! The functions that the kernel maps into each process to read clocks, and the functions that
//! replace them.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use object::{Object, ObjectSymbol};

/// The vDSO of this process, which all other processes of its machine have too.
pub(super) struct Vdso {
    image: Vec<u8>,
}

/// The machine code of one function of a wall clock that is some seconds ahead.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Code {
    offset: u64,
    /// The kernel's function, whole: its loops may go back to where it begins.
    kernels: Vec<u8>,
    /// The bytes that are written over the first bytes of the kernel's function.
    bytes: Vec<u8>,
    is_ahead: bool,
}

/// The change in memory that sets the clock of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClockChange {
    /// No change: the clock was never set, and stays right.
    None,
    /// The kernel's function is replaced, so no thread may be in it.
    Function,
    /// Only the seconds of a replaced function change. The instructions stay, so a thread may be at
    /// any of them.
    Seconds,
}

/// A function, and what replaces it for a number of seconds.
type Replaced = (&'static str, fn(i64) -> Vec<u8>);

impl Vdso {
    pub fn own() -> io::Result<Self> {
        let range = mapped("self")?.ok_or_else(|| unusable("this process has no vDSO"))?;
        let mut image = vec![0; (range.end - range.start) as usize];
        File::open("/proc/self/mem")?.read_exact_at(&mut image, range.start)?;
        Ok(Self { image })
    }

    /// The ELF header of the vDSO, which differs between kinds of programs.
    pub fn header(&self) -> &[u8] {
        &self.image[..self.image.len().min(64)]
    }

    /// Returns the functions of a wall clock that is `ahead` seconds ahead.
    pub fn clock(&self, ahead: i64) -> io::Result<Vec<Code>> {
        if REPLACED.is_empty() {
            return Err(unusable("there is no code for this kind of processor"));
        }
        let file = object::File::parse(&*self.image).map_err(io::Error::other)?;
        let code = |(name, replacement): &Replaced| {
            let mut symbols = file.dynamic_symbols();
            let symbol = symbols.find(|symbol| symbol.name() == Ok(*name));
            let symbol = symbol.ok_or_else(|| unusable(&format!("the vDSO has no {name}")))?;
            let offset = symbol.address();
            let bytes = replacement(ahead);
            if symbol.size() < bytes.len() as u64 {
                return Err(unusable(&format!("{name} of the vDSO is too short")));
            }
            let at = offset as usize;
            let kernels = self.image.get(at..at + symbol.size() as usize);
            let kernels = kernels.ok_or_else(|| unusable("the vDSO is not whole"))?.to_vec();
            Ok(Code { offset, kernels, bytes, is_ahead: ahead != 0 })
        };
        REPLACED.iter().map(code).collect()
    }
}

impl Code {
    /// The addresses of the function in a process whose vDSO is at `base`.
    pub fn range(&self, base: u64) -> Range<u64> {
        let start = base + self.offset;
        start..start + self.kernels.len() as u64
    }

    /// Returns the change to the memory of a process whose vDSO is at `base`.
    pub fn change(&self, memory: &File, base: u64) -> io::Result<ClockChange> {
        let mut found = vec![0; self.kernels.len()];
        memory.read_exact_at(&mut found, self.range(base).start)?;
        Ok(match found == self.kernels {
            true if self.is_ahead => ClockChange::Function,
            true => ClockChange::None,
            false => ClockChange::Seconds,
        })
    }

    /// Writes the change to the memory of a process whose vDSO is at `base`.
    pub fn apply(&self, memory: &File, base: u64) -> io::Result<()> {
        match self.change(memory, base)? {
            ClockChange::None => Ok(()),
            ClockChange::Function | ClockChange::Seconds => {
                memory.write_all_at(&self.bytes, self.range(base).start)
            }
        }
    }
}

/// Finds the vDSO of a process. `None` if the process has none.
pub(super) fn mapped(pid: &str) -> io::Result<Option<Range<u64>>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"));
    let range = line.and_then(|line| line.split(' ').next()?.split_once('-'));
    let address = |text: &str| u64::from_str_radix(text, 16).map_err(io::Error::other);
    range.map(|(start, end)| Ok(address(start)?..address(end)?)).transpose()
}

fn unusable(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, why)
}

#[cfg(target_arch = "x86_64")]
const REPLACED: &[Replaced] = &[
    ("__vdso_clock_gettime", x86_64::clock_gettime),
    ("__vdso_gettimeofday", x86_64::gettimeofday),
    ("__vdso_time", x86_64::time),
];

#[cfg(not(target_arch = "x86_64"))]
const REPLACED: &[Replaced] = &[];

/// The replacing functions. Each makes the system call and adds the seconds to its result. A system
/// call overwrites `rcx` and `r11`, which a function may overwrite as well.
///
/// Invariant: the code for two numbers of seconds differs in the operand of one instruction only.
#[cfg(target_arch = "x86_64")]
mod x86_64 {
    /// `mov rcx, seconds`
    fn rcx(seconds: i64) -> impl Iterator<Item = u8> {
        [0x48, 0xb9].into_iter().chain(seconds.to_le_bytes())
    }

    pub fn clock_gettime(ahead: i64) -> Vec<u8> {
        let call = [
            0xb8, 228, 0, 0, 0, // mov eax, SYS_clock_gettime
            0x0f, 0x05, // syscall
            0x85, 0xc0, // test eax, eax
            0x75, 22, // jne end: it failed
            0x85, 0xff, // test edi, edi
            0x74, 5, // je add: CLOCK_REALTIME
            0x83, 0xff, 5, // cmp edi, CLOCK_REALTIME_COARSE
            0x75, 13, // jne end
        ];
        let add = [
            0x48, 0x01, 0x0e, // add [rsi], rcx
            0xc3, // end: ret
        ];
        call.into_iter().chain(rcx(ahead)).chain(add).collect()
    }

    pub fn gettimeofday(ahead: i64) -> Vec<u8> {
        let call = [
            0xb8, 96, 0, 0, 0, // mov eax, SYS_gettimeofday
            0x0f, 0x05, // syscall
            0x85, 0xc0, // test eax, eax
            0x75, 18, // jne end: it failed
            0x48, 0x85, 0xff, // test rdi, rdi
            0x74, 13, // je end: nobody wants it
        ];
        let add = [
            0x48, 0x01, 0x0f, // add [rdi], rcx
            0xc3, // end: ret
        ];
        call.into_iter().chain(rcx(ahead)).chain(add).collect()
    }

    pub fn time(ahead: i64) -> Vec<u8> {
        let call = [
            0xb8, 201, 0, 0, 0, // mov eax, SYS_time
            0x0f, 0x05, // syscall
        ];
        let add = [
            0x48, 0x01, 0xc8, // add rax, rcx
            0x48, 0x85, 0xff, // test rdi, rdi
            0x74, 3, // je end: nobody wants it there
            0x48, 0x89, 0x07, // mov [rdi], rax
            0xc3, // end: ret
        ];
        call.into_iter().chain(rcx(ahead)).chain(add).collect()
    }
}
