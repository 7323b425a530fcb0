//! S3 and what speaks its protocol, reached by the usual AWS variables.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{ObjectStore, Result, RetryConfig};
use snowmelt_wire::S3Access;

/// Variables that are passed on. All others stay with the user.
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

/// A user's settings for S3.
#[derive(Clone, Default)]
pub(crate) struct S3Settings(BTreeMap<String, String>);

impl S3Settings {
    /// The known ones of a user's `AWS_*` variables. `AWS_ENDPOINT_URL_S3` goes before
    /// `AWS_ENDPOINT_URL`, as in AWS's own tools.
    pub(crate) fn new(variables: &BTreeMap<String, String>) -> Self {
        let known = |name: &&&str| variables.get(**name).is_some_and(|value| !value.is_empty());
        let mut settings: BTreeMap<String, String> = KNOWN
            .iter()
            .filter(known)
            .map(|name| ((*name).to_owned(), variables[*name].clone()))
            .collect();
        if let Some(endpoint) = variables.get("AWS_ENDPOINT_URL_S3") {
            settings.insert("AWS_ENDPOINT_URL".to_owned(), endpoint.clone());
        }
        Self(settings)
    }

    /// The settings, to be passed on to workers.
    pub(crate) fn settings(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// Opens a bucket. Makes no request.
    pub(crate) fn open(&self, bucket: &str) -> Result<Arc<dyn ObjectStore>> {
        Ok(Arc::new(open_bucket(bucket, &S3Access { settings: self.0.clone() })?))
    }
}

/// Opens a bucket with the settings of a task. Makes no request.
pub(crate) fn open_bucket(bucket: &str, access: &S3Access) -> Result<AmazonS3> {
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_region("us-east-1")
        .with_retry(RetryConfig {
            max_retries: 4,
            retry_timeout: Duration::from_secs(30),
            ..RetryConfig::default()
        });
    if let Some(endpoint) = access.settings.get("AWS_ENDPOINT_URL") {
        // Stores other than AWS's have no host name for each bucket, and test servers no TLS.
        builder = builder
            .with_virtual_hosted_style_request(false)
            .with_allow_http(endpoint.starts_with("http://"));
    }
    for (name, value) in &access.settings {
        if let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
            builder = builder.with_config(key, value);
        }
    }
    // Without keys a bucket may still be public. Asking the cloud's metadata address for keys
    // would only wait: a worker cannot reach it.
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
    fn passes_on_known_variables_only() {
        let settings = S3Settings::new(&variables(&[
            ("AWS_REGION", "eu-central-1"),
            ("AWS_PROFILE", "work"),
            ("AWS_ACCESS_KEY_ID", ""),
        ]));
        assert_eq!(settings.settings().keys().collect::<Vec<_>>(), ["AWS_REGION"]);
    }

    #[test]
    fn a_plain_http_endpoint_is_enough() {
        let settings =
            S3Settings::new(&variables(&[("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")]));
        assert!(settings.open("bucket").is_ok());
    }
}
