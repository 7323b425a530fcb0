//! Join tokens, and the hosts that have joined.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use snowmelt_store::{Expect, Transaction};
use snowmelt_types::{Digest, ErrorReport, HostName, Report};

use super::{PAGE, Records, collect, parse, written};

/// The prefixes of the keys of join tokens and of hosts.
const TOKENS: &str = "hosts/tokens/";
const MEMBERS: &str = "hosts/members/";

/// A join token, without its text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JoinTokenRecord {
    pub id: String,
    /// The digest of the text.
    pub digest: Digest,
    /// The only host that may use the token; `None` for any.
    #[serde(default)]
    pub name: Option<HostName>,
    pub expires_ms: u64,
    #[serde(default)]
    pub used: Option<JoinUse>,
}

/// The use of a join token: by which host, with the digest of its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JoinUse {
    pub name: HostName,
    pub key: Digest,
}

/// A host that has joined.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MemberRecord {
    pub name: HostName,
    /// The serial number of its last certificate.
    pub serial: u64,
    /// Certificates of the host with lower numbers are refused.
    #[serde(default)]
    pub refused_below: u64,
    /// When its last certificate ends.
    pub until_ms: u64,
}

/// A record, and what the store must still have when another one replaces it.
#[derive(Debug)]
pub(crate) struct Seen<T> {
    pub value: Option<T>,
    pub expect: Expect,
}

impl Records {
    /// Writes a new join token.
    pub async fn add_join_token(&self, token: &JoinTokenRecord) -> Result<(), ErrorReport> {
        let key = format!("{TOKENS}{}", token.id);
        let put = self.store.put(&key, written(token)?.into(), Expect::Absent).await;
        put.map(drop).map_err(|error| error.report())
    }

    /// Returns a join token.
    pub async fn join_token(&self, id: &str) -> Result<Seen<JoinTokenRecord>, ErrorReport> {
        self.seen(&format!("{TOKENS}{id}")).await
    }

    /// Returns all join tokens.
    pub async fn join_tokens(&self) -> Result<Vec<JoinTokenRecord>, ErrorReport> {
        collect(&*self.store, TOKENS, PAGE, parse).await
    }

    /// Removes the join tokens that have expired before this time.
    pub async fn forget_join_tokens(&self, before_ms: u64) -> Result<(), ErrorReport> {
        let tokens = self.join_tokens().await?;
        let old: Vec<_> = tokens.iter().filter(|token| token.expires_ms < before_ms).collect();
        for some in old.chunks(PAGE) {
            let all = some.iter().fold(Transaction::new(), |all, token| {
                all.delete(format!("{TOKENS}{}", token.id), Expect::Any)
            });
            self.store.transaction(all).await.map_err(|error| error.report())?;
        }
        Ok(())
    }

    /// Writes that a host has joined with a token, if both are as they were seen.
    pub async fn put_joined(
        &self,
        token: &JoinTokenRecord,
        token_as: Expect,
        member: &MemberRecord,
        member_as: Expect,
    ) -> Result<(), ErrorReport> {
        let both = Transaction::new()
            .put(format!("{TOKENS}{}", token.id), written(token)?, token_as)
            .put(format!("{MEMBERS}{}", member.name), written(member)?, member_as);
        self.store.transaction(both).await.map(drop).map_err(|error| error.report())
    }

    /// Writes a host that has joined, if it is as it was seen.
    pub async fn put_member(
        &self,
        member: &MemberRecord,
        as_seen: Expect,
    ) -> Result<(), ErrorReport> {
        let key = format!("{MEMBERS}{}", member.name);
        let put = self.store.put(&key, written(member)?.into(), as_seen).await;
        put.map(drop).map_err(|error| error.report())
    }

    /// Returns a host that has joined.
    pub async fn member(&self, name: &HostName) -> Result<Seen<MemberRecord>, ErrorReport> {
        self.seen(&format!("{MEMBERS}{name}")).await
    }

    /// Returns all hosts that have joined.
    pub async fn members(&self) -> Result<Vec<MemberRecord>, ErrorReport> {
        collect(&*self.store, MEMBERS, PAGE, parse).await
    }

    async fn seen<T: DeserializeOwned>(&self, key: &str) -> Result<Seen<T>, ErrorReport> {
        let entry = self.store.get(key).await.map_err(|error| error.report())?;
        Ok(match entry {
            Some(entry) => {
                Seen { value: Some(parse(&entry)?), expect: Expect::Version(entry.version) }
            }
            None => Seen { value: None, expect: Expect::Absent },
        })
    }
}
