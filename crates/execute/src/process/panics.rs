//! Panics of readers of damaged bytes: caught, and the location of the last one recorded.
//!
//! The Parquet reader panics on some damaged pages. A worker survives that, because its partitions
//! run on separate tasks; the location distinguishes a damaged file from a bug.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, Once, PoisonError};

use snowmelt_types::{Code, ErrorReport};

static LAST: Mutex<Option<String>> = Mutex::new(None);

/// Installs a panic hook that records the location, and then calls the previous hook.
pub fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let file = panic.location().map(|location| location.file().to_owned());
            *LAST.lock().unwrap_or_else(PoisonError::into_inner) = file;
            previous(panic);
        }));
    });
}

/// Runs a reader over bytes that may be damaged, and catches its panics.
pub fn catch_panic<T>(read: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(read)).map_err(|_| "its footer is damaged".to_owned())
}

/// Returns the error of a panic in this process. `what` names the part that panicked.
pub fn report(what: &str) -> ErrorReport {
    ErrorReport::new(Code::INTERNAL, format!("{what} panicked"))
        .hint("its log has the location: please report it with the SQL")
}

/// True if the last panic was in the Parquet reader or in a decompressor.
pub(crate) fn was_in_reader() -> bool {
    let file = LAST.lock().unwrap_or_else(PoisonError::into_inner).take();
    let readers = ["/parquet-", "/snap-", "/zstd-", "/lz4_flex-", "/arrow-"];
    file.is_some_and(|file| readers.iter().any(|reader| file.contains(reader)))
}
