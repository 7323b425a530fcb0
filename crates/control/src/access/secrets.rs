//! Secrets of functions: references in the registry, values only in the instances that need them.
//!
//! | reference | leads to | for |
//! |---|---|---|
//! | `file:NAME` or `file:FOLDER/TENANT/NAME` | a file below the server's folder of secrets | every tenant, its own folder |
//! | `env:VARIABLE` | a variable of the server | the tenant `default`, which only operators act for |
//!
//! Invariants: what a reference leads to depends on the tenant of the function and not on who calls
//! it, so no tenant reads the secrets of another. No error text has a value, nor a reference of an
//! unknown form, which may be a value by mistake.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::{Component, Path, PathBuf};

use snowmelt_node::Secrets;
use snowmelt_types::{Code, ErrorReport, Tenant};

/// The most secrets of a piece of code.
const MAX_SECRETS: usize = 64;

/// The most bytes of a value, and of all values of a piece of code: they are in the environment of
/// a process when it starts.
const MAX_VALUE: usize = 16 << 10;
const MAX_VALUES: usize = 32 << 10;

/// The most bytes of a name.
const MAX_NAME: usize = 64;

/// The sources of the secrets of all tenants.
#[derive(Clone, Debug)]
pub(crate) struct SecretSources {
    folder: PathBuf,
}

/// The source of a secret, to which a reference leads.
#[derive(Debug, PartialEq, Eq)]
enum SecretSource {
    Variable(String),
    File(String),
}

impl SecretSources {
    /// Makes the sources of a folder, which has a folder for each tenant.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Reads the values to which the references of a tenant's function lead.
    pub async fn read(
        &self,
        tenant: &Tenant,
        references: &BTreeMap<String, String>,
    ) -> Result<Secrets, ErrorReport> {
        if references.is_empty() {
            return Ok(Secrets::default());
        }
        let sources = self.clone();
        let tenant = tenant.clone();
        let references = references.clone();
        let reading = move || sources.read_all(&tenant, &references);
        let read = tokio::task::spawn_blocking(reading).await;
        read.map_err(|error| ErrorReport::new(Code::INTERNAL, error.to_string()))?
    }

    fn read_all(
        &self,
        tenant: &Tenant,
        references: &BTreeMap<String, String>,
    ) -> Result<Secrets, ErrorReport> {
        if references.len() > MAX_SECRETS {
            let found = references.len();
            return Err(refused(format!("{found} secrets are named, {MAX_SECRETS} are the most")));
        }
        let mut values = BTreeMap::new();
        for (name, reference) in references {
            check_name(name)?;
            let value = match self.source(tenant, name, reference)? {
                SecretSource::Variable(variable) => variable_value(tenant, name, &variable)?,
                SecretSource::File(file) => self.file_value(tenant, name, &file)?,
            };
            values.insert(name.clone(), value);
        }
        let length: usize = values.values().map(String::len).sum();
        if length > MAX_VALUES {
            let message = format!("the secrets have {length} bytes together");
            return Err(refused(message).hint(format!("{MAX_VALUES} bytes are allowed")));
        }
        Ok(Secrets::new(values))
    }

    fn source(&self, tenant: &Tenant, name: &str, text: &str) -> Result<SecretSource, ErrorReport> {
        if let Some(variable) = text.strip_prefix("env:").filter(|name| is_variable(name)) {
            return Ok(SecretSource::Variable(variable.to_owned()));
        }
        let Some(path) = text.strip_prefix("file:") else {
            // The text is not repeated: it may be the secret itself.
            let message = format!("the secret {name} is neither env:VARIABLE nor file:NAME");
            return Err(refused(message).hint(
                "name where the server finds the value, and not the value: --secret \
                 API_KEY=env:API_KEY",
            ));
        };
        let own = self.folder.join(tenant.as_str());
        let inside = Path::new(path).strip_prefix(&own).unwrap_or(Path::new(path));
        match (inside.to_str(), inside.components().next()) {
            (Some(file), Some(Component::Normal(only))) if only == inside.as_os_str() => {
                Ok(SecretSource::File(file.to_owned()))
            }
            _ => {
                let own = own.display();
                let message = format!("the secret {name} is not a file in {own}");
                Err(refused(message).hint(format!(
                    "secrets of tenant `{tenant}` are files in that folder: file:NAME"
                )))
            }
        }
    }

    fn file_value(&self, tenant: &Tenant, name: &str, file: &str) -> Result<String, ErrorReport> {
        let own = self.folder.join(tenant.as_str());
        let path = own.join(file);
        let failed = |error: std::io::Error| {
            let reason = match error.kind() {
                ErrorKind::NotFound => "there is no such file on the server".to_owned(),
                _ => error.to_string(),
            };
            let message =
                format!("the secret {name} cannot be read from {}: {reason}", path.display());
            match error.kind() {
                ErrorKind::PermissionDenied => refused(message).hint(
                    "the user of the server has to read it: chgrp it to that user's group and chmod g+r",
                ),
                _ => refused(message),
            }
        };
        // A secret may be a link, as orchestrators make them, but not to another tenant's folder.
        let real = path.canonicalize().map_err(failed)?;
        if !real.starts_with(own.canonicalize().map_err(failed)?) {
            let shown = path.display();
            return Err(refused(format!("the secret {name}: {shown} leads out of its folder")));
        }
        // Not a pipe or a device, which would be waited for.
        if !real.metadata().map_err(failed)?.is_file() {
            return Err(refused(format!("the secret {name}: {} is not a file", path.display())));
        }
        let mut bytes = Vec::new();
        // One more than is allowed, and the end of the line.
        let mut file = std::fs::File::open(&real).map_err(failed)?.take(MAX_VALUE as u64 + 3);
        file.read_to_end(&mut bytes).map_err(failed)?;
        let text = String::from_utf8(bytes)
            .map_err(|_| refused(format!("the secret {name}: {} is not text", path.display())))?;
        // Editors end a file with a line feed.
        let text =
            text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line));
        checked(name, text)
    }
}

fn variable_value(tenant: &Tenant, name: &str, variable: &str) -> Result<String, ErrorReport> {
    if *tenant != Tenant::default() {
        let message = format!(
            "the secret {name} names a variable of the server, and tenant `{tenant}` may not read it"
        );
        return Err(refused(message).hint(
            "ask an operator for a file in the tenant's folder of secrets, and name it file:NAME",
        ));
    }
    match std::env::var(variable) {
        Ok(value) => checked(name, &value),
        Err(std::env::VarError::NotPresent) => {
            let message = format!("the secret {name}: the server has no variable {variable}");
            Err(refused(message).hint(
                "a running server has the environment that it was started with, and not that of \
                 the client",
            ))
        }
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(refused(format!("the secret {name}: the variable {variable} is not text")))
        }
    }
}

fn checked(name: &str, value: &str) -> Result<String, ErrorReport> {
    match value.len() {
        0 => Err(refused(format!("the secret {name} is empty"))),
        length if length > MAX_VALUE => Err(refused(format!(
            "the secret {name} is longer than {MAX_VALUE} bytes, the most of one"
        ))),
        _ if value.contains('\0') => Err(refused(format!("the secret {name} has a zero byte"))),
        _ => Ok(value.to_owned()),
    }
}

fn check_name(name: &str) -> Result<(), ErrorReport> {
    if name.len() <= MAX_NAME && is_variable(name) {
        return Ok(());
    }
    let message = format!("`{name}` cannot be the name of a secret");
    Err(refused(message).hint(format!(
        "names have at most {MAX_NAME} of A-Z a-z 0-9 _, and do not begin with a digit"
    )))
}

fn is_variable(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && !name.as_bytes()[0].is_ascii_digit() && name.bytes().all(plain)
}

fn refused(message: String) -> ErrorReport {
    ErrorReport::new(Code::FUNCTION_SECRET, message)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Rig {
        folder: tempfile::TempDir,
        sources: SecretSources,
    }

    fn rig() -> Rig {
        let folder = tempfile::tempdir().unwrap();
        for (path, value) in [("default/KEY", "value-1\n"), ("other/KEY", "value-2\r\n")] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, value).unwrap();
        }
        let sources = SecretSources::new(folder.path());
        Rig { folder, sources }
    }

    impl Rig {
        fn read(&self, tenant: &str, reference: &str) -> Result<Secrets, ErrorReport> {
            let references = BTreeMap::from([("TOKEN".to_owned(), reference.to_owned())]);
            self.sources.read_all(&tenant.parse().unwrap(), &references)
        }

        fn refusal(&self, tenant: &str, reference: &str) -> String {
            let report = self.read(tenant, reference).unwrap_err();
            assert_eq!(report.code, Code::FUNCTION_SECRET.code);
            let text = report.to_string();
            assert!(!text.contains("value-"), "{text}");
            text
        }
    }

    fn values(value: &str) -> Secrets {
        Secrets::new(BTreeMap::from([("TOKEN".to_owned(), value.to_owned())]))
    }

    #[test]
    fn a_tenant_reads_the_files_of_its_own_folder() {
        let rig = rig();
        assert_eq!(rig.read("default", "file:KEY").unwrap(), values("value-1"));
        assert_eq!(rig.read("other", "file:KEY").unwrap(), values("value-2"));
        let whole = format!("file:{}/other/KEY", rig.folder.path().display());
        assert_eq!(rig.read("other", &whole).unwrap(), values("value-2"));
        for path in [
            whole.as_str(),
            "file:../other/KEY",
            "file:/etc/passwd",
            "file:other/KEY",
            "file:",
            "file:..",
            "file:.",
            "file:KEY/",
        ] {
            assert!(rig.refusal("default", path).contains("is not a file in"), "{path}");
        }
        assert!(rig.refusal("default", "file:MISSING").contains("there is no such file"));
        assert!(rig.refusal("third", "file:KEY").contains("there is no such file"));
    }

    #[test]
    fn links_stay_in_the_folder_of_the_tenant() {
        let rig = rig();
        let own = rig.folder.path().join("default");
        symlink("KEY", own.join("LINK")).unwrap();
        symlink("../other/KEY", own.join("OUT")).unwrap();
        std::fs::create_dir(own.join("FOLDER")).unwrap();
        assert_eq!(rig.read("default", "file:LINK").unwrap(), values("value-1"));
        assert!(rig.refusal("default", "file:OUT").contains("leads out"));
        assert!(rig.refusal("default", "file:FOLDER").contains("is not a file"));
    }

    #[test]
    fn values_are_short_texts() {
        let rig = rig();
        let own = rig.folder.path().join("default");
        for (bytes, reason) in [
            (vec![b'x'; MAX_VALUE + 1], "longer than"),
            (b"value-\xff".to_vec(), "not text"),
            (b"\n".to_vec(), "is empty"),
            (b"value-\0".to_vec(), "zero byte"),
        ] {
            std::fs::write(own.join("KEY"), bytes).unwrap();
            let refusal = rig.refusal("default", "file:KEY");
            assert!(refusal.contains(reason), "{refusal}");
        }
        std::fs::write(own.join("KEY"), vec![b'x'; MAX_VALUE]).unwrap();
        assert!(rig.read("default", "file:KEY").is_ok());
        let many = (0..3).map(|n| (format!("K{n}"), "file:KEY".to_owned())).collect();
        let report = rig.sources.read_all(&Tenant::default(), &many).unwrap_err();
        assert!(report.message.contains("together"), "{report}");
    }

    #[test]
    fn a_value_that_stands_for_a_reference_is_not_repeated() {
        let rig = rig();
        for text in ["value-3", "", "env:", "env:a-value-3", "ENV:value-3"] {
            assert!(rig.refusal("default", text).contains("neither env:VARIABLE"), "{text}");
        }
        assert!(rig.refusal("other", "env:PATH").contains("tenant `other` may not read it"));
        assert!(rig.read("default", "env:PATH").is_ok());
        let missing = rig.refusal("default", "env:NO_SUCH_VARIABLE_OF_A_TEST");
        assert!(missing.contains("no variable NO_SUCH_VARIABLE_OF_A_TEST"), "{missing}");
    }

    #[test]
    fn names_are_those_of_variables() {
        for (name, is_good) in [("API_KEY", true), ("_a1", true), ("1a", false), ("a-b", false)] {
            assert_eq!(check_name(name).is_ok(), is_good, "{name}");
        }
        assert!(check_name(&"a".repeat(65)).is_err() && check_name("").is_err());
    }
}
