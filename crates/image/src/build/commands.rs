//! The commands in a shell script, as far as they can be read without running it: simple commands
//! of plain words. Loops, functions and variables are not followed.

/// A call of `update-alternatives --install`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Alternative {
    pub name: String,
    pub priority: i64,
    pub link: String,
    pub path: String,
    /// The alternatives that go along with this one: link, name and path of each.
    pub slaves: Vec<[String; 3]>,
}

impl Alternative {
    /// Parses the alternative that a command installs; `None` if it installs none, or if one of its
    /// words is not plain.
    pub fn of(command: &[String]) -> Option<Self> {
        let (program, words) = command.split_first()?;
        if program.rsplit('/').next() != Some("update-alternatives")
            || words.iter().any(|word| word.contains(['$', '`', '*']))
        {
            return None;
        }
        let at = words.iter().position(|word| word == "--install")?;
        let [link, name, path, priority, rest @ ..] = words.get(at + 1..)? else { return None };
        let slaves = rest.split(|word| word == "--slave").filter_map(|words| match words {
            [link, name, path, ..] => Some([link.clone(), name.clone(), path.clone()]),
            _ => None,
        });
        let slaves: Vec<_> = slaves.collect();
        let names = slaves.iter().map(|[_, name, _]| name).chain([name]);
        if names.into_iter().any(|name| name.contains('/') || name.starts_with('.')) {
            return None;
        }
        let name = name.clone();
        let link = link.clone();
        let path = path.clone();
        Some(Self { name, priority: priority.parse().ok()?, link, path, slaves })
    }
}

/// Parses the commands of a script, each with its words.
pub(super) fn commands(script: &str) -> Vec<Vec<String>> {
    let whole = script.replace("\\\n", " ");
    let lines = whole.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines.flat_map(of_line).collect()
}

fn of_line(line: &str) -> Vec<Vec<String>> {
    const STARTS: [&str; 10] = ["if", "then", "else", "elif", "do", "while", "!", "{", "(", "exec"];
    const ENDS: [&str; 7] = ["&&", "||", ";", "|", "}", ")", ";;"];
    let mut found = Vec::new();
    let mut command = Vec::new();
    for word in line.split_whitespace() {
        let (word, is_last) = match word.strip_suffix(';') {
            Some(word) => (word, true),
            None => (word, false),
        };
        if word.starts_with('#') {
            break;
        }
        if ENDS.contains(&word) {
            found.push(std::mem::take(&mut command));
        } else if !(word.is_empty() || command.is_empty() && STARTS.contains(&word)) {
            command.push(plain(word));
        }
        if is_last {
            found.push(std::mem::take(&mut command));
        }
    }
    found.push(command);
    found.retain(|command| !command.is_empty());
    found
}

/// Removes quotes around the whole of a word.
fn plain(word: &str) -> String {
    let quoted = |quote: char| word.strip_prefix(quote)?.strip_suffix(quote);
    quoted('"').or_else(|| quoted('\'')).unwrap_or(word).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_behind_words_of_the_shell() {
        let script = "#!/bin/sh\n# adduser x\nif [ -x /a ]; then chown 'a' \"b\" || true; fi\n\
                      ! test -e /b && mkdir -p \\\n  /b # made\n";
        let found: Vec<_> = commands(script).iter().map(|words| words.join(" ")).collect();
        let expected = ["[ -x /a ]", "chown a b", "true", "fi", "test -e /b", "mkdir -p /b"];
        assert_eq!(found, expected);
    }

    #[test]
    fn only_plain_alternatives_are_taken() {
        let of = |text: &str| Alternative::of(&commands(text)[0]);
        let install = "update-alternatives --quiet --install /usr/bin/awk awk /usr/bin/mawk 5";
        let found = of(&format!("{install} --slave /usr/bin/nawk nawk /usr/bin/mawk")).unwrap();
        assert_eq!((&*found.name, found.priority, &*found.path), ("awk", 5, "/usr/bin/mawk"));
        assert_eq!(found.slaves, [["/usr/bin/nawk", "nawk", "/usr/bin/mawk"].map(str::to_owned)]);
        for other in [
            "update-alternatives --remove awk /usr/bin/mawk",
            "update-alternatives --install /usr/bin/a a $b 5",
            "update-alternatives --install /usr/bin/a ../a /b 5",
            "update-alternatives --install /usr/bin/a a /b five",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
