//! Paths to a value in JSON: `$.a[0]."b c"`, `/a/0`, a name or an index.

use datafusion::error::Result;

use super::wrong;

/// A step into a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PathStep {
    Member(String),
    /// An element of an array by its index, from the end if it is negative.
    Element(i64),
    /// A member of an object by its name, or an element of an array by its index, as the value is.
    Either(String),
    AllMembers,
    AllElements,
}

/// The steps to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path(pub(super) Vec<PathStep>);

impl Path {
    /// Reads a path.
    pub(super) fn parse(text: &str) -> Result<Self> {
        if let Some(rest) = text.strip_prefix('$') {
            let steps = steps(rest);
            return steps.map(Self).ok_or_else(|| {
                let message = format!("`{text}` is no path of JSON");
                wrong(message, "write it as '$.name[0].\"other name\"', or '/name/0'")
            });
        }
        match text.strip_prefix('/') {
            Some(rest) => {
                let step =
                    |part: &str| PathStep::Either(part.replace("~1", "/").replace("~0", "~"));
                Ok(Self(rest.split('/').map(step).collect()))
            }
            None => Ok(Self(vec![PathStep::Member(text.to_owned())])),
        }
    }

    /// A path that is the index of an element.
    pub(super) fn of_index(digits: &str) -> Result<Self> {
        let index = digits.parse().map_err(|_| {
            wrong(format!("{digits} is no index of an array"), "indexes begin at 0")
        })?;
        Ok(Self(vec![PathStep::Element(index)]))
    }

    /// Whether the path has a `*`, and so finds any number of values.
    pub(super) fn finds_many(&self) -> bool {
        self.0.iter().any(|step| matches!(step, PathStep::AllMembers | PathStep::AllElements))
    }
}

fn steps(mut rest: &str) -> Option<Vec<PathStep>> {
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let (step, left) = match rest.strip_prefix('.') {
            Some(name) => member(name)?,
            None => element(rest.strip_prefix('[')?)?,
        };
        steps.push(step);
        rest = left;
    }
    Some(steps)
}

fn member(text: &str) -> Option<(PathStep, &str)> {
    if let Some(quoted) = text.strip_prefix('"') {
        let (name, rest) = quoted.split_once('"')?;
        return Some((PathStep::Member(name.to_owned()), rest));
    }
    if let Some(rest) = text.strip_prefix('*') {
        return Some((PathStep::AllMembers, rest));
    }
    let end = text.find(['.', '[']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    (!name.is_empty()).then(|| (PathStep::Member(name.to_owned()), rest))
}

fn element(text: &str) -> Option<(PathStep, &str)> {
    let (inside, rest) = text.split_once(']')?;
    let step = match inside.strip_prefix('#') {
        _ if inside == "*" => PathStep::AllElements,
        // `[#-1]` is the last one, as is `[-1]`.
        Some(from_end) => PathStep::Element(from_end.parse().ok().filter(|index| *index < 0)?),
        None => match inside.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
            Some(name) => PathStep::Member(name.to_owned()),
            None => PathStep::Element(inside.parse().ok()?),
        },
    };
    Some((step, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read() {
        let member = |name: &str| PathStep::Member(name.to_owned());
        for (text, expected) in [
            ("$", Vec::new()),
            ("$.a[0].b", vec![member("a"), PathStep::Element(0), member("b")]),
            (
                "$.\"a.b\"[-1][#-2]",
                vec![member("a.b"), PathStep::Element(-1), PathStep::Element(-2)],
            ),
            ("$[*].*", vec![PathStep::AllElements, PathStep::AllMembers]),
            ("$[\"é x\"]", vec![member("é x")]),
            ("/a~1b/0", vec![PathStep::Either("a/b".to_owned()), PathStep::Either("0".to_owned())]),
            ("a.b", vec![member("a.b")]),
        ] {
            assert_eq!(Path::parse(text).unwrap(), Path(expected), "{text}");
        }
        for text in ["$a", "$.", "$[", "$[x]", "$[#1]", "$..a", "$.\"a"] {
            assert!(Path::parse(text).is_err(), "{text}");
        }
    }
}
