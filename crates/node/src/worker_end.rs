//! Why the sandbox of a query worker has ended, for users.

use snowmelt_types::{ByteSize, Code, End, ErrorReport};

/// Why a worker has ended.
pub(crate) fn worker_report(end: &End, output: &[String]) -> ErrorReport {
    let report =
        |code| ErrorReport::new(code, format!("a worker {end}")).excerpt(output.iter().cloned());
    match end {
        End::OutOfMemory { limit, .. } => {
            let twice = ByteSize(limit.bytes() * 2);
            report(Code::WORKER_MEMORY).hint(format!(
                "give each worker more (--memory {}MiB), or use more workers",
                twice.bytes() >> 20
            ))
        }
        End::SpawnerLost => report(Code::SPAWNER_LOST).hint(SPAWNER_REPLACED),
        _ => report(Code::WORKER_LOST),
    }
}

/// What a user does whose query was lost with the spawner.
pub(crate) const SPAWNER_REPLACED: &str = "run the query again: another spawner is started";
