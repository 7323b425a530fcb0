//! The `# /// script` block at the top of a file, in which a script lists its dependencies
//! (PEP 723).

use pep440_rs::{Version, VersionSpecifiers};
use serde::Deserialize;
use snowmelt_types::SourceLocation;

use crate::error::refused;
use crate::{Error, Result};

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Metadata {
    #[serde(default)]
    dependencies: Vec<String>,
    requires_python: Option<VersionSpecifiers>,
}

/// The dependencies of the script block; none without a block. Refuses a block that requires
/// another version of Python than the one that runs.
pub(crate) fn dependencies(file: &str, text: &str, running: &Version) -> Result<Vec<String>> {
    let refuse = |reason: &str, line: usize| {
        let line = u32::try_from(line + 1).unwrap_or(u32::MAX);
        Err(refused(file, text, reason.to_owned(), line, None))
    };
    let mut starts = text.lines().enumerate().filter(|(_, line)| is_start(line));
    let Some((start, _)) = starts.next() else { return Ok(Vec::new()) };
    if let Some((second, _)) = starts.next() {
        return refuse("there are two `# /// script` blocks", second);
    }
    let Some(content) = content(text, start) else {
        return refuse("the `# /// script` block has no end: `# ///`", start);
    };
    match toml::from_str::<Metadata>(&content) {
        Ok(Metadata { requires_python: Some(wanted), .. }) if !wanted.contains(running) => {
            Err(another_python(file, text, &wanted, running))
        }
        Ok(metadata) => Ok(metadata.dependencies),
        Err(error) => refuse(&format!("the `# /// script` block: {}", error.message()), start),
    }
}

fn another_python(file: &str, text: &str, wanted: &VersionSpecifiers, running: &Version) -> Error {
    let line = text.lines().position(|line| line.starts_with("# requires-python"));
    let line = line.map_or(1, |line| u32::try_from(line + 1).unwrap_or(u32::MAX));
    Error::RequiresPython {
        location: SourceLocation { file: file.to_owned(), line, within: None },
        wanted: wanted.to_string(),
        running: running.to_string(),
    }
}

fn is_start(line: &str) -> bool {
    line.trim_end() == "# /// script"
}

/// The lines up to the last `# ///` of the comment, without the prefix `# ` (PEP 723's grammar).
fn content(text: &str, start: usize) -> Option<String> {
    let comment = text.lines().skip(start + 1);
    let block: Vec<&str> =
        comment.take_while(|line| *line == "#" || line.starts_with("# ")).collect();
    let end = block.iter().rposition(|line| line.trim_end() == "# ///")?;
    let line = |line: &&str| line.get(2..).unwrap_or_default().to_owned() + "\n";
    Some(block[..end].iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use snowmelt_types::Report;

    use super::*;

    #[test]
    fn dependencies_are_read() {
        let python = Version::new([3, 11, 2]);
        let text = "import os\n# /// script\n# requires-python = \">=3.11\"\n# dependencies = [\n#   \
                    \"six\",\n#\n#   \"idna>=3\",\n# ]\n# ///\nx = 1\n";
        assert_eq!(dependencies("f.py", text, &python).unwrap(), ["six", "idna>=3"]);
        assert!(dependencies("f.py", "x = '# /// script'\n", &python).unwrap().is_empty());
    }

    #[test]
    fn a_block_that_requires_another_python_is_refused() {
        let found = |wanted: &str, running: [u64; 3]| {
            let text = format!("# /// script\n# requires-python = \"{wanted}\"\n# ///\n");
            dependencies("f.py", &text, &Version::new(running)).map_err(|error| error.report())
        };
        for good in [">=3.11", "==3.11.*", ">=3.10,<3.12", "~=3.11.2", "!=3.11.1", ">3.11"] {
            assert!(found(good, [3, 11, 2]).is_ok(), "{good}");
        }
        for bad in [">=3.12", "==3.10.*", "<3.11", "~=3.11.3", "==3.11"] {
            let report = found(bad, [3, 11, 2]).unwrap_err();
            assert_eq!(report.code, "SM-0204");
            assert!(report.message.contains(bad) && report.message.contains("3.11.2"), "{report}");
            assert_eq!(report.location.unwrap().line, 2);
        }
        assert!(found("three", [3, 11, 2]).unwrap_err().message.contains("block"));
    }

    #[test]
    fn an_invalid_block_is_refused_with_its_reason() {
        for (text, reason) in [
            ("# /// script\n# dependencies = []\n", "has no end"),
            ("# /// script\n# dependencies = [\n# ///\n", "block:"),
            ("# /// script\n# ///\n\n# /// script\n# ///\n", "two"),
        ] {
            let python = Version::new([3, 11, 2]);
            let error = dependencies("f.py", text, &python).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
