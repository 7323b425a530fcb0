//! The identity of a request: who asks, for which tenant, with which role and for which names.
//!
//! Invariant: tenant, role and names come from the connection and from records of the platform,
//! never from the body of the request. An operator may name any tenant; every other user of the
//! socket, and every other key, has exactly one.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use snowmelt_api::TENANT_HEADER;
use snowmelt_kernel::file_user::FileUser;
use snowmelt_rpc::{Peer, Problem};
use snowmelt_tasks::FileRights;
use snowmelt_types::{Code, ErrorReport, NamePattern, Right, Role, Tenant};

use super::tenant_header::named;

/// The identity of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    peer: Peer,
    /// The tenant that the request acts for.
    pub tenant: Tenant,
    pub role: Role,
    /// The names that the request may use; none: all.
    grants: Arc<[NamePattern]>,
    /// The identifier of the key, if the request has one that the platform made.
    key: Option<Arc<str>>,
    /// The subject at its issuer, if the request has a token of one.
    principal: Option<Arc<str>>,
}

/// The holder of a key, as the platform has written it down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyHolder {
    pub tenant: Tenant,
    pub role: Role,
    pub grants: Vec<NamePattern>,
    /// The identifier of the key; `None` for a line of the file of tokens.
    pub key: Option<String>,
}

/// Returns the role of a peer; `None` for one of which only a key tells.
fn role(peer: Peer) -> Option<Role> {
    match peer {
        Peer::User(user) if user == 0 || user == rustix::process::geteuid().as_raw() => {
            Some(Role::Operator)
        }
        Peer::User(_) => Some(Role::Administrator),
        Peer::Cluster => Some(Role::Operator),
        Peer::Remote => None,
    }
}

/// Returns the tenant of a request of this peer without the header.
fn own_tenant(peer: Peer, role: Role) -> Tenant {
    match peer {
        // The name of a tenant may contain digits, so this cannot fail.
        Peer::User(user) if role != Role::Operator => {
            format!("uid-{user}").parse().unwrap_or_default()
        }
        _ => Tenant::default(),
    }
}

impl Identity {
    /// Makes the identity of a peer that acts for a named tenant, or for its own.
    pub fn new(peer: Peer, named: Option<Tenant>) -> Result<Self, ErrorReport> {
        let role = super::only_user::check(peer).and_then(|()| role(peer).ok_or_else(unknown))?;
        let own = own_tenant(peer, role);
        let tenant = named.unwrap_or_else(|| own.clone());
        if tenant != own && role != Role::Operator {
            let message = format!("this user acts for tenant `{own}` and not for `{tenant}`");
            let hint = format!("omit the tenant, or name `{own}`; root may name any");
            return Err(ErrorReport::new(Code::TENANT_REFUSED, message).hint(hint));
        }
        Ok(Self { peer, tenant, role, grants: Arc::default(), key: None, principal: None })
    }

    /// Makes the identity of a request with a key. Only that of an operator may name another tenant
    /// than its own.
    pub fn of_key(holder: KeyHolder, headers: &HeaderMap) -> Result<Self, ErrorReport> {
        let KeyHolder { tenant: own, role, grants, key } = holder;
        let tenant = named(headers)?.unwrap_or_else(|| own.clone());
        if tenant != own && role != Role::Operator {
            let message = format!("this key acts for tenant `{own}` and not for `{tenant}`");
            let hint = format!("omit the tenant, or name `{own}`");
            return Err(ErrorReport::new(Code::TENANT_REFUSED, message).hint(hint));
        }
        let key = key.map(Arc::from);
        let grants = grants.into();
        Ok(Self { peer: Peer::Remote, tenant, role, grants, key, principal: None })
    }

    /// Names the subject of a request with a token of an issuer.
    pub fn of_principal(self, principal: &str) -> Self {
        Self { principal: Some(principal.into()), ..self }
    }

    /// Refuses a body that names another tenant. Older clients send the tenant in the body.
    pub fn check(&self, in_body: Option<&Tenant>) -> Result<(), ErrorReport> {
        match in_body.filter(|named| **named != self.tenant) {
            None => Ok(()),
            Some(named) => {
                let own = &self.tenant;
                let message =
                    format!("the request is for tenant `{own}`, its body names `{named}`");
                Err(ErrorReport::new(Code::TENANT_REFUSED, message)
                    .hint(format!("name the tenant in the header `{TENANT_HEADER}` only")))
            }
        }
    }

    /// Returns whether the request came over the network.
    pub fn is_remote(&self) -> bool {
        self.peer == Peer::Remote
    }

    /// Returns whether the request may do everything.
    pub fn is_operator(&self) -> bool {
        self.role == Role::Operator
    }

    /// Returns whether the request has a right.
    pub fn has(&self, right: Right) -> bool {
        self.role.has(right)
    }

    /// Refuses a request without a right to what it asks for.
    pub fn check_right(&self, right: Right, what: &str) -> Result<(), ErrorReport> {
        if self.has(right) {
            return Ok(());
        }
        let role = self.role;
        let message = format!("the role `{role}` has no right to {what}, which needs `{right}`");
        let hint = if right == Right::Operate {
            "root and the user of the server may, and a key with the role `operator`".to_owned()
        } else {
            let enough = Role::ALL.into_iter().filter(|role| role.has(right));
            let enough: Vec<_> = enough.map(|role| format!("`{role}`")).collect();
            let roles = enough.join(", ");
            format!("ask an administrator of the tenant for a key with one of the roles {roles}")
        };
        Err(ErrorReport::new(Code::RIGHT_MISSING, message).hint(hint))
    }

    /// Returns whether all that a key with this role and these names may do, the request may do too.
    pub fn covers(&self, role: Role, grants: &[NamePattern]) -> bool {
        let within = |grant| self.grants.iter().any(|own: &NamePattern| own.includes(grant));
        self.role.includes(role)
            && (self.grants.is_empty() || !grants.is_empty() && grants.iter().all(within))
    }

    /// Returns the name of who asks, for records.
    pub fn who(&self) -> String {
        if let Some(principal) = &self.principal {
            return principal.to_string();
        }
        match (&self.key, self.peer) {
            (Some(key), _) => format!("key {key}"),
            (None, Peer::User(user)) => format!("user {user}"),
            (None, Peer::Cluster) => "a host".to_owned(),
            (None, Peer::Remote) => "a token of the file".to_owned(),
        }
    }

    /// Returns the identifier of the key of the request, if it has one that the platform made.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Returns whether the request is limited to some names.
    pub fn is_limited(&self) -> bool {
        !self.grants.is_empty()
    }

    /// Returns whether the request may use a function of this name.
    pub fn permits(&self, name: &str) -> bool {
        self.grants.is_empty() || self.grants.iter().any(|grant| grant.matches(name))
    }

    /// Returns whether the request may use a UDF of this name. Case does not distinguish UDFs.
    pub fn permits_udf(&self, name: &str) -> bool {
        self.grants.is_empty() || self.grants.iter().any(|grant| grant.matches_any_case(name))
    }

    /// Refuses a function whose name the request may not use.
    pub fn check_name(&self, name: &str) -> Result<(), ErrorReport> {
        if self.permits(name) { Ok(()) } else { Err(self.other_name(name)) }
    }

    /// Refuses a UDF whose name the request may not use.
    pub fn check_udf_name(&self, name: &str) -> Result<(), ErrorReport> {
        if self.permits_udf(name) { Ok(()) } else { Err(self.other_name(name)) }
    }

    fn other_name(&self, name: &str) -> ErrorReport {
        let grants: Vec<_> = self.grants.iter().map(|grant| format!("`{grant}`")).collect();
        let message = format!("this key is for {} and not for `{name}`", grants.join(", "));
        ErrorReport::new(Code::RIGHT_MISSING, message)
            .hint("ask an administrator of the tenant for a key with this name")
    }

    /// Returns the number of a user who is not an operator. A user of another host has a number
    /// that no user of this machine has.
    pub fn member(&self) -> Option<u32> {
        match self.peer {
            _ if self.is_operator() => None,
            Peer::User(user) => Some(user),
            Peer::Remote | Peer::Cluster => Some(u32::MAX),
        }
    }

    /// Returns the tenant to which changes of the request are limited; `None` for an operator who
    /// names no tenant and may change the things of all.
    pub fn only(&self) -> Option<&Tenant> {
        let is_all = self.is_operator() && self.tenant == Tenant::default();
        (!is_all).then_some(&self.tenant)
    }

    /// Refuses what only operators may do.
    pub fn check_operator(&self, what: &str) -> Result<(), ErrorReport> {
        self.check_right(Right::Operate, what)
    }

    /// Returns the rights with which files of this machine are opened for the request of a user.
    pub fn file_rights(&self, user: Option<FileUser>) -> FileRights {
        match self.peer {
            Peer::Remote => FileRights::None,
            _ if self.is_operator() => {
                user.filter(FileUser::is_proven).map_or(FileRights::Server, FileRights::User)
            }
            _ => user.map_or(FileRights::None, FileRights::User),
        }
    }

    /// Returns whether the request may read the state of a tenant.
    pub fn sees(&self, tenant: &Tenant) -> bool {
        self.tenant == *tenant || self.is_operator()
    }
}

impl<S: Sync> FromRequestParts<S> for Identity {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| unknown().into())
    }
}

/// Makes the error of a request without a peer or identity. That is a defect: every listener adds a
/// peer, and the layer adds an identity.
pub(crate) fn unknown() -> ErrorReport {
    ErrorReport::new(Code::INTERNAL, "the user of the connection is not known")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neither root nor the user of the tests.
    fn member() -> Peer {
        Peer::User(rustix::process::geteuid().as_raw() + 4321)
    }

    fn tenant(name: &str) -> Tenant {
        name.parse().unwrap()
    }

    fn refused<T: std::fmt::Debug>(done: Result<T, ErrorReport>) {
        assert_eq!(done.unwrap_err().code, Code::TENANT_REFUSED.code);
    }

    fn holder(of: &str, role: Role, grants: &[&str]) -> KeyHolder {
        let grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
        KeyHolder { tenant: tenant(of), role, grants, key: None }
    }

    #[test]
    fn only_an_operator_who_names_no_tenant_changes_what_all_have() {
        assert_eq!(Identity::new(Peer::User(0), None).unwrap().only(), None);
        let named = Identity::new(Peer::User(0), Some(tenant("acme"))).unwrap();
        assert_eq!(named.only(), Some(&tenant("acme")));
        let own = Identity::new(member(), None).unwrap();
        assert_eq!(own.only(), Some(&own.tenant));
        let key = |role| Identity::of_key(holder("acme", role, &[]), &HeaderMap::new()).unwrap();
        assert_eq!(key(Role::Administrator).only(), Some(&tenant("acme")));
        let operator = holder("default", Role::Operator, &[]);
        assert_eq!(Identity::of_key(operator, &HeaderMap::new()).unwrap().only(), None);
    }

    #[test]
    fn root_the_user_of_the_server_and_hosts_may_name_any_tenant() {
        for peer in [Peer::User(0), Peer::User(rustix::process::geteuid().as_raw()), Peer::Cluster]
        {
            assert_eq!(Identity::new(peer, None).unwrap().tenant, Tenant::default());
            let named = Identity::new(peer, Some(tenant("acme"))).unwrap();
            assert_eq!(named.tenant, tenant("acme"));
            assert!(named.sees(&tenant("other")));
        }
    }

    #[test]
    fn every_other_user_has_exactly_one_tenant() {
        let Peer::User(user) = member() else { unreachable!() };
        let own = tenant(&format!("uid-{user}"));
        assert_eq!(Identity::new(member(), None).unwrap().tenant, own);
        let named = Identity::new(member(), Some(own.clone())).unwrap();
        assert!(named.sees(&own) && !named.sees(&Tenant::default()));
        refused(Identity::new(member(), Some(Tenant::default())));
        refused(Identity::new(member(), Some(tenant("uid-0"))));
    }

    #[test]
    fn members_are_no_operators() {
        let of = |peer| Identity::new(peer, None).unwrap();
        let Peer::User(user) = member() else { unreachable!() };
        assert_eq!(of(member()).member(), Some(user));
        let refused = of(member()).check_operator("remove images").unwrap_err();
        assert_eq!(refused.code, Code::RIGHT_MISSING.code);
        for peer in [Peer::User(0), Peer::Cluster] {
            assert_eq!(of(peer).member(), None);
            of(peer).check_operator("remove images").unwrap();
        }
    }

    #[test]
    fn files_are_opened_with_the_rights_of_the_user() {
        let user = Some(FileUser { user: 4321, group: 7, groups: vec![8], connection: None });
        let of = |peer| Identity::new(peer, None).unwrap();
        assert_eq!(of(member()).file_rights(user.clone()), FileRights::User(user.clone().unwrap()));
        assert_eq!(of(Peer::User(0)).file_rights(user.clone()), FileRights::Server);
        let far = Identity::of_key(holder("acme", Role::Operator, &[]), &HeaderMap::new());
        assert_eq!(far.unwrap().file_rights(user), FileRights::None);
    }

    #[test]
    fn a_key_has_exactly_one_tenant_unless_it_is_an_operators() {
        let developer = || holder("acme", Role::Developer, &[]);
        let mut headers = HeaderMap::new();
        let identity = Identity::of_key(developer(), &headers).unwrap();
        assert!(identity.sees(&tenant("acme")) && !identity.sees(&Tenant::default()));
        assert!(identity.is_remote());
        assert_eq!(identity.member(), Some(u32::MAX));
        assert!(identity.check_operator("remove images").is_err());
        headers.insert(TENANT_HEADER, "acme".parse().unwrap());
        assert_eq!(Identity::of_key(developer(), &headers).unwrap(), identity);
        headers.insert(TENANT_HEADER, "other".parse().unwrap());
        refused(Identity::of_key(developer(), &headers));
        let operator = Identity::of_key(holder("default", Role::Operator, &[]), &headers).unwrap();
        assert_eq!((operator.tenant.as_str(), operator.member()), ("other", None));
        assert!(operator.is_remote() && operator.sees(&tenant("acme")));
        assert!(Identity::new(Peer::Remote, None).is_err(), "only a key says who it is");
    }

    #[test]
    fn a_key_with_names_is_for_no_other_ones() {
        let limited = holder("acme", Role::Caller, &["score-*", "grade"]);
        let identity = Identity::of_key(limited, &HeaderMap::new()).unwrap();
        for name in ["score-a", "grade"] {
            identity.check_name(name).unwrap();
        }
        for name in ["score", "Grade", "x"] {
            let refused = identity.check_name(name).unwrap_err();
            assert_eq!(refused.code, Code::RIGHT_MISSING.code);
            assert!(refused.message.contains("`score-*`, `grade`"), "{refused}");
        }
        assert!(identity.permits_udf("GRADE") && !identity.permits_udf("x"));
        let all = Identity::of_key(holder("acme", Role::Caller, &[]), &HeaderMap::new()).unwrap();
        assert!(all.permits("x") && all.permits_udf("x"));
    }

    #[test]
    fn a_key_covers_those_that_may_do_less() {
        let of = |role, grants| {
            Identity::of_key(holder("acme", role, grants), &HeaderMap::new()).unwrap()
        };
        let grants = |text: &str| vec![text.parse::<NamePattern>().unwrap()];
        let all = of(Role::Administrator, &[]);
        assert!(all.covers(Role::Caller, &[]) && all.covers(Role::Administrator, &grants("a*")));
        assert!(!all.covers(Role::Operator, &[]));
        let some = of(Role::Administrator, &["a-*"]);
        assert!(some.covers(Role::Caller, &grants("a-b*")));
        assert!(!some.covers(Role::Caller, &[]) && !some.covers(Role::Caller, &grants("a*")));
        assert!(!of(Role::Caller, &[]).covers(Role::Reader, &[]));
    }

    #[test]
    fn a_refusal_says_the_role_the_right_and_who_has_it() {
        let reader = Identity::of_key(holder("acme", Role::Reader, &[]), &HeaderMap::new());
        let refused = reader.unwrap().check_right(Right::Call, "POST /x").unwrap_err();
        assert_eq!(
            refused.message,
            "the role `reader` has no right to POST /x, which needs `call`"
        );
        let hint = refused.hint.unwrap();
        assert!(hint.ends_with("`caller`, `developer`, `administrator`, `operator`"), "{hint}");
    }

    #[test]
    fn a_body_with_another_tenant_is_refused() {
        let identity = Identity::new(Peer::User(0), Some(tenant("acme"))).unwrap();
        identity.check(None).unwrap();
        identity.check(Some(&tenant("acme"))).unwrap();
        refused(identity.check(Some(&Tenant::default())));
    }
}
