//! `--csv`: options for all CSV files of a query.

use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::CsvOption;

const FORM: &str = "write OPTION=VALUE, for example delim=';', nullstr=NA, or types.price=DOUBLE \
                    for a column; the same option again adds a value";

/// The options, in the order of their first occurrence. A name with a point has a column behind it.
///
/// # Errors
/// A text that is no option with a value, or one with and without columns.
pub fn given(texts: &[String]) -> Result<Vec<CsvOption>, ErrorReport> {
    let mut options: Vec<CsvOption> = Vec::new();
    for text in texts {
        let (name, value) = text.split_once('=').ok_or_else(|| wrong(text))?;
        let (name, key) = match name.split_once('.') {
            Some((name, column)) => (name, Some(column.to_owned())),
            None => (name, None),
        };
        if name.is_empty() || key.as_ref().is_some_and(String::is_empty) {
            return Err(wrong(text));
        }
        let known = options.iter().position(|option| option.name == name);
        let index = known.unwrap_or(options.len());
        if known.is_none() {
            let keys = Vec::new();
            let values = Vec::new();
            options.push(CsvOption { name: name.to_owned(), keys, values });
        }
        let option = &mut options[index];
        option.keys.extend(key);
        option.values.push(value.to_owned());
        if !option.keys.is_empty() && option.keys.len() < option.values.len() {
            return Err(wrong(text));
        }
    }
    Ok(options)
}

fn wrong(text: &str) -> ErrorReport {
    let message = format!("--csv `{text}` is no option with a value");
    ErrorReport::new(Code::OPTION, message).hint(FORM)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(texts: &[&str]) -> String {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        match given(&texts) {
            Ok(options) => serde_json::to_string(&options).unwrap(),
            Err(report) => report.to_string(),
        }
    }

    #[test]
    fn options_are_texts_lists_and_columns() {
        for (texts, expected) in [
            (&[][..], "[]"),
            (&["delim=;"], r#"[{"name":"delim","values":[";"]}]"#),
            (&["delim=="], r#"[{"name":"delim","values":["="]}]"#),
            (&["nullstr=NA", "nullstr="], r#"[{"name":"nullstr","values":["NA",""]}]"#),
            (
                &["types.b=DATE", "types.a b=DECIMAL(5,2)"],
                r#"[{"name":"types","keys":["b","a b"],"values":["DATE","DECIMAL(5,2)"]}]"#,
            ),
        ] {
            assert_eq!(json(texts), expected);
        }
        for wrong in [&["delim"][..], &["=x"], &["types.=x"], &["types.a=DATE", "types=DATE"]] {
            assert!(json(wrong).contains("SM-0110"), "{wrong:?}: {}", json(wrong));
        }
    }
}
