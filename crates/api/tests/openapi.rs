//! `docs/reference/openapi.json` is the document that the platform serves.

use std::path::Path;

#[test]
fn the_file_in_docs_is_current() {
    // Tests run in the folder of their crate.
    let path = Path::new("../../docs/reference/openapi.json");
    let document = snowmelt_api::openapi::document(env!("CARGO_PKG_VERSION"));
    let current = document.to_pretty_json().unwrap() + "\n";
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::write(path, &current).unwrap();
    }
    let file = std::fs::read_to_string(path).unwrap_or_default();
    assert!(file == current, "run `UPDATE_OPENAPI=1 cargo test -p snowmelt-api --test openapi`");
}
