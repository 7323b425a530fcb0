//! The `# /// script` block at the top of a file, in which a script lists its dependencies and the
//! versions of Python that it needs (PEP 723).

use pep440_rs::VersionSpecifiers;
use serde::Deserialize;

use crate::Result;
use crate::error::refused;

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Metadata {
    #[serde(default)]
    dependencies: Vec<String>,
    requires_python: Option<VersionSpecifiers>,
}

/// Returns the requirements of the script block: packages, and Python as one more of them
/// (`python>=3.12`). Empty without a block.
pub(crate) fn requirements(file: &str, text: &str) -> Result<Vec<String>> {
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
        Ok(Metadata { dependencies, requires_python }) => {
            let python = requires_python.map(|versions| format!("python{versions}"));
            Ok(dependencies.into_iter().chain(python).collect())
        }
        Err(error) => refuse(&format!("the `# /// script` block: {}", error.message()), start),
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
    use super::*;

    #[test]
    fn dependencies_and_versions_of_python_are_read() {
        let text = "import os\n# /// script\n# requires-python = \">=3.11,<3.14\"\n# dependencies = \
                    [\n#   \"six\",\n#\n#   \"idna>=3\",\n# ]\n# ///\nx = 1\n";
        let found = requirements("f.py", text).unwrap();
        assert_eq!(found, ["six", "idna>=3", "python>=3.11, <3.14"]);
        assert!(requirements("f.py", "x = '# /// script'\n").unwrap().is_empty());
    }

    #[test]
    fn an_invalid_block_is_refused_with_its_reason() {
        for (text, reason) in [
            ("# /// script\n# dependencies = []\n", "has no end"),
            ("# /// script\n# dependencies = [\n# ///\n", "block:"),
            ("# /// script\n# requires-python = \"three\"\n# ///\n", "block:"),
            ("# /// script\n# ///\n\n# /// script\n# ///\n", "two"),
        ] {
            let error = requirements("f.py", text).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
