//! A shell script as the code of a function: the script is sent beside a Python function that runs
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;
use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::{CodeFile, SourceCode};

use super::files::unreadable;

/// The function that runs a script, in [`RUNNER`].
pub const HANDLER: &str = "shell_script";

const RUNNER_FILE: &str = "snowmelt_script.py";
const RUNNER: &str = include_str!("../../../../../runtimes/shell/snowmelt_script.py");

/// The file with the facts that the function has to know about its script.
const GIVEN_FILE: &str = "snowmelt_script.json";

/// The interpreter of a script whose first line names none.
const DEFAULT_SHELL: &str = "/bin/sh";

#[derive(Serialize)]
struct ShellScript<'a> {
    script: &'a str,
    interpreter: Vec<&'a str>,
    secrets: BTreeSet<&'a str>,
}

/// Whether a file is a script for a shell, by its extension or its first line.
pub fn is_script(path: &Path) -> bool {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("sh" | "bash") => true,
        Some(_) => false,
        None => first_line(path).is_some_and(|line| {
            let mut words = line.trim_start_matches("#!").split_whitespace();
            let shell = words.next_back().and_then(|word| word.rsplit('/').next());
            line.starts_with("#!") && matches!(shell, Some("sh" | "bash" | "dash"))
        }),
    }
}

/// Reads a script, with the names of the secrets that it gets as variables.
///
/// # Errors
/// `SM-0110` for a file that cannot be read, and for a handler, which a script does not have.
pub fn read<'s>(
    path: &Path,
    handler: &str,
    secrets: impl IntoIterator<Item = &'s String>,
) -> Result<SourceCode, ErrorReport> {
    if !handler.is_empty() {
        let message = format!("a script has no function `{handler}`");
        return Err(ErrorReport::new(Code::OPTION, message)
            .hint("name the file alone: the whole script runs for each call"));
    }
    let text = std::fs::read(path).map_err(|error| unreadable(path, &error))?;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("script.sh");
    if name == RUNNER_FILE || name == GIVEN_FILE {
        let message = format!("a script cannot have the name {name}");
        return Err(ErrorReport::new(Code::OPTION, message).hint("give the file another name"));
    }
    let line = first_line(path).unwrap_or_default();
    let named: Vec<&str> =
        line.strip_prefix("#!").map(|rest| rest.split_whitespace().collect()).unwrap_or_default();
    let given = ShellScript {
        script: name,
        interpreter: if named.is_empty() { vec![DEFAULT_SHELL] } else { named },
        secrets: secrets.into_iter().map(String::as_str).collect(),
    };
    let given = serde_json::to_vec(&given)
        .map_err(|error| ErrorReport::new(Code::INTERNAL, error.to_string()))?;
    let files = BTreeMap::from([
        (RUNNER_FILE.to_owned(), CodeFile::new(RUNNER.as_bytes(), false)),
        (GIVEN_FILE.to_owned(), CodeFile::new(&given, false)),
        (name.to_owned(), CodeFile::new(&text, true)),
    ]);
    Ok(SourceCode::Folder { file: RUNNER_FILE.to_owned(), files })
}

fn first_line(path: &Path) -> Option<String> {
    let mut start = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    std::io::Read::read_to_end(&mut std::io::Read::take(file, 256), &mut start).ok()?;
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    std::str::from_utf8(line).ok().map(|line| line.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_known_by_extension_or_first_line_and_keep_their_interpreter() {
        let folder = tempfile::tempdir().unwrap();
        let written = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let secret = "KEY".to_owned();
        let given = |path: &Path| {
            let SourceCode::Folder { file, files } = read(path, "", [&secret]).unwrap() else {
                panic!()
            };
            assert_eq!((&*file, files.len()), (RUNNER_FILE, 3));
            String::from_utf8(files[GIVEN_FILE].bytes().unwrap()).unwrap()
        };
        let plain = written("a.sh", "echo 1\n");
        assert!(is_script(&plain));
        let expected = r#"{"script":"a.sh","interpreter":["/bin/sh"],"secrets":["KEY"]}"#;
        assert_eq!(given(&plain), expected);
        let named = written("run", "#!/usr/bin/env bash\r\necho 1\n");
        assert!(is_script(&named) && given(&named).contains(r#"["/usr/bin/env","bash"]"#));
        assert!(!is_script(&written("tool", "#!/usr/bin/env python3\n")));
        assert!(!is_script(&written("a.py", "#!/bin/sh\n")));
        assert!(!is_script(Path::new("/no/such/file")));
        let refused = read(&plain, "main", []).unwrap_err();
        assert!(refused.message.contains("no function `main`"), "{refused}");
        assert_eq!(read(Path::new("/no.sh"), "", []).unwrap_err().code, "SM-0110");
    }
}
