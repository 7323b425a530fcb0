//! The registration of functions: from a user's code to a set of functions that SQL can call (CAGE
//! 3, the registration service in its first form: the image is the environment of packages and the
//! code file).
//!
//! Invariant: a [`Registration`] is completely checked. Its digest covers everything that affects
//! execution, so instances of equal digests are interchangeable.

use snowmelt_types::Digest;
use snowmelt_wire::{Signature, SourceCode};

use crate::{BatchKind, Error, ParsedSignature, Result, script_block, with_runtime};

/// A checked set of UDFs that are defined by one piece of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The digest of the code, the packages and the signatures.
    pub digest: Digest,
    /// The code.
    pub code: SourceCode,
    /// All packages to install: the user's requirements and the runtime's.
    pub packages: Vec<String>,
    /// The signatures as received, in the order of `parsed`.
    pub signatures: Vec<Signature>,
    /// The checked signatures.
    pub parsed: Vec<ParsedSignature>,
}

impl Registration {
    /// Checks the functions of a piece of code. `packages` are the requirements given with the code
    /// or in it; those of the signatures are added.
    pub fn new(code: SourceCode, packages: &[String], signatures: Vec<Signature>) -> Result<Self> {
        let parsed = signatures.iter().map(ParsedSignature::parse).collect::<Result<Vec<_>>>()?;
        check_names(&parsed)?;
        let kinds: Vec<BatchKind> = parsed.iter().map(|signature| signature.batch).collect();
        let of_signatures = signatures.iter().flat_map(|signature| &signature.packages);
        let mut packages: Vec<String> = packages.iter().chain(of_signatures).cloned().collect();
        packages.sort();
        packages.dedup();
        let packages = with_runtime(&packages, kinds);
        let digest = digest(&code, &packages, &signatures);
        Ok(Self { digest, code, packages, signatures, parsed })
    }

    /// The function of that name. SQL folds unquoted names to lower case.
    pub fn function(&self, name: &str) -> Option<(&Signature, &ParsedSignature)> {
        let both = self.signatures.iter().zip(&self.parsed);
        both.into_iter().find(|(_, parsed)| parsed.name.eq_ignore_ascii_case(name))
    }
}

/// Returns the versions of Python that the code itself requires, as a requirement (`python==3.12`):
/// from its script block, or the version that pickled it, because a pickle contains byte code.
/// Refuses code of another language.
pub fn required_python(code: &SourceCode) -> Result<Option<String>> {
    match code {
        SourceCode::Files { .. } => Err(Error::NotPython),
        SourceCode::Pickle { python, .. } => Ok(Some(format!("python=={python}"))),
        SourceCode::Folder { file, .. } if code.python_text().is_none() => {
            Err(Error::NoMainFile { file: file.clone() })
        }
        _ => {
            let Some((file, text)) = code.python_text() else { return Ok(None) };
            let all = script_block::requirements(file, &text)?;
            Ok(all.into_iter().next_back().filter(|last| is_python(last)))
        }
    }
}

/// Whether a requirement is one of Python. The requirement from the block stands last, and no
/// package has this name.
fn is_python(requirement: &str) -> bool {
    let versions = requirement.strip_prefix("python");
    versions.is_some_and(|rest| rest.starts_with(['=', '<', '>', '!', '~']))
}

fn check_names(parsed: &[ParsedSignature]) -> Result<()> {
    if parsed.is_empty() {
        return Err(Error::NoFunction);
    }
    for (at, signature) in parsed.iter().enumerate() {
        if parsed[..at].iter().any(|other| other.name.eq_ignore_ascii_case(&signature.name)) {
            return Err(Error::Twice { function: signature.name.clone() });
        }
    }
    Ok(())
}

/// Every part is preceded by its length, so that different registrations do not collide.
fn digest(code: &SourceCode, packages: &[String], signatures: &[Signature]) -> Digest {
    let mut parts = vec!["registration-1".to_owned()];
    match code {
        SourceCode::Source { file, text } => {
            parts.extend(["source".into(), file.clone(), text.clone()])
        }
        SourceCode::Definition { file, text, indented, .. } => {
            parts.extend(["definition".into(), file.clone(), text.clone(), indented.to_string()])
        }
        SourceCode::Pickle { data, python, sources, .. } => {
            parts.extend([
                "pickle".into(),
                data.clone(),
                python.clone(),
                sources.len().to_string(),
            ]);
            parts.extend(sources.iter().flat_map(|(file, text)| [file.clone(), text.clone()]));
        }
        SourceCode::Files { files } | SourceCode::Folder { files, .. } => {
            let main = code.python_text().map(|(file, _)| file.to_owned());
            parts.extend(["files".into(), files.len().to_string()]);
            parts.extend(main);
            parts.extend(files.iter().flat_map(|(path, file)| [path.clone(), file.data.clone()]));
        }
    }
    parts.push(packages.len().to_string());
    parts.extend_from_slice(packages);
    for one in signatures {
        let limits =
            format!("{:?} {:?} {:?} {:?}", one.kind, one.on_error, one.memory, one.timeout);
        let deterministic = one.deterministic.to_string();
        let texts = [one.name.clone(), one.batch.clone(), one.schema.clone()];
        parts.extend(texts.into_iter().chain([limits, deterministic]));
    }
    Digest::of_parts(parts)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow_schema::{DataType, Field, Schema};
    use snowmelt_wire::{CodeFile, OnError, UdfKind, schema_to_text};

    use super::*;

    fn signature(name: &str, batch: &str) -> Signature {
        let field = |name| Field::new(name, DataType::Utf8, true);
        let schema = Schema::new(vec![field("argument"), field("return")]);
        Signature {
            name: name.to_owned(),
            kind: UdfKind::Scalar,
            batch: batch.to_owned(),
            schema: schema_to_text(&schema).unwrap(),
            on_error: OnError::Raise,
            deterministic: false,
            packages: vec!["six".to_owned()],
            memory: None,
            timeout: None,
        }
    }

    fn source(text: &str) -> SourceCode {
        SourceCode::Source { file: "udfs.py".to_owned(), text: text.to_owned() }
    }

    #[test]
    fn packages_of_code_signatures_and_runtime_are_collected() {
        let made = Registration::new(
            source(""),
            &["idna".to_owned()],
            vec![signature("f", "scalar"), signature("g", "pandas")],
        )
        .unwrap();
        let names = ["idna", "six", crate::PYARROW, crate::PANDAS, crate::NUMPY];
        assert_eq!(made.packages, names);
        assert_eq!(made.function("G").unwrap().1.batch, BatchKind::Pandas);
        assert!(made.function("h").is_none());
    }

    #[test]
    fn the_digest_depends_on_everything_that_affects_execution() {
        let of = |code, signature| Registration::new(code, &[], vec![signature]).unwrap().digest;
        let first = of(source("a"), signature("f", "scalar"));
        assert_eq!(first, of(source("a"), signature("f", "scalar")));
        let limited = Signature { timeout: Some("1s".to_owned()), ..signature("f", "scalar") };
        let others = [
            of(source("b"), signature("f", "scalar")),
            of(source("a"), signature("g", "scalar")),
            of(source("a"), signature("f", "arrow")),
            of(source("a"), limited),
            of(source("a"), Signature { kind: UdfKind::Aggregate, ..signature("f", "scalar") }),
        ];
        assert!(!others.contains(&first));
    }

    #[test]
    fn names_that_differ_in_case_only_and_code_without_functions_are_refused() {
        let twice = vec![signature("f", "scalar"), signature("F", "scalar")];
        assert!(matches!(Registration::new(source(""), &[], twice), Err(Error::Twice { .. })));
        assert!(matches!(Registration::new(source(""), &[], vec![]), Err(Error::NoFunction)));
    }

    #[test]
    fn code_requires_the_python_that_pickled_it_or_that_its_block_names() {
        let sources = Default::default();
        let data = String::new();
        let python = "3.10".to_owned();
        let folder = |file: &str| {
            let files = BTreeMap::from([("app.py".to_owned(), CodeFile::new(b"x = 1", false))]);
            SourceCode::Folder { file: file.to_owned(), files }
        };
        assert_eq!(required_python(&folder("app.py")).unwrap(), None);
        let refused = required_python(&folder("main.py"));
        assert!(matches!(refused, Err(Error::NoMainFile { .. })), "{refused:?}");
        let pickle = SourceCode::Pickle { data, python, sources, shared_setup: false };
        assert_eq!(required_python(&pickle).unwrap().unwrap(), "python==3.10");
        assert_eq!(required_python(&source("x = 1")).unwrap(), None);
        let block = |lines: &str| source(&format!("# /// script\n{lines}# ///\n"));
        let both = "# dependencies = [\"six\"]\n# requires-python = \">=3.12\"\n";
        assert_eq!(required_python(&block(both)).unwrap().unwrap(), "python>=3.12");
        let packages = block("# dependencies = [\"python-dateutil>=2\"]\n");
        assert_eq!(required_python(&packages).unwrap(), None);
    }
}
