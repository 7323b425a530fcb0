//! Tokens of tenants, for requests from other hosts.
//!
//! A file has a line for each: the tenant, the digest of its token, its role and its end, and
//! comments (`#`). Configuration management writes it; keys that the platform makes are in its
//! records. It is read again when it changes, so a token that is removed is refused from then on.
//! Invariants: the file has digests and no token, and no log has a token. A file that cannot be
//! read, or has a line that is wrong, gives no access at all.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, NaiveDate};
use snowmelt_types::{Code, Digest, ErrorReport, Role, Tenant};

use super::file_version::FileVersion;
use super::identity::KeyHolder;
use super::key::{PREFIX, is_same, random_digits};

/// Bytes of a token, before they are written as text.
const TOKEN_BYTES: usize = 32;

/// The most bytes of a file of tokens.
const MAX_BYTES: u64 = 16 << 20;

/// The tokens of a file.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    /// Whether there may be no such file: then no token is accepted.
    is_optional: bool,
    /// The user that the server becomes, who may own the file.
    server: Option<u32>,
    known: Mutex<TokenTable>,
}

/// The tokens of the file when it was read.
#[derive(Debug, Default)]
struct TokenTable {
    version: Option<FileVersion>,
    tokens: Vec<TokenLine>,
}

/// A token, without the token.
#[derive(Clone, Debug)]
struct TokenLine {
    tenant: Tenant,
    digest: Digest,
    role: Role,
    /// When it ends, in milliseconds since 1970.
    until_ms: Option<u64>,
}

impl Tokens {
    /// Reads the tokens of a file, which must be valid now. An optional one may be missing. The file
    /// may belong to `server`, the user that the server becomes.
    ///
    /// # Errors
    /// `SM-0110`.
    pub fn open(path: &Path, is_optional: bool, server: Option<u32>) -> Result<Self, ErrorReport> {
        let known = Mutex::new(TokenTable::default());
        let tokens = Self { path: path.to_owned(), is_optional, server, known };
        let read = tokens.read().map_err(|problem| {
            ErrorReport::new(Code::OPTION, format!("{}: {problem}", path.display())).hint(
                "`snowmelt token new TENANT --tls-tokens FILE` makes a token and adds its line to \
                 the file",
            )
        })?;
        Ok(Self { known: Mutex::new(read), ..tokens })
    }

    /// Returns the holder of a token, and the time of its end in milliseconds since 1970.
    pub(crate) fn holder(&self, token: &str) -> Option<(KeyHolder, Option<u64>)> {
        let given = Digest::of(token);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        self.refresh(&mut known);
        // Each is compared, whichever is found.
        let found = known.tokens.iter().fold(None, |found, line| {
            if is_same(&line.digest, &given) { Some(line) } else { found }
        })?;
        let tenant = found.tenant.clone();
        let holder = KeyHolder { tenant, role: found.role, grants: Vec::new(), key: None };
        Some((holder, found.until_ms))
    }

    fn refresh(&self, known: &mut TokenTable) {
        let now = std::fs::metadata(&self.path).ok().map(|found| FileVersion::new(&found));
        if now == known.version && (now.is_some() || self.is_optional) {
            return;
        }
        *known = self.read().unwrap_or_else(|problem| {
            let path = self.path.display();
            tracing::warn!(%path, %problem, "no token of the file is accepted");
            TokenTable::default()
        });
    }

    fn read(&self) -> Result<TokenTable, String> {
        if self.is_optional && !self.path.exists() {
            return Ok(TokenTable::default());
        }
        let (version, tokens) = read(&self.path, self.server)?;
        Ok(TokenTable { version: Some(version), tokens })
    }
}

/// Makes a token, and adds its line to a file, which is made where it is missing. Gives the token.
/// The end is in milliseconds since 1970. A file that root makes belongs to `server`, the user that the
/// server becomes, who has to read it.
///
/// # Errors
/// `SM-0110` if the tenant may have no token with this role, or if the file is wrong; `SM-0505`.
pub fn add(
    path: &Path,
    tenant: &Tenant,
    role: Role,
    until_ms: Option<u64>,
    server: Option<u32>,
) -> Result<String, ErrorReport> {
    let wrong = |problem: String| ErrorReport::new(Code::OPTION, problem);
    check_tenant(tenant, role).map_err(wrong)?;
    let until = until_ms.map(|ms| time_text(ms).map(|text| format!(" until={text}")));
    let until = until.transpose().map_err(wrong)?.unwrap_or_default();
    if path.exists() {
        let checked = read(path, server);
        checked.map_err(|problem| wrong(format!("{}: {problem}", path.display())))?;
    }
    let added = || -> io::Result<String> {
        let token = format!("{PREFIX}{}", random_digits(TOKEN_BYTES)?);
        let mut options = OpenOptions::new();
        options.append(true).create(true).read(true).mode(0o600);
        let to = server.filter(|_| rustix::process::geteuid().is_root());
        if to.is_some() {
            // The folder may be that of the server, who could have a link there.
            options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
        }
        let mut file = options.open(path)?;
        if let Some(user) = to.filter(|_| file.metadata().is_ok_and(|found| found.len() == 0)) {
            rustix::fs::fchown(&file, Some(rustix::fs::Uid::from_raw(user)), None)?;
        }
        // Someone may have written the last line without an end.
        let begin = if ends_with_a_line(&file)? { "" } else { "\n" };
        let line = format!("{begin}{tenant} {} {role}{until}\n", Digest::of(&token));
        file.write_all(line.as_bytes())?;
        Ok(token)
    };
    added().map_err(|error| super::permissions::failure(path, &error))
}

fn ends_with_a_line(file: &File) -> io::Result<bool> {
    let length = file.metadata()?.len();
    let mut last = [b'\n'];
    if length > 0 {
        std::os::unix::fs::FileExt::read_exact_at(file, &mut last, length - 1)?;
    }
    Ok(last == [b'\n'])
}

/// Refuses a role that the tenant may not have. The functions of root's tenant can read variables
/// of the server as secrets, and only an operator may use them.
pub(crate) fn check_tenant(tenant: &Tenant, role: Role) -> Result<(), String> {
    match (*tenant == Tenant::default(), role == Role::Operator) {
        (true, false) => Err(format!(
            "tenant `{tenant}` has no keys of the role `{role}`: it is that of root and of the user \
             of the server"
        )),
        (false, true) => Err(format!(
            "tenant `{tenant}` has no keys of the role `{role}`: those are of the tenant `{}`",
            Tenant::default()
        )),
        _ => Ok(()),
    }
}

fn read(path: &Path, server: Option<u32>) -> Result<(FileVersion, Vec<TokenLine>), String> {
    let opened = File::open(path).and_then(|file| file.metadata().map(|found| (file, found)));
    let (file, found) = opened.map_err(|error| error.to_string())?;
    check_owner(&found, server)?;
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(|error| error.to_string())?;
    let lines = text.lines().enumerate();
    let lines = lines.map(|(number, line)| (number + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    // A line may have a token by mistake, so it is not shown.
    let tokens = lines.map(|(number, line)| {
        parse(line).map_err(|problem| format!("line {number} is not valid: {problem}"))
    });
    Ok((FileVersion::new(&found), tokens.collect::<Result<_, _>>()?))
}

/// Refuses a file that gives rights if others than root and the user of the server may write to it:
/// that of this process, or `server`, whom it becomes.
pub(super) fn check_owner(found: &Metadata, server: Option<u32>) -> Result<(), String> {
    let own = rustix::process::geteuid().as_raw();
    if ![Some(0), Some(own), server].contains(&Some(found.uid())) {
        return Err("its owner is neither root nor the user of the server".to_owned());
    }
    if found.mode() & 0o022 != 0 {
        return Err("others than its owner may write to it (chmod go-w)".to_owned());
    }
    Ok(())
}

fn parse(line: &str) -> Result<TokenLine, String> {
    let mut words = line.split_whitespace();
    let (Some(tenant), Some(digest)) = (words.next(), words.next()) else {
        return Err("it needs a tenant and the digest of its token".to_owned());
    };
    // Errors would show the word, which may be a token by mistake.
    let tenant: Tenant = tenant.parse().map_err(|_| "no tenant has such a name".to_owned())?;
    let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_digest {
        return Err("the digest has 64 hexadecimal characters".to_owned());
    }
    let digest = serde_json::Value::String(digest.to_ascii_lowercase());
    let digest = serde_json::from_value(digest).map_err(|error| error.to_string())?;
    let mut role = None;
    let mut until_ms = None;
    for word in words {
        match word.strip_prefix("until=") {
            Some(time) if until_ms.is_none() => until_ms = Some(parse_time(time)?),
            None if role.is_none() && until_ms.is_none() => {
                role = Some(word.parse().map_err(|_| "no role has such a name".to_owned())?);
            }
            _ => return Err("after the digest are a role and until=TIME".to_owned()),
        }
    }
    let role = role.unwrap_or(Role::Developer);
    check_tenant(&tenant, role)?;
    Ok(TokenLine { tenant, digest, role, until_ms })
}

/// Reads a time of RFC 3339, or a date, which is its beginning in UTC, in milliseconds since 1970.
fn parse_time(text: &str) -> Result<u64, String> {
    let date = || Some(text.parse::<NaiveDate>().ok()?.and_hms_opt(0, 0, 0)?.and_utc());
    let time = DateTime::parse_from_rfc3339(text).map(|time| time.to_utc()).ok().or_else(date);
    let ms = time.and_then(|time| u64::try_from(time.timestamp_millis()).ok());
    ms.ok_or_else(|| "until= takes a date or a time such as 2027-01-31T12:00:00Z".to_owned())
}

/// Writes a time in milliseconds since 1970 as RFC 3339, without parts of a second.
fn time_text(ms: u64) -> Result<String, String> {
    let time = i64::try_from(ms).ok().and_then(DateTime::from_timestamp_millis);
    let time = time.ok_or_else(|| "that time is too far away".to_owned())?;
    Ok(time.format("%Y-%m-%dT%H:%M:%SZ").to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn tenant(name: &str) -> Tenant {
        name.parse().unwrap()
    }

    fn add(path: &Path, of: &str) -> Result<String, ErrorReport> {
        super::add(path, &tenant(of), Role::Developer, None, None)
    }

    fn tenant_of(tokens: &Tokens, token: &str) -> Option<Tenant> {
        tokens.holder(token).map(|(holder, _)| holder.tenant)
    }

    #[test]
    fn a_token_leads_to_its_tenant_until_its_line_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let acme = add(&path, "acme");
        let other = add(&path, "other");
        let acme = acme.unwrap();
        let other = other.unwrap();
        assert_ne!(acme, other);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&acme), "the file has digests only");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let tokens = Tokens::open(&path, false, None).unwrap();
        assert_eq!(tenant_of(&tokens, &acme), Some(tenant("acme")));
        assert_eq!(tenant_of(&tokens, &other), Some(tenant("other")));
        for wrong in ["", "Bearer ", &acme[..acme.len() - 1]] {
            assert_eq!(tenant_of(&tokens, wrong), None, "{wrong:?}");
        }
        let without = text.lines().filter(|line| !line.starts_with("acme")).collect::<String>();
        std::fs::write(&path, without).unwrap();
        assert_eq!(tenant_of(&tokens, &acme), None);
        assert_eq!(tenant_of(&tokens, &other), Some(tenant("other")));
        let third = add(&path, "third").unwrap();
        assert_eq!(tenant_of(&tokens, &third), Some(tenant("third")));
    }

    #[test]
    fn a_file_that_is_wrong_gives_no_access() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        assert!(Tokens::open(&path, false, None).is_err(), "it is missing");
        let token = add(&path, "acme").unwrap();
        let tokens = Tokens::open(&path, false, None).unwrap();
        let valid = std::fs::read_to_string(&path).unwrap();
        let digest = "0f".repeat(32);
        for wrong in [
            "acme",
            "acme 0f",
            &format!("acme {digest} x"),
            &format!("acme {digest} reader caller"),
            &format!("acme {digest} until=soon"),
            &format!("acme {digest} until=2027-01-31 reader"),
            &format!("acme {digest} operator"),
            &format!("default {digest}"),
        ] {
            std::fs::write(&path, format!("{valid}{wrong}\n")).unwrap();
            let refused = Tokens::open(&path, false, None).unwrap_err();
            assert!(refused.message.contains("line 2"), "{refused}");
            assert_eq!(tenant_of(&tokens, &token), None, "{wrong}");
            assert!(add(&path, "acme").is_err(), "{wrong}");
        }
        std::fs::write(&path, format!("# of the notebooks\n\n{valid}")).unwrap();
        assert!(tokens.holder(&token).is_some());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o620)).unwrap();
        assert!(Tokens::open(&path, false, None).unwrap_err().message.contains("may write"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(1234), None).unwrap();
            assert!(Tokens::open(&path, true, None).unwrap_err().message.contains("its owner"));
            assert_eq!(tenant_of(&tokens, &token), None);
            // The user that a server of root becomes, who owns what is in the state folder.
            let tokens = Tokens::open(&path, true, Some(1234)).unwrap();
            assert_eq!(tenant_of(&tokens, &token), Some(tenant("acme")));
            super::add(&path, &tenant("acme"), Role::Developer, None, Some(1234)).unwrap();
        }
        assert!(add(&path, "default").is_err());
    }

    #[test]
    fn a_file_that_root_makes_belongs_to_the_user_of_the_server() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let more = || super::add(&path, &tenant("acme"), Role::Developer, None, Some(1234));
        more().unwrap();
        more().unwrap();
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o777), (1234, 0o600));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(super::add(&link, &tenant("acme"), Role::Developer, None, Some(1234)).is_err());
    }

    #[test]
    fn an_optional_file_may_come_later_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let tokens = Tokens::open(&path, true, None).unwrap();
        assert_eq!(tenant_of(&tokens, "snowmelt-0"), None);
        let token = add(&path, "acme").unwrap();
        assert_eq!(tenant_of(&tokens, &token), Some(tenant("acme")));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(tenant_of(&tokens, &token), None);
    }

    #[test]
    fn a_line_has_a_role_and_an_end() {
        let digest = "0f".repeat(32);
        let read = |rest: &str| {
            let line = parse(&format!("acme {digest}{rest}")).unwrap();
            (line.role, line.until_ms)
        };
        assert_eq!(read(""), (Role::Developer, None));
        assert_eq!(read(" caller"), (Role::Caller, None));
        assert_eq!(read(" until=1970-01-02"), (Role::Developer, Some(86_400_000)));
        assert_eq!(read(" reader until=1970-01-01T01:00:01+01:00"), (Role::Reader, Some(1000)));
        assert_eq!(parse(&format!("default {digest} operator")).unwrap().role, Role::Operator);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let until = Some(1_800_000_000_000);
        let token = super::add(&path, &tenant("acme"), Role::Reader, until, None).unwrap();
        let (holder, end) = Tokens::open(&path, false, None).unwrap().holder(&token).unwrap();
        assert_eq!((holder.role, end), (Role::Reader, until));
    }
}
