//! Tokens of tenants, for requests from other hosts.
//!
//! A file has a line for each: the tenant and the digest of its token, and comments (`#`). It is
//! read again when it changes, so a token that is removed is refused from then on. Invariants: the
//! file has digests and no token, and no log has a token. A file that cannot be read, or has a line
//! that is wrong, gives no access at all.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use snowmelt_rpc::{Admission, Problem};
use snowmelt_types::{Code, Digest, ErrorReport, Tenant};
use subtle::ConstantTimeEq;

use super::identity::Identity;

/// Bytes of a token, before they are written as text.
const TOKEN_BYTES: usize = 32;

/// The prefix of a token, by which programs that search for secrets find it.
const PREFIX: &str = "snowmelt-";

/// The most bytes of a file of tokens.
const MAX_BYTES: u64 = 16 << 20;

/// The tokens of a file.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    known: Mutex<TokenTable>,
}

/// The tokens of the file when it was read.
#[derive(Debug)]
struct TokenTable {
    version: Option<TokenFileVersion>,
    tokens: Vec<(Tenant, Digest)>,
}

/// A value that differs between two versions of a file: device, inode, length, and when its
/// content, owner or mode was changed.
type TokenFileVersion = (u64, u64, u64, i64, i64);

impl Tokens {
    /// Reads the tokens of a file, which must be valid now.
    ///
    /// # Errors
    /// `SM-0110`.
    pub fn open(path: &Path) -> Result<Self, ErrorReport> {
        let wrong = |problem: String| {
            ErrorReport::new(Code::OPTION, format!("{}: {problem}", path.display()))
                .hint("`snowmelt token new TENANT` makes a token and adds its line to the file")
        };
        let (version, tokens) = read(path).map_err(wrong)?;
        let known = Mutex::new(TokenTable { version: Some(version), tokens });
        Ok(Self { path: path.to_owned(), known })
    }

    /// Returns the tenant of a request with this header `authorization`.
    fn tenant(&self, header: Option<&str>) -> Option<Tenant> {
        let given = Digest::of(header?.strip_prefix("Bearer ")?.trim());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        self.refresh(&mut known);
        // Each is compared, in a time that does not depend on where they differ.
        let same = |digest: &Digest| -> bool {
            digest.as_str().as_bytes().ct_eq(given.as_str().as_bytes()).into()
        };
        known.tokens.iter().fold(
            None,
            |found, (tenant, digest)| {
                if same(digest) { Some(tenant.clone()) } else { found }
            },
        )
    }

    fn refresh(&self, known: &mut TokenTable) {
        let now = std::fs::metadata(&self.path).ok().map(|found| version(&found));
        if now.is_some() && now == known.version {
            return;
        }
        *known = match read(&self.path) {
            Ok((version, tokens)) => TokenTable { version: Some(version), tokens },
            Err(problem) => {
                let path = self.path.display();
                tracing::warn!(%path, %problem, "no token of a tenant is accepted");
                TokenTable { version: None, tokens: Vec::new() }
            }
        };
    }
}

/// Makes a token, and adds its line to a file, which is made where it is missing. Gives the token.
///
/// # Errors
/// `SM-0110` if the tenant may have no tokens, or if the file is wrong; `SM-0505`.
pub fn add(path: &Path, tenant: &Tenant) -> Result<String, ErrorReport> {
    let wrong = |problem: String| ErrorReport::new(Code::OPTION, problem);
    check(tenant).map_err(wrong)?;
    if path.exists() {
        let checked = read(path);
        checked.map_err(|problem| wrong(format!("{}: {problem}", path.display())))?;
    }
    let added = || -> io::Result<String> {
        let token = new_token()?;
        let mut options = OpenOptions::new();
        let mut file = options.append(true).create(true).read(true).mode(0o600).open(path)?;
        // Someone may have written the last line without an end.
        let begin = if ends_with_a_line(&file)? { "" } else { "\n" };
        file.write_all(format!("{begin}{tenant} {}\n", Digest::of(&token)).as_bytes())?;
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

fn new_token() -> io::Result<String> {
    let mut random = [0; TOKEN_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{PREFIX}{digits}"))
}

/// Refuses root's tenant: its functions can read variables of the server as secrets, and no token
/// may give that access.
fn check(tenant: &Tenant) -> Result<(), String> {
    if *tenant == Tenant::default() {
        return Err(format!(
            "tenant `{tenant}` has no tokens: it is that of root and of the user of the server"
        ));
    }
    Ok(())
}

fn version(found: &Metadata) -> TokenFileVersion {
    (found.dev(), found.ino(), found.len(), found.ctime(), found.ctime_nsec())
}

fn read(path: &Path) -> Result<(TokenFileVersion, Vec<(Tenant, Digest)>), String> {
    let opened = File::open(path).and_then(|file| file.metadata().map(|found| (file, found)));
    let (file, found) = opened.map_err(|error| error.to_string())?;
    if found.uid() != 0 && found.uid() != rustix::process::geteuid().as_raw() {
        return Err("its owner is neither root nor the user of the server".to_owned());
    }
    if found.mode() & 0o022 != 0 {
        return Err("others than its owner may write to it (chmod go-w)".to_owned());
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(|error| error.to_string())?;
    let lines = text.lines().enumerate();
    let lines = lines.map(|(number, line)| (number + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    // A line may have a token by mistake, so it is not shown.
    let tokens = lines.map(|(number, line)| {
        parse(line).map_err(|problem| format!("line {number} is not valid: {problem}"))
    });
    Ok((version(&found), tokens.collect::<Result<_, _>>()?))
}

fn parse(line: &str) -> Result<(Tenant, Digest), String> {
    let mut words = line.split_whitespace();
    let (Some(tenant), Some(digest), None) = (words.next(), words.next(), words.next()) else {
        return Err("it needs a tenant and the digest of its token".to_owned());
    };
    // The error would show the word, which may be a token by mistake.
    let tenant: Tenant = tenant.parse().map_err(|_| "no tenant has such a name".to_owned())?;
    check(&tenant)?;
    let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_digest {
        return Err("the digest has 64 hexadecimal characters".to_owned());
    }
    let digest = serde_json::Value::String(digest.to_ascii_lowercase());
    Ok((tenant, serde_json::from_value(digest).map_err(|error| error.to_string())?))
}

/// Middleware that adds the identity of its token to each request, or refuses the request.
pub(crate) async fn admit(
    State(tokens): State<std::sync::Arc<Tokens>>,
    mut request: Request,
    next: Next,
) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let close = [(header::CONNECTION, "close")];
    let Some(tenant) = tokens.tenant(given) else {
        let message = match given {
            Some(_) => "the token of the request is not accepted",
            None => "the request has no token",
        };
        let report = ErrorReport::new(Code::TOKEN_REFUSED, message)
            .hint("`snowmelt token new TENANT` makes one on the platform's machine");
        // The body of the request is not read.
        return (close, Problem::from(report)).into_response();
    };
    let admission = request.extensions().get::<Admission>();
    let given = admission.map_or(Ok(()), |admission| admission.give(Some(tenant.as_str())));
    if let Err(refused) = given {
        return (close, Problem::from(refused)).into_response();
    }
    match Identity::of_token(tenant, request.headers()) {
        Ok(identity) => {
            // The span of the request is the current one.
            tracing::Span::current().record("snowmelt.tenant", identity.tenant.as_str());
            request.extensions_mut().insert(identity);
            next.run(request).await
        }
        Err(refused) => (close, Problem::from(refused)).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn tenant(name: &str) -> Tenant {
        name.parse().unwrap()
    }

    fn bearer(token: &str) -> String {
        format!("Bearer {token}")
    }

    #[test]
    fn a_token_leads_to_its_tenant_until_its_line_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let acme = add(&path, &tenant("acme"));
        let other = add(&path, &tenant("other"));
        let acme = acme.unwrap();
        let other = other.unwrap();
        assert_ne!(acme, other);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&acme), "the file has digests only");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let tokens = Tokens::open(&path).unwrap();
        assert_eq!(tokens.tenant(Some(&bearer(&acme))), Some(tenant("acme")));
        assert_eq!(tokens.tenant(Some(&bearer(&other))), Some(tenant("other")));
        for wrong in [None, Some(""), Some("Bearer "), Some(&*acme), Some("Basic YTpi")] {
            assert_eq!(tokens.tenant(wrong), None, "{wrong:?}");
        }
        assert_eq!(tokens.tenant(Some(&bearer(&acme[..acme.len() - 1]))), None);
        let without = text.lines().filter(|line| !line.starts_with("acme")).collect::<String>();
        std::fs::write(&path, without).unwrap();
        assert_eq!(tokens.tenant(Some(&bearer(&acme))), None);
        assert_eq!(tokens.tenant(Some(&bearer(&other))), Some(tenant("other")));
        let third = add(&path, &tenant("third")).unwrap();
        assert_eq!(tokens.tenant(Some(&bearer(&third))), Some(tenant("third")));
    }

    #[test]
    fn a_file_that_is_wrong_gives_no_access() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        assert!(Tokens::open(&path).is_err(), "it is missing");
        let token = add(&path, &tenant("acme")).unwrap();
        let tokens = Tokens::open(&path).unwrap();
        let valid = std::fs::read_to_string(&path).unwrap();
        let digest = "0f".repeat(32);
        for wrong in ["acme", &format!("acme {digest} x"), "acme 0f", &format!("default {digest}")]
        {
            std::fs::write(&path, format!("{valid}{wrong}\n")).unwrap();
            let refused = Tokens::open(&path).unwrap_err();
            assert!(refused.message.contains("line 2"), "{refused}");
            assert_eq!(tokens.tenant(Some(&bearer(&token))), None, "{wrong}");
            assert!(add(&path, &tenant("acme")).is_err(), "{wrong}");
        }
        std::fs::write(&path, format!("# of the notebooks\n\n{valid}")).unwrap();
        assert!(tokens.tenant(Some(&bearer(&token))).is_some());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o620)).unwrap();
        assert!(Tokens::open(&path).unwrap_err().message.contains("may write"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(1234), None).unwrap();
            assert!(Tokens::open(&path).unwrap_err().message.contains("its owner"));
            assert_eq!(tokens.tenant(Some(&bearer(&token))), None);
        }
        assert!(add(&path, &Tenant::default()).is_err());
    }
}
