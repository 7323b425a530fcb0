//! References to secrets of functions, as options give them.

use std::collections::BTreeMap;

use snowmelt_types::{Code, ErrorReport};

/// Parses secrets by name. No error contains what stands behind a name, which may be the secret
/// itself.
///
/// # Errors
/// `SM-0231` for one that is not written as `option` needs it, or given twice.
pub fn given(texts: &[String], option: &str) -> Result<BTreeMap<String, String>, ErrorReport> {
    let mut found = BTreeMap::new();
    for text in texts {
        let Some((name, reference)) = text.split_once('=') else {
            let message = format!("{option} is written NAME=env:VARIABLE or NAME=file:FILE");
            return Err(ErrorReport::new(Code::FUNCTION_SECRET, message));
        };
        if found.insert(name.to_owned(), reference.to_owned()).is_some() {
            let message = format!("the secret {name} is given twice");
            return Err(ErrorReport::new(Code::FUNCTION_SECRET, message));
        }
    }
    Ok(found)
}
