//! The checks of a spec before anything is made for it.
//!
//! Invariant: what passes can be encoded for the kernel, and names no user, folder or variable that
//! a sandbox must not have.

use std::os::unix::ffi::OsStrExt;

use crate::message::StartFailure;
use crate::spec::{MAX_WRITABLE, ProcessSettings, SandboxSpec, may_be_writable};

/// Refuses a spec for this reason.
pub(super) fn refusal(reason: impl Into<String>) -> StartFailure {
    StartFailure::Spec { reason: reason.into() }
}

/// Checks the command, the process settings and the environment of a program.
pub(super) fn check(spec: &SandboxSpec) -> Result<(), StartFailure> {
    let absolute = spec.command.first().is_some_and(|program| program.starts_with('/'));
    if !absolute {
        return Err(refusal("its program is not an absolute path"));
    }
    if spec.command.iter().any(|part| part.contains('\0')) {
        return Err(refusal("an argument contains a NUL character"));
    }
    check_process(&spec.process)?;
    check_env(&spec.env)
}

fn check_process(process: &ProcessSettings) -> Result<(), StartFailure> {
    let ProcessSettings { user, group, working_folder, writable, huge_pages: _ } = process;
    // The kernel takes the largest id for "unchanged".
    if [user, group].iter().any(|id| matches!(**id, 0 | u32::MAX)) {
        return Err(refusal("its user or group is root or an invalid id"));
    }
    if !working_folder.is_absolute() || working_folder.as_os_str().as_bytes().contains(&0) {
        return Err(refusal("its working folder is not an absolute path"));
    }
    if writable.len() > MAX_WRITABLE || !writable.iter().all(|folder| may_be_writable(folder)) {
        return Err(refusal("it has too many writable folders, or one that cannot be writable"));
    }
    Ok(())
}

/// Checks that each variable has a valid name and no NUL character.
pub(super) fn check_env(env: &[(String, String)]) -> Result<(), StartFailure> {
    let bad = env.iter().find(|(name, value)| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    });
    match bad {
        Some((name, _)) => Err(refusal(format!("the environment variable `{name}` is not valid"))),
        None => Ok(()),
    }
}
