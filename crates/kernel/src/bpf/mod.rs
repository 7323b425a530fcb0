//! eBPF programs: maps, programs, and links that attach programs to a control group.
//!
//! Programs are assembled by [`Assembler`], so that the build needs no other compiler. All three
//! are descriptors, and the kernel frees them when the last descriptor is closed.

mod assemble;

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub use assemble::{Assembler, Helper, Label, Register, Size};

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const MAP_DELETE: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const GET_INFO: libc::c_int = 15;
const LINK_CREATE: libc::c_int = 28;
const MAP_TYPE_HASH: u32 = 1;
/// Entries are allocated on insertion, not all in advance.
const NO_PREALLOC: u32 = 1;
const LICENSE: &CStr = c"Apache-2.0";
/// Enough for the verifier's log of a small program.
const LOG: usize = 64 << 10;

/// The place in the kernel where a program runs (`enum bpf_attach_type`), by the kernel's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Hook {
    InetIngress = 0,
    SocketCreate = 2,
    Bind4 = 8,
    Bind6 = 9,
    Connect4 = 10,
    Connect6 = 11,
    Send4 = 14,
    Send6 = 15,
    SetSockOption = 22,
    /// Sees packets that arrive on a device, as a filter of its queueing discipline.
    Packets = 46,
}

impl Hook {
    /// `enum bpf_prog_type`.
    fn program_type(self) -> u32 {
        match self {
            Self::InetIngress => 8,
            Self::SocketCreate => 9,
            Self::SetSockOption => 25,
            Self::Packets => 3,
            _ => 18,
        }
    }
}

/// A table shared by programs and this process.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    key: usize,
    value: usize,
}

#[repr(C)]
#[derive(Default)]
struct CreateMap {
    kind: u32,
    key: u32,
    value: u32,
    most: u32,
    flags: u32,
}

#[repr(C)]
struct Element {
    map: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct GetInfo {
    fd: u32,
    length: u32,
    info: u64,
}

/// The first fields of `struct bpf_map_info`.
#[repr(C)]
#[derive(Default)]
struct MapInfo {
    kind: u32,
    id: u32,
    key: u32,
    value: u32,
}

impl Map {
    /// A hash table of at most `most` entries, with keys and values of these sizes in bytes.
    pub fn hash(key: usize, value: usize, most: u32) -> io::Result<Self> {
        let attributes = CreateMap {
            kind: MAP_TYPE_HASH,
            key: key as u32,
            value: value as u32,
            most,
            flags: NO_PREALLOC,
        };
        // SAFETY: the attributes hold no pointers.
        let fd = unsafe { call(MAP_CREATE, &attributes) }?;
        Ok(Self { fd, key, value })
    }

    /// A table that another process has made; `EINVAL` if the descriptor is not one.
    pub fn received(fd: OwnedFd) -> io::Result<Self> {
        let mut info = MapInfo::default();
        let attributes = GetInfo {
            fd: fd.as_raw_fd() as u32,
            length: size_of::<MapInfo>() as u32,
            info: std::ptr::from_mut(&mut info) as u64,
        };
        // SAFETY: the kernel writes as many bytes as `info` has, within the call.
        unsafe { call_only(GET_INFO, &attributes) }?;
        // Of a program these are other numbers; no call for an entry accepts its descriptor.
        Ok(Self { fd, key: info.key as usize, value: info.value as usize })
    }

    /// Inserts or replaces an entry.
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.check(key, Some(value))?;
        let element = self.element(key, value.as_ptr() as u64);
        // SAFETY: key and value have the lengths of the map, which `check` has verified, and the
        // kernel reads them within the call.
        unsafe { call_only(MAP_UPDATE, &element) }
    }

    /// Removes an entry; `ENOENT` if it does not exist.
    pub fn remove(&self, key: &[u8]) -> io::Result<()> {
        self.check(key, None)?;
        // SAFETY: the key has the length of the map, and the kernel reads it within the call.
        unsafe { call_only(MAP_DELETE, &self.element(key, 0)) }
    }

    fn check(&self, key: &[u8], value: Option<&[u8]>) -> io::Result<()> {
        let fits = key.len() == self.key && value.is_none_or(|value| value.len() == self.value);
        if fits { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    fn element(&self, key: &[u8], value: u64) -> Element {
        let map = self.fd.as_raw_fd() as u32;
        Element { map, _pad: 0, key: key.as_ptr() as u64, value, flags: 0 }
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A program that the kernel has verified.
#[derive(Debug)]
pub struct VerifiedProgram {
    fd: OwnedFd,
    hook: Hook,
}

#[repr(C)]
struct LoadProgram {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    device: u32,
    hook: u32,
}

impl VerifiedProgram {
    /// Makes the kernel verify and load a program. The error contains the verifier's log.
    pub fn load(hook: Hook, assembler: Assembler) -> io::Result<Self> {
        let code = assembler.finish()?;
        match load(hook, &code, &mut []) {
            Ok(fd) => Ok(Self { fd, hook }),
            Err(refused) if refused.raw_os_error() == Some(libc::EPERM) => Err(refused),
            Err(refused) => {
                let mut log = vec![0; LOG];
                let Err(error) = load(hook, &code, &mut log) else { return Err(refused) };
                let log = String::from_utf8_lossy(&log);
                let log = log.trim_end_matches('\0').trim_end();
                Err(io::Error::new(error.kind(), format!("{error}: {log}")))
            }
        }
    }

    /// Runs the program for every process in a control group (version 2) and below, in addition to
    /// other attached programs, until the link is dropped.
    pub fn attach(&self, group: BorrowedFd<'_>) -> io::Result<ProgramLink> {
        #[repr(C)]
        struct CreateLink {
            program: u32,
            target: u32,
            hook: u32,
            flags: u32,
        }
        let attributes = CreateLink {
            program: self.fd.as_raw_fd() as u32,
            target: group.as_raw_fd() as u32,
            hook: self.hook as u32,
            flags: 0,
        };
        // SAFETY: the attributes hold no pointers.
        unsafe { call(LINK_CREATE, &attributes) }.map(|fd| ProgramLink { _fd: fd })
    }
}

impl AsFd for VerifiedProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn load(hook: Hook, code: &[u64], log: &mut [u8]) -> io::Result<OwnedFd> {
    let attributes = LoadProgram {
        kind: hook.program_type(),
        instructions: code.len() as u32,
        code: code.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_size: log.len() as u32,
        log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        kernel_version: 0,
        flags: 0,
        name: *b"snowmelt\0\0\0\0\0\0\0\0",
        device: 0,
        hook: if hook == Hook::Packets { 0 } else { hook as u32 },
    };
    // SAFETY: code and license are read within the call, and the log, to which only this function
    // has access, is written up to the given length.
    unsafe { call(PROG_LOAD, &attributes) }
}

/// An attached program; dropping it detaches the program.
#[derive(Debug)]
pub struct ProgramLink {
    _fd: OwnedFd,
}

/// A call that returns a descriptor.
///
/// # Safety
/// Addresses in the attributes must be valid for the command.
unsafe fn call<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the attributes have the given length; their pointers are the caller's promise.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>())
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
}

/// A call without a result.
///
/// # Safety
/// Addresses in the attributes must be valid for the command.
unsafe fn call_only<T>(command: libc::c_int, attributes: &T) -> io::Result<()> {
    // SAFETY: the attributes have the given length; their pointers are the caller's promise.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    #[test]
    fn entries_are_set_and_removed() {
        if !is_root() {
            return;
        }
        let map = Map::hash(8, 4, 2).unwrap();
        map.set(&[1; 8], &[2; 4]).unwrap();
        map.set(&[1; 8], &[3; 4]).unwrap();
        map.set(&[2; 8], &[3; 4]).unwrap();
        assert_eq!(map.set(&[3; 8], &[3; 4]).unwrap_err().raw_os_error(), Some(libc::E2BIG));
        map.remove(&[1; 8]).unwrap();
        assert_eq!(map.remove(&[1; 8]).unwrap_err().raw_os_error(), Some(libc::ENOENT));
        assert_eq!(map.set(&[3; 7], &[3; 4]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_received_map_is_the_one_of_the_process_that_made_it() {
        if !is_root() {
            return;
        }
        let map = Map::hash(8, 4, 2).unwrap();
        let received = Map::received(map.as_fd().try_clone_to_owned().unwrap()).unwrap();
        received.set(&[1; 8], &[2; 4]).unwrap();
        assert_eq!(received.set(&[1; 8], &[2; 5]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        map.remove(&[1; 8]).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(Map::received(file.into()).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn a_refused_program_is_reported_with_the_verifiers_reason() {
        if !is_root() {
            return;
        }
        let mut assembler = Assembler::new();
        assembler.load(Size::Double, Register::R0, Register::R9, 0);
        assembler.exit();
        let error = VerifiedProgram::load(Hook::Bind4, assembler).unwrap_err();
        assert!(error.to_string().contains("R9 !read_ok"), "{error}");
    }
}
