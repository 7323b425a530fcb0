//! The number of workers of a query.

use snowmelt_types::{Code, ErrorReport};

/// The most workers of one query.
const MAX_WORKERS: u32 = 4096;

/// Returns the requested number of workers, or one for each core of all hosts.
pub(super) fn workers(asked: u32, all_cores: u32) -> Result<u32, ErrorReport> {
    if asked > MAX_WORKERS {
        let message = format!("{asked} workers are more than one query may have");
        return Err(ErrorReport::new(Code::OPTION, message)
            .hint(format!("use at most {MAX_WORKERS} (--workers)")));
    }
    Ok(if asked == 0 { all_cores.clamp(1, MAX_WORKERS) } else { asked })
}

/// Returns the number of cores of this host.
pub(super) fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}
