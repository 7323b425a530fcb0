//! Executing a program whose arguments were prepared before: a child that borrows its parent's
//! memory must not allocate memory that would never be freed.

use std::ffi::{CString, NulError, c_char};
use std::io;

/// A program with its arguments and its complete environment, in the kernel's form.
#[derive(Debug)]
pub struct ExecProgram {
    arguments: Strings,
    environment: Strings,
}

impl ExecProgram {
    /// Prepares a program. `command` is the path of the program and its arguments.
    ///
    /// # Errors
    /// An argument contains a NUL character.
    pub fn new(
        command: &[impl AsRef<str>],
        environment: &[(impl AsRef<str>, impl AsRef<str>)],
    ) -> Result<Self, NulError> {
        let pairs = environment.iter().map(|(name, value)| {
            let name = name.as_ref();
            let value = value.as_ref();
            format!("{name}={value}")
        });
        Ok(Self {
            arguments: Strings::new(command.iter().map(|part| part.as_ref().to_owned()))?,
            environment: Strings::new(pairs)?,
        })
    }

    /// Executes the program; returns only with an error.
    pub fn execute(&self) -> io::Error {
        let path = self.arguments.pointers[0];
        if path.is_null() {
            return io::ErrorKind::InvalidInput.into();
        }
        let arguments = self.arguments.pointers.as_ptr();
        // SAFETY: both are arrays of C strings that `self` owns, terminated by a null pointer.
        unsafe { libc::execve(path, arguments, self.environment.pointers.as_ptr()) };
        io::Error::last_os_error()
    }
}

/// An array of C strings, terminated by a null pointer.
#[derive(Debug)]
struct Strings {
    // The targets of the pointers.
    _owned: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Strings {
    fn new(parts: impl Iterator<Item = String>) -> Result<Self, NulError> {
        let owned: Vec<CString> = parts.map(CString::new).collect::<Result<_, _>>()?;
        let pointers = owned.iter().map(|part| part.as_ptr()).chain([std::ptr::null()]).collect();
        Ok(Self { _owned: owned, pointers })
    }
}
