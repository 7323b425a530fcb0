//! `snowmelt fn new`: a folder with an example handler.

use std::path::Path;

use snowmelt_types::{Code, ErrorReport, FunctionName};

use crate::args::{NewArgs, RuntimeName};
use crate::terminal::{CommandOutcome, Printer, text};

/// Path in the folder, and content.
type TemplateFiles = [(&'static str, &'static str)];

const PYTHON: &TemplateFiles =
    &[("handler.py", include_str!("../../../../runtimes/python/example/handler.py"))];
const NODE: &TemplateFiles =
    &[("handler.mjs", include_str!("../../../../runtimes/node/example/handler.mjs"))];
const JAVA: &TemplateFiles =
    &[("Hello.java", include_str!("../../../../runtimes/java/example/Hello.java"))];
const SHELL: &TemplateFiles =
    &[("handler.sh", include_str!("../../../../runtimes/shell/example/handler.sh"))];
const GO: &TemplateFiles = &[
    ("go.mod", include_str!("../../../../runtimes/go/go.mod")),
    ("main.go", include_str!("../../../../runtimes/go/main.go")),
    ("snowmelt/serve.go", include_str!("../../../../runtimes/go/snowmelt/serve.go")),
    ("snowmelt/failure.go", include_str!("../../../../runtimes/go/snowmelt/failure.go")),
];

/// A folder with an example, and the code in the command that deploys it.
struct FunctionTemplate {
    files: &'static TemplateFiles,
    code: &'static str,
}

impl FunctionTemplate {
    fn of(runtime: RuntimeName) -> Self {
        match runtime {
            RuntimeName::Python => Self { files: PYTHON, code: "handler.py" },
            RuntimeName::Node => Self { files: NODE, code: "handler.mjs" },
            RuntimeName::Java => Self { files: JAVA, code: "Hello.java" },
            RuntimeName::Shell => Self { files: SHELL, code: "handler.sh" },
            RuntimeName::Go => Self { files: GO, code: "handler --runtime go" },
        }
    }
}

/// Creates the folder and prints the next commands, with the folder's name for the function.
///
/// # Errors
/// `SM-0110` if the folder exists or cannot be created.
pub fn run(args: &NewArgs, printer: Printer) -> CommandOutcome {
    let FunctionTemplate { files, code } = FunctionTemplate::of(args.runtime);
    create(&args.folder, files)?;
    let name = name_of(&args.folder);
    printer.note(&format!("created {}; continue with", args.folder.display()));
    let folder = args.folder.to_string_lossy();
    let folder = shlex::try_quote(&folder).unwrap_or_else(|_| (&*folder).into());
    printer.note(&format!("  cd {folder}"));
    if matches!(args.runtime, RuntimeName::Go) {
        printer.note("  CGO_ENABLED=0 go build -o handler .");
    }
    printer.note(&format!("  snowmelt fn deploy {name} {code}"));
    printer.note(&format!("  snowmelt fn call {name} --data '{{\"name\": \"Ada\"}}'"));
    Ok(0)
}

/// The name of the function: the folder's name, as far as a function can have it.
fn name_of(folder: &Path) -> String {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let name = absolute.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let name: String = name.chars().map(allowed).collect();
    match name.parse::<FunctionName>() {
        Ok(name) => name.to_string(),
        Err(_) => "hello".to_owned(),
    }
}

fn create(folder: &Path, files: &TemplateFiles) -> Result<(), ErrorReport> {
    std::fs::create_dir(folder).map_err(|error| failed(folder, &error))?;
    for (name, content) in files {
        let path = folder.join(name);
        let written = std::fs::create_dir_all(path.parent().unwrap_or(folder))
            .and_then(|()| std::fs::write(&path, content));
        written.map_err(|error| failed(&path, &error))?;
    }
    Ok(())
}

fn failed(path: &Path, error: &std::io::Error) -> ErrorReport {
    let message = format!("{} cannot be created: {}", path.display(), text::reason(error));
    ErrorReport::new(Code::OPTION, message).hint("name a folder that does not exist")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_has_the_name_of_its_folder() {
        for (folder, name) in [
            ("greet", "greet"),
            ("a/my_app-2/", "my_app-2"),
            ("new app", "new-app"),
            ("/", "hello"),
        ] {
            assert_eq!(name_of(Path::new(folder)), name);
        }
    }
}
