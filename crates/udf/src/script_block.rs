//! The `# /// script` block at the top of a file, in which PEP 723 lets a script name what it
//! depends on.

use serde::Deserialize;

use crate::Result;
use crate::source::refused;

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    dependencies: Vec<String>,
}

/// The dependencies of the script block, or none without one.
pub(crate) fn dependencies(file: &str, text: &str) -> Result<Vec<String>> {
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
        Ok(metadata) => Ok(metadata.dependencies),
        Err(error) => refuse(&format!("the `# /// script` block: {}", error.message()), start),
    }
}

fn is_start(line: &str) -> bool {
    line.trim_end() == "# /// script"
}

/// The lines up to the last `# ///` of the comment, without their `# ` (PEP 723's grammar).
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
    fn reads_dependencies() {
        let text = "import os\n# /// script\n# requires-python = \">=3.11\"\n# dependencies = [\n#   \
                    \"six\",\n#\n#   \"idna>=3\",\n# ]\n# ///\nx = 1\n";
        assert_eq!(dependencies("f.py", text).unwrap(), ["six", "idna>=3"]);
        assert!(dependencies("f.py", "x = '# /// script'\n").unwrap().is_empty());
    }

    #[test]
    fn says_where_a_block_is_wrong() {
        for (text, reason) in [
            ("# /// script\n# dependencies = []\n", "has no end"),
            ("# /// script\n# dependencies = [\n# ///\n", "block:"),
            ("# /// script\n# ///\n\n# /// script\n# ///\n", "two"),
        ] {
            let error = dependencies("f.py", text).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
