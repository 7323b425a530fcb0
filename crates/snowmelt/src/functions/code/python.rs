//! Python code of a deployment: one file, or a folder with the file that defines the function, the
//! modules that it imports and its list of requirements.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use snowmelt_types::{ByteSize, Code, ErrorReport};
use snowmelt_wire::SourceCode;

use super::files;
use crate::input;

/// The names of the file that a folder must have one of, unless another module is named.
const MAIN_FILES: [&str; 3] = ["app.py", "handler.py", "main.py"];

/// Size limit of a folder: its files are kept with the function.
const MAX_BYTES: ByteSize = ByteSize::mib(16);

/// Code with the requirements that are listed beside it.
#[derive(Debug)]
pub struct PythonCode {
    pub code: SourceCode,
    pub packages: Vec<String>,
}

/// Whether the path is a folder of Python code.
pub fn is_folder(path: &Path) -> bool {
    let (folder, module) = split(path);
    module.is_some() || main_file(&folder).is_some()
}

/// Reads a file, a folder, or `FOLDER:MODULE`.
///
/// # Errors
/// `SM-0110` for files that cannot be read, and for a folder without the file that is needed.
pub fn read(path: &Path) -> Result<PythonCode, ErrorReport> {
    let (folder, module) = split(path);
    if !folder.is_dir() {
        return Ok(PythonCode { code: input::code(path)?, packages: Vec::new() });
    }
    let file = match &module {
        Some(module) => module_file(&folder, module),
        None => main_file(&folder),
    };
    let Some(file) = file else {
        let message = match &module {
            Some(module) => format!("{} has no module {module}", folder.display()),
            None => format!("{} has no {}", folder.display(), MAIN_FILES.join(", ")),
        };
        return Err(ErrorReport::new(Code::OPTION, message)
            .hint("name the module and the function: FOLDER:MODULE:FUNCTION"));
    };
    let files = files::python_files(&folder)?;
    let size: u64 = files.values().map(|file| file.data.len() as u64 / 4 * 3).sum();
    if size > MAX_BYTES.bytes() {
        let message = format!("the files of {} are larger than {MAX_BYTES}", folder.display());
        return Err(ErrorReport::new(Code::OPTION, message)
            .hint("give data and models with --file, and put packages into requirements.txt"));
    }
    Ok(PythonCode { code: SourceCode::Folder { file, files }, packages: requirements(&folder)? })
}

/// Splits `app:package.module` into a folder and a module in it, unless such a path exists.
fn split(path: &Path) -> (PathBuf, Option<String>) {
    let whole = (path.to_owned(), None);
    let Some((folder, module)) = path.to_str().and_then(|text| text.rsplit_once(':')) else {
        return whole;
    };
    match !path.exists() && Path::new(folder).is_dir() {
        true => (folder.into(), Some(module.to_owned())),
        false => whole,
    }
}

fn main_file(folder: &Path) -> Option<String> {
    let found = MAIN_FILES.into_iter().find(|name| folder.join(name).is_file())?;
    Some(found.to_owned())
}

/// The file of a module by its dotted name.
fn module_file(folder: &Path, module: &str) -> Option<String> {
    let path = module.replace('.', "/");
    let mut files = [format!("{path}.py"), format!("{path}/__init__.py")].into_iter();
    files.find(|file| folder.join(file).is_file())
}

/// The requirements of `requirements.txt`, or else of `pyproject.toml`, which says the version of
/// Python in both cases.
fn requirements(folder: &Path) -> Result<Vec<String>, ErrorReport> {
    let listed = folder.join("requirements.txt");
    let project = folder.join("pyproject.toml");
    let project = match project.is_file() {
        true => parse(&project, &input::file(&project)?)?,
        false => Project::default(),
    };
    let mut all = match listed.is_file() {
        true => input::listed(&[], Some(&listed))?,
        false => project.dependencies,
    };
    let versions = project.requires_python.as_deref();
    all.extend(versions.map(snowmelt_package::python_requirement));
    Ok(all)
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Project {
    #[serde(default)]
    dependencies: Vec<String>,
    requires_python: Option<String>,
}

#[derive(Deserialize)]
struct ProjectFile {
    #[serde(default)]
    project: Project,
}

fn parse(path: &Path, text: &str) -> Result<Project, ErrorReport> {
    let parsed: Result<ProjectFile, _> = toml::from_str(text);
    parsed.map(|file| file.project).map_err(|error| {
        let message = format!("{} cannot be read: {}", path.display(), error.message());
        ErrorReport::new(Code::OPTION, message)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn a_folder_is_read_with_its_requirements_and_without_what_tools_left() {
        let folder = folder(&[
            ("app.py", "import lib.a"),
            ("lib/a.py", "x = 1"),
            ("lib/__pycache__/a.cpython-311.pyc", "x"),
            (".git/config", "x"),
            ("env/pyvenv.cfg", ""),
            ("env/lib/python3.11/site-packages/six.py", "x"),
            ("requirements.txt", "six  # both\n"),
            (
                "pyproject.toml",
                "[project]\ndependencies = [\"idna\"]\nrequires-python = \">=3.11\"\n",
            ),
        ]);
        let read = super::read(folder.path()).unwrap();
        let SourceCode::Folder { file, files } = read.code else { panic!() };
        let names: Vec<_> = files.keys().map(String::as_str).collect();
        assert_eq!(file, "app.py");
        assert_eq!(names, ["app.py", "lib/a.py", "pyproject.toml", "requirements.txt"]);
        assert_eq!(read.packages, ["six", "python>=3.11"]);
        fs::remove_file(folder.path().join("requirements.txt")).unwrap();
        assert_eq!(super::read(folder.path()).unwrap().packages, ["idna", "python>=3.11"]);
    }

    #[test]
    fn a_module_of_a_folder_is_named_after_a_colon() {
        let folder = folder(&[("handler.py", ""), ("pkg/__init__.py", ""), ("pkg/score.py", "")]);
        let main = |end: &str| {
            let path = format!("{}{end}", folder.path().display());
            assert!(is_folder(Path::new(&path)) || end == ":other", "{end}");
            let code = super::read(Path::new(&path))?.code;
            let SourceCode::Folder { file, .. } = code else { panic!() };
            Ok::<_, ErrorReport>(file)
        };
        assert_eq!(main("").unwrap(), "handler.py");
        assert_eq!(main(":pkg.score").unwrap(), "pkg/score.py");
        assert_eq!(main(":pkg").unwrap(), "pkg/__init__.py");
        assert!(main(":other").unwrap_err().message.contains("has no module other"));
        fs::remove_file(folder.path().join("handler.py")).unwrap();
        let refused = super::read(folder.path()).unwrap_err();
        assert!(refused.message.contains("has no app.py, handler.py, main.py"), "{refused}");
    }
}
