//! The limits that a function asks for: those that no instance could keep are refused when it is
//! deployed, before anything starts with them.

use snowmelt_api::FunctionOptions;
use snowmelt_node::{MAX_WRITABLE, may_be_writable};
use snowmelt_types::{ByteSize, Code, ErrorReport};

/// The least memory of an instance. With less the kernel cannot even make its process.
const MIN_MEMORY: ByteSize = ByteSize::mib(1);

/// The most prewarmed instances of a function: each of them is started at once.
const MAX_PREWARMED: u32 = 1000;

/// Refuses options that cannot be kept; only a program may have writable folders.
pub(crate) fn check(options: &FunctionOptions, is_program: bool) -> Result<(), ErrorReport> {
    let FunctionOptions { memory, timeout_ms, prewarmed, .. } = options;
    if *memory < MIN_MEMORY {
        let message = format!("memory of {memory} is too little for an instance");
        return refused(message, "give it at least 1MiB; a number without a unit is bytes");
    }
    if *timeout_ms == 0 {
        return refused(
            "a time limit of 0 ends every call".to_owned(),
            "give it some, as 10s or 5m",
        );
    }
    if *prewarmed > MAX_PREWARMED {
        let message = format!("{prewarmed} prewarmed instances are more than {MAX_PREWARMED}");
        return refused(message, "a burst starts many instances at once (fn burst)");
    }
    check_writable(options, is_program)
}

fn check_writable(options: &FunctionOptions, is_program: bool) -> Result<(), ErrorReport> {
    let folders = &options.writable;
    if folders.len() > MAX_WRITABLE {
        let message =
            format!("{} folders are writable, {MAX_WRITABLE} are the most", folders.len());
        return refused(message, "name a folder above several of them");
    }
    if let Some(folder) = folders.iter().find(|folder| !may_be_writable(folder)) {
        let message = format!("{} cannot be a writable folder", folder.display());
        let hint = "name an absolute path without `..`, outside of /proc, /dev and /sys, and of \
                    /tmp and /run only these themselves (/tmp is writable anyway)";
        return refused(message, hint);
    }
    if !folders.is_empty() && !is_program {
        let message = "only programs and functions in images have writable folders".to_owned();
        return refused(message, "write to /tmp, or run the function in an image (--image)");
    }
    Ok(())
}

fn refused(message: String, hint: &str) -> Result<(), ErrorReport> {
    Err(ErrorReport::new(Code::OPTION, message).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_instance_could_keep_is_refused() {
        let good = FunctionOptions::default;
        check(&good(), false).unwrap();
        check(&FunctionOptions { memory: ByteSize::mib(1), ..good() }, false).unwrap();
        for (bad, said) in [
            // Meant as MiB.
            (FunctionOptions { memory: ByteSize(256), ..good() }, "256 B is too little"),
            (FunctionOptions { timeout_ms: 0, ..good() }, "time limit of 0"),
            (FunctionOptions { prewarmed: 100_000, ..good() }, "100000 prewarmed"),
            (FunctionOptions { writable: vec!["/proc".into()], ..good() }, "/proc cannot be"),
            (FunctionOptions { writable: vec!["/srv".into()], ..good() }, "only programs"),
        ] {
            let refused = check(&bad, false).unwrap_err();
            assert_eq!(refused.code, Code::OPTION.code);
            assert!(refused.message.contains(said), "{refused}");
        }
        let folders = vec!["/srv".into(), "/run".into(), "/tmp".into()];
        check(&FunctionOptions { writable: folders, ..good() }, true).unwrap();
    }
}
