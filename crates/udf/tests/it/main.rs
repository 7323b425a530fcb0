//! Sources are parsed by a real interpreter, and not run.

use std::path::PathBuf;
use std::process::Command;

use snowmelt_types::Report;
use snowmelt_udf::{SHARED_SETUP, Source, available, inspect_source};

/// The path of the interpreter itself, not of a shim.
fn python() -> PathBuf {
    let named = std::env::var_os("SNOWMELT_PYTHON").unwrap_or_else(|| "python3".into());
    let asked = Command::new(named).args(["-c", "import sys; print(sys.executable)"]).output();
    let path = String::from_utf8(asked.expect("these tests need Python").stdout).unwrap();
    PathBuf::from(path.trim())
}

fn read(text: &str) -> Source {
    inspect_source(&python(), "udfs.py", text).unwrap()
}

#[test]
fn packages_are_found_in_decorators_and_script_blocks() {
    let text = r#"
# /// script
# dependencies = ["rich"]
# ///
import snowmelt as sm
from snowmelt import udf

SHARED = ["idna", "six"]

@sm.udf(packages=["phonenumbers==8.13.*"], batch="arrow")
def a(x: str) -> str: ...

@udf(packages=SHARED)
def b(x: str) -> str: ...

@sm.function(memory="1GiB", packages=("six", "attrs"))
async def c(event): ...

@sm.udf
def d(x: str) -> str: ...

@other(packages=compute())
def e(x): ...
"#;
    let packages = ["phonenumbers==8.13.*", "idna", "six", "attrs", "rich"];
    let found = read(text);
    assert_eq!(found.packages, packages);
    assert_eq!(found.shared, ["rich"]);
    let groups = [vec!["phonenumbers==8.13.*"], vec!["idna", "six"], vec!["six", "attrs"]];
    assert_eq!(found.groups, groups);
}

#[test]
fn a_shared_set_up_is_an_import_of_the_runtime() {
    let with = |decorator: &str| {
        read(&format!("import snowmelt as sm\n{decorator}\ndef model(): return 1\n")).imports
    };
    for shared in ["@sm.setup(shared=True)", "@setup(shared=SHARED)"] {
        assert_eq!(with(shared), [SHARED_SETUP], "{shared}");
    }
    for own in ["@sm.setup", "@sm.setup(shared=False)", "@sm.udf(shared=True)"] {
        assert!(with(own).is_empty(), "{own}");
    }
}

#[test]
fn all_imports_are_found_except_those_for_type_checkers() {
    let text = r#"
from __future__ import annotations
import os, numpy.linalg as la
from typing import TYPE_CHECKING
from . import sibling
import snowmelt as sm
if TYPE_CHECKING:
    import expensive
else:
    import cheap
try:
    import ujson as json
except ImportError:
    import json
def f():
    from sklearn.ensemble import RandomForestClassifier
"#;
    let imports = ["os", "numpy.linalg", "typing", "cheap", "ujson", "json", "sklearn.ensemble"];
    assert_eq!(read(text).imports, imports);
}

#[test]
fn versions_of_python_are_requirements() {
    let text = "# /// script\n# requires-python = \">=3.10\"\n# ///\nNEW = '3.13'\n\
                @sm.udf(packages=['six'], python='3.12')\ndef f(x: int) -> int: ...\n\
                @sm.table(python=NEW)\ndef g(x: int): ...\n";
    let found = read(text);
    assert_eq!(found.packages, ["six", "python==3.12", "python==3.13", "python>=3.10"]);
    assert_eq!(found.shared, ["python>=3.10"]);
    assert_eq!(found.groups, [vec!["six", "python==3.12"], vec!["python==3.13"]]);
    let computed = "@sm.udf(python=version())\ndef f(x): ...\n";
    let refused = inspect_source(&python(), "udfs.py", computed).unwrap_err().report();
    assert_eq!(refused.code, "SM-0204");
    assert!(refused.hint.unwrap().contains("python=\"3.13\""));
}

#[test]
fn nothing_of_the_source_is_executed() {
    let folder = tempfile::tempdir().unwrap();
    let marker = folder.path().join("ran");
    let text = format!(
        "open({marker:?}, 'w')\n@sm.udf(packages=[\"six\"])\ndef f(x=open({marker:?}, 'w')): ...\n"
    );
    assert_eq!(read(&text).packages, ["six"]);
    assert!(!marker.exists());
}

#[test]
fn only_available_modules_are_imported_by_the_zygote() {
    let site = tempfile::tempdir().unwrap();
    std::fs::create_dir(site.path().join("pandas")).unwrap();
    for file in ["six.py", "_fast.cpython-311-x86_64-linux-gnu.so"] {
        std::fs::write(site.path().join(file), "").unwrap();
    }
    let names = |list: &[&str]| list.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    let imports = names(&["json", "pandas.api", "six", "_fast", "missing", "pan"]);
    let found = available(&imports, &names(&["json", "os"]), site.path());
    assert_eq!(found, ["json", "pandas.api", "six", "_fast"]);
}

#[test]
fn invalid_source_is_reported_with_its_location() {
    let refused = |text: &str| inspect_source(&python(), "udfs.py", text).unwrap_err().report();
    let syntax = refused("x = 1\ndef f(:\n    pass\n");
    assert_eq!(syntax.code, "SM-0204");
    let location = syntax.location.clone().unwrap();
    assert_eq!((location.file.as_str(), location.line), ("udfs.py", 2));
    assert_eq!(syntax.excerpt, ["def f(:"]);
    let computed = refused("@sm.udf(packages=find())\ndef f(x): ...\n");
    assert_eq!(computed.location.clone().unwrap().within.as_deref(), Some("f()"));
    assert!(computed.hint.unwrap().contains("packages=["));
    assert_eq!(refused("x = '\0'").code, "SM-0204");
}

#[test]
fn malicious_source_is_an_error_at_most() {
    for text in
        ["(".repeat(100_000), "-".repeat(100_000) + "1", "a".to_owned() + &".b".repeat(100_000)]
    {
        let Err(error) = inspect_source(&python(), "udfs.py", &text) else { continue };
        assert!(["SM-0204", "SM-0303"].contains(&error.report().code.as_str()), "{error}");
    }
}

#[test]
fn a_program_that_is_not_an_interpreter_is_an_error() {
    let error = inspect_source("/bin/false".as_ref(), "udfs.py", "").unwrap_err().report();
    assert_eq!(error.code, "SM-0303");
}
