//! Rules that give the holder of a token tenants and roles, by its claims.
//!
//! Invariant: a tenant whose name comes from a claim is neither that of root nor that of a user of
//! the machine.

use std::collections::BTreeMap;

use serde::Deserialize;
use snowmelt_types::{NamePattern, Role, Tenant};

use super::claims::TokenClaims;
use crate::access::tokens::check_tenant;

/// The most tenants that one token may act for.
const MAX_MEMBERSHIPS: usize = 64;

/// The names of tenants of users of the machine begin so.
const MACHINE_TENANTS: &str = "uid-";

/// A tenant that the holder of a token may act for, with the role and the names that it has there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Membership {
    pub tenant: Tenant,
    pub role: Role,
    pub grants: Vec<NamePattern>,
}

/// A rule as it is written: claims with patterns, and what they give.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleEntry {
    claims: BTreeMap<String, String>,
    tenant: Option<String>,
    role: String,
    #[serde(default)]
    grants: Vec<NamePattern>,
}

/// A rule: a token whose claims fit all patterns gives a role in a tenant.
#[derive(Debug)]
pub(super) struct ClaimRule {
    claims: BTreeMap<String, ClaimPattern>,
    tenant: RuleTenant,
    role: Role,
    grants: Vec<NamePattern>,
}

/// The tenant of a rule.
#[derive(Debug)]
enum RuleTenant {
    Named(Tenant),
    /// The text that the `*` of a claim's pattern stands for, between two others.
    OfClaim {
        before: String,
        claim: String,
        after: String,
    },
}

/// A pattern of texts, in which `*` stands for any text, also none.
#[derive(Debug)]
struct ClaimPattern(Vec<String>);

impl ClaimPattern {
    fn new(text: &str) -> Self {
        Self(text.split('*').map(str::to_owned).collect())
    }

    /// Returns whether the pattern has exactly one `*`.
    fn has_one_star(&self) -> bool {
        self.0.len() == 2
    }

    fn matches(&self, text: &str) -> bool {
        let Some((first, others)) = self.0.split_first() else { return false };
        let Some((last, middle)) = others.split_last() else { return text == first };
        let Some(mut rest) = text.strip_prefix(first.as_str()) else { return false };
        for part in middle {
            let Some(at) = rest.find(part.as_str()) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last.as_str())
    }

    /// Returns the text that the one `*` stands for.
    fn star<'t>(&self, text: &'t str) -> Option<&'t str> {
        let [before, after] = self.0.as_slice() else { return None };
        text.strip_prefix(before.as_str())?.strip_suffix(after.as_str())
    }
}

impl ClaimRule {
    /// Checks a rule as it is written.
    pub fn new(entry: RuleEntry) -> Result<Self, String> {
        let RuleEntry { claims, tenant, role, grants } = entry;
        let role: Role = role.parse()?;
        if claims.is_empty() {
            return Err("a rule names at least one claim: `claims = { sub = \"*\" }` fits \
                        everybody at the issuer"
                .to_owned());
        }
        let claims = claims.into_iter().map(|(name, text)| (name, ClaimPattern::new(&text)));
        let claims: BTreeMap<_, _> = claims.collect();
        let tenant = match tenant {
            None if role == Role::Operator => RuleTenant::Named(Tenant::default()),
            None => return Err(format!("a rule with the role `{role}` names a tenant")),
            Some(text) => RuleTenant::parse(&text, &claims)?,
        };
        match &tenant {
            RuleTenant::Named(tenant) => check_tenant(tenant, role)?,
            RuleTenant::OfClaim { .. } if role == Role::Operator => {
                return Err("a rule with the role `operator` names no other tenant".to_owned());
            }
            RuleTenant::OfClaim { .. } => {}
        }
        if role == Role::Operator && !grants.is_empty() {
            return Err("an operator is not limited to names".to_owned());
        }
        Ok(Self { claims, tenant, role, grants })
    }

    fn fits(&self, claims: &TokenClaims) -> bool {
        self.claims
            .iter()
            .all(|(name, pattern)| claims.texts(name).iter().any(|text| pattern.matches(text)))
    }

    fn tenants(&self, claims: &TokenClaims) -> Vec<Tenant> {
        match &self.tenant {
            RuleTenant::Named(tenant) => vec![tenant.clone()],
            RuleTenant::OfClaim { before, claim, after } => {
                let Some(pattern) = self.claims.get(claim) else { return Vec::new() };
                let texts = claims.texts(claim);
                let names = texts.iter().filter_map(|text| {
                    let name = format!("{before}{}{after}", pattern.star(text)?);
                    let tenant: Tenant = name.parse().ok()?;
                    let is_of_machine = tenant.as_str().starts_with(MACHINE_TENANTS);
                    (tenant != Tenant::default() && !is_of_machine).then_some(tenant)
                });
                names.collect()
            }
        }
    }
}

impl RuleTenant {
    fn parse(text: &str, claims: &BTreeMap<String, ClaimPattern>) -> Result<Self, String> {
        let Some((before, rest)) = text.split_once('{') else {
            return Ok(Self::Named(text.parse()?));
        };
        let (claim, after) =
            rest.split_once('}').ok_or_else(|| format!("tenant `{text}`: a `}}` is missing"))?;
        if !claims.get(claim).is_some_and(ClaimPattern::has_one_star) {
            return Err(format!(
                "tenant `{text}`: the rule needs a pattern with one `*` for the claim `{claim}`"
            ));
        }
        let [before, claim, after] = [before, claim, after].map(str::to_owned);
        Ok(Self::OfClaim { before, claim, after })
    }
}

/// Returns what rules give the holder of a token: for each tenant the first rule that fits.
pub(super) fn memberships(rules: &[ClaimRule], claims: &TokenClaims) -> Vec<Membership> {
    let mut given: Vec<Membership> = Vec::new();
    for rule in rules.iter().filter(|rule| rule.fits(claims)) {
        for tenant in rule.tenants(claims) {
            let is_new = given.iter().all(|membership| membership.tenant != tenant);
            if is_new && given.len() < MAX_MEMBERSHIPS {
                given.push(Membership { tenant, role: rule.role, grants: rule.grants.clone() });
            }
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Result<ClaimRule, String> {
        let entry = toml::from_str(text).map_err(|error| error.to_string())?;
        ClaimRule::new(entry)
    }

    fn given(rules: &[&str], claims: &str) -> Vec<(String, Role)> {
        let rules: Vec<_> = rules.iter().map(|text| rule(text).unwrap()).collect();
        let claims = TokenClaims::parse(claims.as_bytes()).unwrap();
        let given = memberships(&rules, &claims);
        given.iter().map(|given| (given.tenant.to_string(), given.role)).collect()
    }

    fn pair(tenant: &str, role: Role) -> (String, Role) {
        (tenant.to_owned(), role)
    }

    #[test]
    fn a_pattern_fits_texts() {
        for (pattern, text, fits) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a-*", "a-b", true),
            ("a-*", "xa-b", false),
            ("*@acme.example", "al@acme.example", true),
            ("*@acme.example", "al@acme.example.org", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("ab*ba", "aba", false),
        ] {
            assert_eq!(ClaimPattern::new(pattern).matches(text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn the_first_rule_that_fits_gives_the_role_in_a_tenant() {
        let rules = [
            r#"claims = { groups = "acme-admins" }
               tenant = "acme"
               role = "administrator""#,
            r#"claims = { groups = "acme-*", email = "*@acme.example" }
               tenant = "acme"
               role = "developer""#,
            r#"claims = { "realm_access.roles" = "data-*" }
               tenant = "team-{realm_access.roles}"
               role = "reader""#,
        ];
        let given = |claims: &str| given(&rules, claims);
        let email = r#""email": "al@acme.example""#;
        assert_eq!(given(r#"{"groups": ["acme-x", "acme-admins"]}"#).len(), 1);
        let both = format!(r#"{{"groups": ["acme-x", "acme-admins"], {email}}}"#);
        assert_eq!(given(&both), [pair("acme", Role::Administrator)]);
        let one = format!(r#"{{"groups": "acme-x", {email}}}"#);
        assert_eq!(given(&one), [pair("acme", Role::Developer)]);
        assert_eq!(given(r#"{"groups": ["acme-x"], "email": "al@other.example"}"#), []);
        let roles = r#"{"realm_access": {"roles": ["data-a", "x", "data-b", "data-../c"]}}"#;
        assert_eq!(given(roles), [pair("team-a", Role::Reader), pair("team-b", Role::Reader)]);
    }

    #[test]
    fn a_claim_gives_no_tenant_of_root_or_of_the_machine() {
        let rules = [r#"claims = { tenant = "*" }
                        tenant = "{tenant}"
                        role = "developer""#];
        for (tenant, count) in [("acme", 1), ("default", 0), ("uid-0", 0), ("a b", 0), ("", 0)] {
            assert_eq!(given(&rules, &format!(r#"{{"tenant": "{tenant}"}}"#)).len(), count);
        }
    }

    #[test]
    fn a_scope_is_a_list_of_words() {
        let rules = [r#"claims = { scope = "snowmelt" }
                        tenant = "acme"
                        role = "caller""#];
        assert_eq!(given(&rules, r#"{"scope": "openid snowmelt"}"#).len(), 1);
        assert_eq!(given(&rules, r#"{"scope": "openid snowmelts"}"#).len(), 0);
    }

    #[test]
    fn rules_that_would_give_too_much_are_refused() {
        for (wrong, why) in [
            ("claims = {}\ntenant = \"acme\"\nrole = \"reader\"", "at least one claim"),
            ("claims = { sub = \"*\" }\nrole = \"reader\"", "names a tenant"),
            ("claims = { sub = \"*\" }\ntenant = \"default\"\nrole = \"reader\"", "`default`"),
            ("claims = { sub = \"*\" }\ntenant = \"acme\"\nrole = \"operator\"", "`acme`"),
            ("claims = { sub = \"*\" }\ntenant = \"{sub}\"\nrole = \"operator\"", "operator"),
            ("claims = { sub = \"a\" }\ntenant = \"{sub}\"\nrole = \"reader\"", "one `*`"),
            ("claims = { sub = \"*\" }\ntenant = \"{x}\"\nrole = \"reader\"", "`x`"),
            ("claims = { sub = \"*\" }\ntenant = \"acme\"\nrole = \"owner\"", "not a role"),
            ("claims = { sub = \"*\" }\ntenant = \"acme\"\nrol = \"reader\"", "rol"),
        ] {
            let refused = rule(wrong).unwrap_err();
            assert!(refused.contains(why), "{wrong}: {refused}");
        }
        rule("claims = { sub = \"al\" }\nrole = \"operator\"").unwrap();
    }
}
