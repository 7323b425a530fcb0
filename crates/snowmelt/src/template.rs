//! `snowmelt fn new`: a folder with an example handler.

use std::path::Path;

use snowmelt_types::{Code, ErrorReport};

use crate::args::{NewArgs, RuntimeName};
use crate::failure::Outcome;
use crate::printer::Printer;
use crate::text;

/// Path in the folder, and content.
type Files = [(&'static str, &'static str)];

const PYTHON: &Files =
    &[("handler.py", include_str!("../../../runtimes/python/example/handler.py"))];
const NODE: &Files = &[("handler.mjs", include_str!("../../../runtimes/node/example/handler.mjs"))];
const JAVA: &Files = &[("Hello.java", include_str!("../../../runtimes/java/example/Hello.java"))];
const GO: &Files = &[
    ("go.mod", include_str!("../../../runtimes/go/go.mod")),
    ("main.go", include_str!("../../../runtimes/go/main.go")),
    ("snowmelt/serve.go", include_str!("../../../runtimes/go/snowmelt/serve.go")),
    ("snowmelt/failure.go", include_str!("../../../runtimes/go/snowmelt/failure.go")),
];

/// Creates the folder and prints the next commands.
///
/// # Errors
/// `SM-0110` if the folder exists or cannot be created.
pub fn run(args: &NewArgs, printer: Printer) -> Outcome {
    let (files, next): (&Files, &[&str]) = match args.runtime {
        RuntimeName::Python => (PYTHON, &["snowmelt fn deploy hello handler.py"]),
        RuntimeName::Node => (NODE, &["snowmelt fn deploy hello handler.mjs"]),
        RuntimeName::Java => (JAVA, &["snowmelt fn deploy hello Hello.java"]),
        RuntimeName::Go => (
            GO,
            &[
                "CGO_ENABLED=0 go build -o handler .",
                "snowmelt fn deploy hello handler --runtime go",
            ],
        ),
    };
    create(&args.folder, files)?;
    printer.note(&format!("created {}; continue with", args.folder.display()));
    printer.note(&format!("  cd {}", args.folder.display()));
    next.iter().for_each(|line| printer.note(&format!("  {line}")));
    Ok(0)
}

fn create(folder: &Path, files: &Files) -> Result<(), ErrorReport> {
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
