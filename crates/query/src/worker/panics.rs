//! Where the last panic of this process was.
//!
//! The Parquet reader panics on some damaged pages. A worker survives that, because its partitions
//! run on tasks of their own; this tells a damaged file from a fault of the platform.

use std::sync::{Mutex, Once, PoisonError};

static LAST: Mutex<Option<String>> = Mutex::new(None);

/// Begins to note where panics happen, beside whatever else is done about them.
pub(super) fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let place = panic.location().map(|location| location.file().to_owned());
            *LAST.lock().unwrap_or_else(PoisonError::into_inner) = place;
            others(panic);
        }));
    });
}

/// True if the last panic was in the reader of Parquet files or of their compression.
pub(super) fn was_in_reader() -> bool {
    let place = LAST.lock().unwrap_or_else(PoisonError::into_inner).take();
    let readers = ["/parquet-", "/snap-", "/zstd-", "/lz4_flex-", "/arrow-"];
    place.is_some_and(|place| readers.iter().any(|reader| place.contains(reader)))
}
