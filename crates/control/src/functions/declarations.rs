//! Declarations in Python code, found without running it: required packages and imported modules.
//! The text of the code is parsed by an interpreter once, and the result is cached by content.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use snowmelt_node::Node;
use snowmelt_package::WantedPython;
use snowmelt_types::{Code, Digest, ErrorReport, Report};
use snowmelt_udf::{BatchKind, SHARED_SETUP, inspect_source, with_runtime};
use snowmelt_wire::SourceCode;

use crate::state::analysis_cache::AnalysisCache;

/// The declarations of a piece of Python code.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Declared {
    /// Requirements of all functions of the code, with those that its imports of numpy and pandas
    /// stand for, and those of Python itself.
    pub packages: Vec<String>,
    /// Requirements that are given with the code or apply to all of it.
    pub shared: Vec<String>,
    /// Requirements of each decorated function that names some, one list for each.
    pub groups: Vec<Vec<String>>,
    /// Modules that the code imports.
    pub imports: Vec<String>,
}

impl Declared {
    /// Returns the requirements of one function, as if it stood alone.
    pub fn alone(&self, own: &[String]) -> Vec<String> {
        let all: Vec<String> = self.shared.iter().chain(own).cloned().collect();
        with_runtime(&all, kinds_of(&self.imports))
    }
}

/// Reads what code declares; `packages` are the requirements that stand beside it.
pub(crate) async fn declared(
    node: &Node,
    analysis: &AnalysisCache,
    code: &SourceCode,
    packages: &[String],
) -> Result<Declared, ErrorReport> {
    let required = snowmelt_udf::required_python(code).map_err(|error| error.report())?;
    let mut declared = Declared { shared: packages.to_vec(), ..Declared::default() };
    if let SourceCode::Pickle { python, .. } = code {
        check_pickle(python, packages)?;
        declared.shared.extend(required.clone());
    }
    declared.packages = declared.shared.clone();
    let asked: Vec<String> = packages.iter().cloned().chain(required).collect();
    let python = node.preparation().python_for(&asked).await.map_err(|error| error.report())?;
    let version = python.minor_version();
    if let Some((file, text)) = code.python_text() {
        let key = Digest::of_parts(["declared-4", &version, file, &text]);
        let source: Declared = match analysis.get(&key) {
            Some(known) => known,
            None => {
                let found = inspect(python.executable.clone(), file, &text).await?;
                analysis.put(&key, &found);
                found
            }
        };
        declared.packages.extend(source.packages);
        declared.shared.extend(source.shared);
        declared.groups = source.groups;
        declared.packages = with_runtime(&declared.packages, kinds_of(&source.imports));
        declared.imports = source.imports;
    }
    if let SourceCode::Pickle { shared_setup: true, .. } = code {
        declared.imports.push(SHARED_SETUP.to_owned());
    }
    declared.packages.sort();
    declared.packages.dedup();
    Ok(declared)
}

/// Refuses byte code that the requested version of Python cannot run.
fn check_pickle(pickled: &str, packages: &[String]) -> Result<(), ErrorReport> {
    let (wanted, _) = WantedPython::split(packages).map_err(|error| error.report())?;
    if wanted.is_any() || wanted.allows_minor(pickled) {
        return Ok(());
    }
    let pickled = pickled.to_owned();
    let wanted = wanted.to_string();
    Err(snowmelt_udf::Error::PickleVersion { pickled, wanted }.report())
}

async fn inspect(python: PathBuf, file: &str, text: &str) -> Result<Declared, ErrorReport> {
    let file = file.to_owned();
    let text = text.to_owned();
    let inspected = tokio::task::spawn_blocking(move || inspect_source(&python, &file, &text));
    let source = inspected
        .await
        .map_err(|error| ErrorReport::new(Code::INTERNAL, error.to_string()))?
        .map_err(|error| error.report())?;
    let snowmelt_udf::Source { packages, shared, groups, imports } = source;
    Ok(Declared { packages, shared, groups, imports })
}

/// Returns the kinds of batches that imports ask for: `import pandas` at the top of a file is as
/// good as a requirement, because the runtime offers the package.
fn kinds_of(imports: &[String]) -> Vec<BatchKind> {
    let imported = |name: &str| imports.iter().any(|import| import.split('.').next() == Some(name));
    let kinds =
        [("pandas", BatchKind::Pandas), ("numpy", BatchKind::Numpy), ("pyarrow", BatchKind::Arrow)];
    kinds.into_iter().filter(|(name, _)| imported(name)).map(|(_, kind)| kind).collect()
}
