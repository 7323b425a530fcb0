//! Wheels that a test builds, and a `uv` whose only index is the folder that contains them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::support::Bench;

/// Name, version, folder, and path and text of each file, as arguments.
const BUILD: &str = r#"
import base64, hashlib, sys, zipfile
name, version, folder, *files = sys.argv[1:]
info = f"{name}-{version}.dist-info"
entries = dict(zip(files[::2], files[1::2]))
entries[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
entries[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
digest = lambda text: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
record = "".join(f"{path},sha256={digest(text).decode()},{len(text)}\n" for path, text in entries.items())
entries[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
with zipfile.ZipFile(f"{folder}/{name}-{version}-py3-none-any.whl", "w") as wheel:
    for path, text in entries.items():
        wheel.writestr(path, text)
"#;

impl Bench {
    pub fn index(&self) -> PathBuf {
        self.folder.path().join("index")
    }

    /// Publishes a wheel of version 1.0 with these files in the test's index.
    pub fn publish(&self, name: &str, files: &[(&str, &str)]) {
        fs::create_dir_all(self.index()).unwrap();
        let mut build = Command::new(&self.python.executable);
        build.args(["-I", "-S", "-c", BUILD, name, "1.0"]).arg(self.index());
        build.args(files.iter().flat_map(|(path, text)| [*path, *text]));
        assert!(build.status().unwrap().success());
    }

    /// A uv that finds only published wheels; the shell runs `before` before each call.
    pub fn local_uv(&self, before: &str) -> PathBuf {
        let text = format!(
            "{before}\nexec {} \"$@\" --no-index --find-links {}",
            self.uv.display(),
            self.index().display()
        );
        self.script("local-uv", &text)
    }
}
