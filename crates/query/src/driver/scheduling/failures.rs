//! Why a query fails when tasks are lost.

use snowmelt_types::{Code, ErrorReport};

use crate::Error;

/// The error of a task whose workers were lost too often.
pub(crate) fn retries_exhausted(task: u32, retries: u32, why: ErrorReport) -> Error {
    let mut report = why;
    if report.code == Code::WORKER_LOST.code {
        let attempts = retries + 1;
        report.message =
            format!("task {task} lost its worker {attempts} times: {}", report.message);
        report.hint.get_or_insert_with(|| {
            "the machine may be short of memory: try fewer workers, or more --memory".to_owned()
        });
    }
    Error::Task(Box::new(report))
}

/// The error of a task that had to run again too often, because outputs were lost.
pub(crate) fn made_too_often(task: u32, attempts: u32, why: ErrorReport) -> Error {
    let message = format!("task {task} was started {attempts} times: {}", why.message);
    let hint = "workers or hosts end again and again: `snowmelt doctor` shows memory and limits";
    let report = ErrorReport::new(Code::WORKER_LOST, message);
    Error::Task(Box::new(report.excerpt(why.excerpt).hint(hint)))
}

/// The error of a task that would have to run again and may give other rows, after rows that depend
/// on its first run were returned.
pub(crate) fn passed_on(task: u32) -> Error {
    let message = format!(
        "the output of task {task} was lost after rows that depend on it were returned: it may give \
         other rows, or another order, if it runs again"
    );
    let report = ErrorReport::new(Code::WORKER_LOST, message);
    Error::Task(Box::new(report.hint("run the query again")))
}

/// The error of a platform that named an output which the task does not read.
pub(crate) fn not_an_input(task: u32, lost: u32) -> Error {
    let message =
        format!("task {task} was refused the output of task {lost}, which it does not read");
    Error::Task(Box::new(ErrorReport::new(Code::PROTOCOL, message)))
}
