//! Removes paths of this machine from errors that clients on other hosts are shown. They say
//! nothing to these clients, and how a machine is set up is not for tenants.

use std::path::Path;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use snowmelt_types::ErrorReport;

/// The text that stands in the place of a path.
const INSTEAD: &str = "a file of the platform";

/// The longest error in which paths are looked for, in bytes. A longer one has the answer of a
/// function.
const MAX_ERROR: usize = 1 << 20;

/// The folders of a platform. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Folders(std::sync::Arc<[String]>);

impl Folders {
    pub fn new<'a>(folders: impl IntoIterator<Item = &'a Path>) -> Self {
        let shown = folders.into_iter().map(|folder| folder.display().to_string());
        Self(shown.filter(|folder| folder.len() > 1).collect())
    }

    /// Returns the text without paths that lead into the folders.
    fn hidden(&self, text: &str) -> String {
        let ends = |c: char| c.is_whitespace() || "`'\",;:()".contains(c);
        let mut text = text.to_owned();
        for folder in &*self.0 {
            // One pass into a new text: tenants choose parts of errors, and their length.
            let mut shown = String::with_capacity(text.len());
            let mut rest = text.as_str();
            while let Some(begin) = rest.find(folder.as_str()) {
                shown.push_str(&rest[..begin]);
                shown.push_str(INSTEAD);
                let path = &rest[begin..];
                rest = &path[path.find(ends).unwrap_or(path.len())..];
            }
            shown.push_str(rest);
            text = shown;
        }
        text
    }

    /// Returns the report without paths that lead into the folders.
    pub fn hide(&self, mut report: ErrorReport) -> ErrorReport {
        report.message = self.hidden(&report.message);
        report.hint = report.hint.map(|hint| self.hidden(&hint));
        report.excerpt = report.excerpt.iter().map(|line| self.hidden(line)).collect();
        report
    }

    fn hide_in(&self, problem: &mut Value) {
        for name in ["message", "hint"] {
            if let Some(Value::String(text)) = problem.get_mut(name) {
                *text = self.hidden(text);
            }
        }
        for line in problem.get_mut("excerpt").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Value::String(text) = line {
                *text = self.hidden(text);
            }
        }
    }
}

/// Middleware that removes paths from the errors of requests.
pub(crate) async fn hide_paths(
    State(folders): State<Folders>,
    request: Request,
    next: Next,
) -> Response {
    let response = next.run(request).await;
    let kind = response.headers().get(header::CONTENT_TYPE);
    if kind.is_none_or(|kind| kind != "application/problem+json") {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let Ok(bytes) = Limited::new(body, MAX_ERROR).collect().await else {
        head.headers.remove(header::CONTENT_LENGTH);
        return Response::from_parts(head, Body::empty());
    };
    let bytes = bytes.to_bytes();
    let Ok(mut problem) = serde_json::from_slice::<Value>(&bytes) else {
        return Response::from_parts(head, Body::from(bytes));
    };
    folders.hide_in(&mut problem);
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, Body::from(problem.to_string()))
}

#[cfg(test)]
mod tests {
    use snowmelt_types::Code;

    use super::*;

    #[test]
    fn paths_of_the_platform_are_hidden_and_others_are_not() {
        let folders = Folders::new([Path::new("/var/lib/snowmelt"), Path::new("/")]);
        let message = "cannot use /var/lib/snowmelt/state.redb: No space left on device; see \
                       `/var/lib/snowmelt/code/ab` and /data/x";
        let report = ErrorReport::new(Code::DISK_FULL, message)
            .hint("look at /var/lib/snowmelt")
            .excerpt(["File \"/var/lib/snowmelt/a b\", line 1".to_owned()]);
        let hidden = folders.hide(report.clone());
        assert_eq!(
            hidden.message,
            "cannot use a file of the platform: No space left on device; see `a file of the \
             platform` and /data/x"
        );
        assert_eq!(hidden.hint.as_deref(), Some("look at a file of the platform"));
        assert_eq!(hidden.excerpt, ["File \"a file of the platform b\", line 1"]);
        let mut problem = serde_json::to_value(&report).unwrap();
        folders.hide_in(&mut problem);
        assert_eq!(problem, serde_json::to_value(&hidden).unwrap());
    }

    /// To look for each path from the beginning would take minutes.
    #[test]
    fn many_paths_are_hidden_in_one_pass() {
        let folders = Folders::new([Path::new("/run/snowmelt")]);
        let many = "/run/snowmelt/x,".repeat(1 << 20);
        let hidden = folders.hidden(&many);
        assert_eq!(hidden.len(), (INSTEAD.len() + 1) << 20);
    }
}
