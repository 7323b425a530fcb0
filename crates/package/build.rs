//! Embeds the Python files of `python/snowmelt` in the binary, by name and content.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let python = manifest.join("../../python");
    // Watching the folder makes cargo notice new files, not only changed ones.
    println!("cargo:rerun-if-changed={}", python.join("snowmelt").display());
    let mut files = Vec::new();
    collect(&python.join("snowmelt"), &mut files)?;
    files.sort();
    let mut table = String::from("&[\n");
    for file in files {
        let name = file.strip_prefix(&python).unwrap_or(&file);
        let path = fs::canonicalize(&file)?;
        let _ = writeln!(table, "    ({:?}, include_str!({:?})),", name.display(), path.display());
    }
    table.push(']');
    let output = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(output.join("runtime.rs"), table)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "py") {
            files.push(path);
        }
    }
    Ok(())
}
