//! The registry of UDFs (CAGE 3): functions that queries, engines and leases call by name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use snowmelt_api::{QueryRequest, RegisterRequest, UdfLogEntry, UdfSource, UdfSummary};
use snowmelt_types::{Code, ErrorReport, QueryId, Report, Tenant};
use snowmelt_udf::ParsedSignature;
use snowmelt_wire::Signature;

use super::orphans::Pending;
use super::{UdfCatalog, UdfLogs, UdfSet};
use crate::reports::Events;
use crate::state::records::{Existing, LeasedVersion, Records, UdfEntry, UdfRecord};

/// The most functions that one piece of code may define.
const MAX_FUNCTIONS: usize = 256;

/// The most bytes of code that is registered: each version is kept as it is.
const MAX_CODE: usize = 16 << 20;

/// A check that refuses names which the request may not register.
pub(crate) type PermitsName<'a> = &'a (dyn Fn(&str) -> Result<(), ErrorReport> + Sync);

/// The most names of a statement that are looked up.
const MAX_NAMES: usize = 1024;

/// The registered functions. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct UdfRegistry {
    pub(super) records: Records,
    pub(super) catalog: Arc<UdfCatalog>,
    logs: UdfLogs,
    pub(super) pending: Pending,
}

impl UdfRegistry {
    pub fn new(records: Records, catalog: Arc<UdfCatalog>, logs: UdfLogs) -> Self {
        Self { records, catalog, logs, pending: Pending::default() }
    }

    /// Loads the code in a sandbox, and registers the functions that it defines: all of them or
    /// none.
    pub async fn register(
        &self,
        tenant: &Tenant,
        request: RegisterRequest,
        permits: PermitsName<'_>,
    ) -> Result<Vec<UdfSummary>, ErrorReport> {
        let source = request.source;
        let events = Events::ignored();
        let records = self.put(tenant, source, Existing::Replaced, permits, &events).await?;
        let listed = self.list(tenant).await?;
        let of = |record: UdfRecord| named(&listed, &record.signature.name).cloned();
        Ok(records.into_iter().filter_map(of).collect())
    }

    pub(super) async fn put(
        &self,
        tenant: &Tenant,
        source: UdfSource,
        existing: Existing,
        permits: PermitsName<'_>,
        events: &Events,
    ) -> Result<Vec<UdfRecord>, ErrorReport> {
        let length = serde_json::to_vec(&source).map_or(0, |text| text.len());
        if length > MAX_CODE {
            let message = format!("the code has {length} bytes; the limit is {MAX_CODE}");
            return Err(ErrorReport::new(Code::OPTION, message).hint(
                "keep models and data out of the code: name them with --file (files= in Python)",
            ));
        }
        let sources = [source];
        let set = self.catalog.prepare(tenant, &sources, events).await?;
        if set.signatures.is_empty() || set.signatures.len() > MAX_FUNCTIONS {
            let found = set.signatures.len();
            let message = format!("the code defines {found} functions with @sm.udf");
            return Err(ErrorReport::new(Code::FUNCTION_MISSING, message)
                .hint(format!("define at least one, and at most {MAX_FUNCTIONS}")));
        }
        set.signatures.iter().try_for_each(|signature| permits(&signature.name))?;
        let [source] = sources;
        let source = UdfSource { signatures: None, ..source };
        let made = set.signatures.into_iter().map(|signature| (signature, source.clone()));
        let made: Vec<_> = made.collect();
        let before = self.referred(tenant).await?;
        let put = self.records.put_udfs(tenant, &made, existing, crate::now_ms()).await?;
        // Their files are held until they are registered.
        drop(set.bindings);
        // A version that is not kept any more had files of its own.
        self.free(tenant, &before).await?;
        Ok(put)
    }

    /// Returns all registered functions of a tenant, by name.
    pub async fn list(&self, tenant: &Tenant) -> Result<Vec<UdfSummary>, ErrorReport> {
        summaries(self.records.udfs(tenant).await?)
    }

    /// Returns a registered function.
    pub async fn show(&self, tenant: &Tenant, name: &str) -> Result<UdfSummary, ErrorReport> {
        check(name)?;
        let all = self.list(tenant).await?;
        let found = named(&all, name).cloned();
        found.ok_or_else(|| missing(name, all.iter().map(|udf| udf.name.as_str())))
    }

    /// Removes a function with all its versions.
    pub async fn remove(&self, tenant: &Tenant, name: &str) -> Result<(), ErrorReport> {
        check(name)?;
        if self.remove_if_exists(tenant, name).await? {
            return Ok(());
        }
        self.show(tenant, name).await.map(drop)
    }

    /// Removes a function, with its log; false if there is none.
    pub(super) async fn remove_if_exists(
        &self,
        tenant: &Tenant,
        name: &str,
    ) -> Result<bool, ErrorReport> {
        let before = self.referred(tenant).await?;
        let removed = self.records.remove_udf(tenant, name).await?;
        if removed {
            self.logs.remove(tenant, name);
            self.free(tenant, &before).await?;
        }
        Ok(removed)
    }

    /// Returns the last lines that instances of a function wrote.
    pub async fn log(
        &self,
        tenant: &Tenant,
        name: &str,
        tail: Option<u32>,
    ) -> Result<Vec<UdfLogEntry>, ErrorReport> {
        self.show(tenant, name).await?;
        self.logs.read(tenant, name, tail)
    }

    /// Keeps what an instance of a function wrote in a lease.
    pub fn keep_log(&self, tenant: &Tenant, name: &str, text: &str) {
        self.logs.keep(tenant, name, None, text);
    }

    /// Keeps what instances of these functions wrote in a query.
    pub fn keep_logs(
        &self,
        tenant: &Tenant,
        query: &QueryId,
        names: &[String],
        written: &BTreeMap<String, String>,
    ) {
        for (name, text) in names.iter().filter_map(|name| Some((name, written.get(name)?))) {
            self.logs.keep(tenant, name, Some(query), text);
        }
    }

    /// Returns the code of a version of a function that is leased; of the last version if none is
    /// named. The version stays as long as the lease, and for some time after it.
    pub async fn leased(
        &self,
        tenant: &Tenant,
        name: &str,
        version: Option<u32>,
    ) -> Result<(UdfSource, LeasedVersion), ErrorReport> {
        check(name)?;
        // Counted first, so that it is not removed meanwhile.
        let counted = version.map(|version| self.records.lease_udf(tenant, name, version));
        if let Some(record) = self.records.udf(tenant, name, version).await? {
            let count = || self.records.lease_udf(tenant, name, record.version);
            let leased = counted.unwrap_or_else(count);
            self.note_use(&leased).await;
            return Ok((record.source(), leased));
        }
        let known = self.show(tenant, name).await?;
        let kept: Vec<_> = known.versions.iter().map(u32::to_string).collect();
        let message = format!("version {} of `{name}` is not kept", version.unwrap_or_default());
        Err(ErrorReport::new(Code::FUNCTION_MISSING, message)
            .hint(format!("these versions are: {}", kept.join(", "))))
    }

    /// Notes when a version was used last. If that fails, the version may be removed earlier.
    pub async fn note_use(&self, leased: &LeasedVersion) {
        if let Err(error) = self.records.note_use(leased, crate::now_ms()).await {
            tracing::warn!(error = error.message, "the use of a function cannot be noted");
        }
    }

    /// Returns the last version of a function, if there is one of this name.
    pub(crate) async fn find(
        &self,
        tenant: &Tenant,
        name: &str,
    ) -> Result<Option<UdfRecord>, ErrorReport> {
        match check(name) {
            Ok(()) => self.records.udf(tenant, name, None).await,
            Err(_) => Ok(None),
        }
    }

    /// Prepares the functions of some code, without those that are registered.
    pub async fn prepare(
        &self,
        tenant: &Tenant,
        sources: &[UdfSource],
    ) -> Result<UdfSet, ErrorReport> {
        self.catalog.prepare(tenant, sources, &Events::ignored()).await
    }

    /// Prepares the functions of a query: those that came with it, and the registered ones that it
    /// calls.
    pub async fn of_query(
        &self,
        tenant: &Tenant,
        request: &QueryRequest,
        events: &Events,
    ) -> Result<UdfSet, ErrorReport> {
        let mut set = self.catalog.prepare(tenant, &request.udfs, events).await?;
        if self.records.has_udfs(tenant).await? {
            self.add_called(tenant, &request.sql, &mut set, events).await?;
        }
        Ok(set)
    }

    /// Adds the registered functions that a statement calls and that the set does not have.
    async fn add_called(
        &self,
        tenant: &Tenant,
        sql: &str,
        set: &mut UdfSet,
        events: &Events,
    ) -> Result<(), ErrorReport> {
        for name in called_names(sql) {
            let is_given = |given: &Signature| given.name.eq_ignore_ascii_case(&name);
            if set.signatures.iter().any(is_given) {
                continue;
            }
            if let Some(record) = self.find(tenant, &name).await? {
                self.catalog.add(tenant, &record.source(), set, events).await?;
                set.registered.push(record.signature.name);
            }
        }
        Ok(())
    }
}

/// Finds a function by its name. SQL does not distinguish the case of names.
fn named<'u>(all: &'u [UdfSummary], name: &str) -> Option<&'u UdfSummary> {
    all.iter().find(|udf| udf.name.eq_ignore_ascii_case(name))
}

/// Checks a name, which becomes a part of a key.
pub(super) fn check(name: &str) -> Result<(), ErrorReport> {
    snowmelt_udf::check_name(name).map_err(|reason| {
        ErrorReport::new(
            Code::FUNCTION_NAME,
            format!("no function can be named `{name}`: {reason}"),
        )
    })
}

fn missing<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> ErrorReport {
    let hint = snowmelt_types::nearest(name, known).map_or_else(
        || "`snowmelt udf ls` lists what is registered".to_owned(),
        |nearest| format!("did you mean `{nearest}`?"),
    );
    ErrorReport::new(Code::FUNCTION_MISSING, format!("no function `{name}` is registered"))
        .hint(hint)
}

/// Returns one summary for each name. The versions of a name follow each other in the entries.
fn summaries(entries: Vec<UdfEntry>) -> Result<Vec<UdfSummary>, ErrorReport> {
    let mut made: Vec<UdfSummary> = Vec::new();
    for entry in entries {
        let UdfEntry { version, registered_ms, signature, image, packages, files, secrets } = entry;
        let parsed = ParsedSignature::parse(&signature).map_err(|error| error.report())?;
        let earlier = made.pop_if(|last| last.name.eq_ignore_ascii_case(&signature.name));
        let mut versions = earlier.map_or_else(Vec::new, |earlier| earlier.versions);
        versions.push(version);
        let name = signature.name.clone();
        let text = parsed.text();
        made.push(UdfSummary {
            name,
            version,
            versions,
            text,
            signature,
            image,
            packages,
            files,
            secrets,
            registered_ms,
        });
    }
    Ok(made)
}

/// Returns the names in a statement that are followed by a parenthesis, in lower case. The
/// statement itself is parsed by its driver; a name too many here is only looked up in vain.
fn called_names(sql: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        if names.len() >= MAX_NAMES {
            break;
        }
        let (word, after) = match first {
            '\'' => (None, after_quoted(rest, '\'').1),
            '"' => {
                let (word, after) = after_quoted(rest, '"');
                (Some(word), after)
            }
            c if c.is_alphabetic() || c == '_' => {
                let is_part = |c: char| c.is_alphanumeric() || c == '_';
                let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                (Some(&rest[..end]), &rest[end..])
            }
            c => (None, &rest[c.len_utf8()..]),
        };
        if let Some(word) = word.filter(|_| after.trim_start().starts_with('(')) {
            names.insert(word.to_ascii_lowercase());
        }
        rest = after;
    }
    names
}

/// Returns the text between quotation marks at the beginning, and the text behind them.
fn after_quoted(text: &str, mark: char) -> (&str, &str) {
    let inner = &text[mark.len_utf8()..];
    match inner.find(mark) {
        Some(end) => (&inner[..end], &inner[end + mark.len_utf8()..]),
        None => (inner, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_before_a_parenthesis_are_called() {
        for (sql, names) in [
            ("select Score(a, b) from t", vec!["score"]),
            (
                "select sum(score (a)), \"Grade\"(b) from t where x in (1)",
                vec!["grade", "in", "score", "sum"],
            ),
            ("select 'f(x)', g from 'h(1).parquet' where \"i\" = 1", vec![]),
            ("select f(", vec!["f"]),
            ("select 'never ends f(", vec![]),
            ("sélect ünï(1)", vec!["ünï"]),
            ("", vec![]),
        ] {
            assert_eq!(called_names(sql).into_iter().collect::<Vec<_>>(), names, "{sql}");
        }
        let many: String = (0..5000).map(|n| format!("f{n}(1) ")).collect();
        assert_eq!(called_names(&many).len(), MAX_NAMES);
    }
}
