//! S3 and compatible stores, configured by the usual AWS variables.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{ObjectStore, RetryConfig};
use snowmelt_wire::{HttpSource, S3Access};
use url::Url;

use super::congestion::LimitedConnector;
use super::{Counters, CountingStore, HttpStore};

/// Variables that are passed to workers. All others are ignored.
const KNOWN: [&str; 8] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ALLOW_HTTP",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
];

/// A user's settings for S3, the servers of HTTP that the operator lists, and the requests that were
/// made here. Requests of tasks are counted by their workers.
#[derive(Clone, Default)]
pub struct S3Settings {
    variables: BTreeMap<String, String>,
    http: Vec<HttpSource>,
    requests: Arc<Counters>,
}

impl std::fmt::Debug for S3Settings {
    // Values are secrets: only the names are printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

impl S3Settings {
    /// Takes the supported ones of a user's `AWS_*` variables. `AWS_ENDPOINT_URL_S3` overrides
    /// `AWS_ENDPOINT_URL`, as in AWS's tools.
    pub fn new(variables: &BTreeMap<String, String>) -> Self {
        let known = |name: &&&str| variables.get(**name).is_some_and(|value| !value.is_empty());
        let mut settings: BTreeMap<String, String> = KNOWN
            .iter()
            .filter(known)
            .map(|name| ((*name).to_owned(), variables[*name].clone()))
            .collect();
        let special = variables.get("AWS_ENDPOINT_URL_S3").filter(|value| !value.is_empty());
        if let Some(endpoint) = special {
            settings.insert("AWS_ENDPOINT_URL".to_owned(), endpoint.clone());
        }
        Self { variables: settings, ..Self::default() }
    }

    /// Adds servers of HTTP.
    pub fn with_http(self, sources: &[HttpSource]) -> Self {
        Self { http: sources.to_vec(), ..self }
    }

    /// Returns the settings that a worker needs for a bucket, or for a server of HTTP.
    pub fn access(&self, place: &str) -> S3Access {
        match is_http(place) {
            true => S3Access { http: self.http.clone(), ..S3Access::default() },
            false => S3Access { settings: self.variables.clone(), ..S3Access::default() },
        }
    }

    /// Opens a server of HTTP, `https://host`. Sends no request.
    pub fn open_http(&self, origin: &str) -> Result<Arc<dyn ObjectStore>, object_store::Error> {
        let store = HttpStore::open(origin, &self.http)?;
        let versions = Arc::default();
        let requests = Arc::clone(&self.requests);
        Ok(Arc::new(CountingStore::new(store, requests, versions).without_price()))
    }

    /// Returns the numbers of read and list requests so far.
    pub fn requests(&self) -> (u64, u64) {
        self.requests.of_store()
    }

    /// True if requests are not signed.
    pub fn anonymous(&self) -> bool {
        !self.variables.contains_key("AWS_ACCESS_KEY_ID")
    }

    /// Checks the settings before the first request, because the client checks them only when it
    /// sends one.
    pub fn check(&self) -> Result<(), String> {
        // All values go into headers and addresses without escaping.
        let odd = |(_, value): &(&String, &String)| !value.chars().all(|c| c.is_ascii_graphic());
        if let Some((name, _)) = self.variables.iter().find(odd) {
            return Err(format!(
                "{name} contains a space, a line end or another invalid character"
            ));
        }
        let set = |name: &str| self.variables.contains_key(name);
        match (set("AWS_ACCESS_KEY_ID"), set("AWS_SECRET_ACCESS_KEY")) {
            (true, false) => {
                Err("AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not".into())
            }
            (false, true) => {
                Err("AWS_SECRET_ACCESS_KEY is set and AWS_ACCESS_KEY_ID is not".into())
            }
            _ => self
                .variables
                .get("AWS_ENDPOINT_URL")
                .map_or(Ok(()), |endpoint| check_endpoint(endpoint)),
        }
    }

    /// Opens a bucket. Sends no request.
    pub fn open(&self, bucket: &str) -> Result<Arc<dyn ObjectStore>, object_store::Error> {
        let access = S3Access { settings: self.variables.clone(), ..S3Access::default() };
        let store = open_bucket(bucket, &access)?;
        let versions = Arc::default();
        Ok(Arc::new(CountingStore::new(store, Arc::clone(&self.requests), versions)))
    }
}

/// True for a server of HTTP, and false for a bucket.
pub fn is_http(place: &str) -> bool {
    place.starts_with("https://") || place.starts_with("http://")
}

fn check_endpoint(endpoint: &str) -> Result<(), String> {
    let wrong = |why: &str| Err(format!("AWS_ENDPOINT_URL is `{endpoint}`: {why}"));
    match Url::parse(endpoint) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") => {
            wrong("it must begin with http:// or https://")
        }
        Ok(url) if url.host_str().is_none_or(str::is_empty) => wrong("it has no host"),
        Ok(url) if url.query().is_some() || url.fragment().is_some() => {
            wrong("it must not contain ? or #")
        }
        Ok(_) => Ok(()),
        Err(why) => wrong(&why.to_string()),
    }
}

/// Opens a bucket with the settings of a task. Sends no request.
pub(crate) fn open_bucket(
    bucket: &str,
    access: &S3Access,
) -> Result<AmazonS3, object_store::Error> {
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_region("us-east-1")
        .with_http_connector(LimitedConnector)
        .with_retry(RetryConfig {
            max_retries: 4,
            retry_timeout: Duration::from_secs(30),
            ..RetryConfig::default()
        });
    if let Some(endpoint) = access.settings.get("AWS_ENDPOINT_URL") {
        // Other stores than AWS have no host name for each bucket, and test servers have no TLS.
        builder = builder
            .with_virtual_hosted_style_request(false)
            .with_allow_http(endpoint.starts_with("http://"));
    }
    for (name, value) in &access.settings {
        if let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
            builder = builder.with_config(key, value);
        }
    }
    // Without keys the bucket may still be public. Requests for keys to the cloud's metadata
    // address would only time out: a worker cannot reach it.
    let anonymous = !access.settings.contains_key("AWS_ACCESS_KEY_ID");
    builder.with_skip_signature(anonymous).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn only_supported_variables_are_passed_on() {
        let settings = S3Settings::new(&variables(&[
            ("AWS_REGION", "eu-central-1"),
            ("AWS_PROFILE", "work"),
            ("AWS_ACCESS_KEY_ID", ""),
        ]));
        let access = settings.access("bucket");
        assert_eq!(access.settings.keys().collect::<Vec<_>>(), ["AWS_REGION"]);
        assert!(settings.access("https://x").settings.is_empty());
    }

    #[test]
    fn invalid_settings_are_named() {
        for (pairs, word) in [
            (&[("AWS_ENDPOINT_URL", "localhost:9000")][..], "http://"),
            (&[("AWS_ENDPOINT_URL", "http://")], "AWS_ENDPOINT_URL"),
            (&[("AWS_ENDPOINT_URL", "not-an-address")], "AWS_ENDPOINT_URL"),
            (&[("AWS_ENDPOINT_URL", "http://a b/")], "AWS_ENDPOINT_URL contains a space"),
            (&[("AWS_REGION", "eu\n")], "AWS_REGION contains"),
            (&[("AWS_ACCESS_KEY_ID", "k")], "AWS_SECRET_ACCESS_KEY is not"),
            (&[("AWS_SECRET_ACCESS_KEY", "k")], "AWS_ACCESS_KEY_ID is not"),
        ] {
            let why = S3Settings::new(&variables(pairs)).check().unwrap_err();
            assert!(why.contains(word), "{why}");
        }
        assert!(S3Settings::new(&variables(&[("AWS_REGION", "eu-west-3")])).check().is_ok());
    }

    #[test]
    fn a_plain_http_endpoint_is_accepted() {
        let settings =
            S3Settings::new(&variables(&[("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")]));
        assert!(settings.open("bucket").is_ok());
    }
}
