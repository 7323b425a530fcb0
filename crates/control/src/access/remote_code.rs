//! Limits on what code and queries may name that a client on another host brings.
//!
//! Registries are reached from the machine's network, and paths are those of the machine: a key of a
//! tenant may name none of them, only an operator's key may. Images of this machine, files, wheels
//! and secrets belong to the tenant, and are allowed; so are requirements, which may be neither URLs
//! nor paths.

use http::Uri;
use snowmelt_api::{FunctionSpec, NetworkRequest, QueryRequest, UdfSource};
use snowmelt_image::source::ImageLocation;
use snowmelt_node::has_registry;
use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::HttpSource;

use super::identity::Identity;

impl Identity {
    /// Refuses a function that names what a client on another host may not use.
    pub fn check_function(&self, spec: &FunctionSpec) -> Result<(), ErrorReport> {
        self.check_name(spec.name.as_str())?;
        let program = spec.command.first().is_some_and(|program| program.starts_with('/'));
        spec.image.iter().chain(&spec.packed).try_for_each(|image| self.check_image(image))?;
        self.check_named(program, "a program of the machine by its path")?;
        // The server, which is root, mounts it: a user could look into folders of others.
        if spec.root.is_some() && !self.is_operator() {
            let message = "only root and the user of the server run functions in a folder (root)";
            return Err(ErrorReport::new(Code::RIGHT_MISSING, message)
                .hint("make an image of the folder: `snowmelt image convert`"));
        }
        Ok(())
    }

    /// Refuses code of UDFs that names what a client on another host may not use.
    pub fn check_udf_source(&self, source: &UdfSource) -> Result<(), ErrorReport> {
        source.image.iter().try_for_each(|image| self.check_image(image))
    }

    /// Refuses an image that the request may not name: one in a folder of the machine, and over the
    /// network one in a registry. Others are those of the tenant.
    pub fn check_image(&self, name: &str) -> Result<(), ErrorReport> {
        // The server opens it, with rights that its users need not have.
        let is_path = name.parse::<ImageLocation>().is_ok_and(|place| place.is_path());
        if is_path && !self.is_operator() {
            let message = "only root and the user of the server name an image by its folder";
            return Err(ErrorReport::new(Code::RIGHT_MISSING, message)
                .hint("make it an image of the platform: `snowmelt image convert`"));
        }
        self.check_named(has_registry(name), "an image of a registry")
    }

    /// Refuses to read an image from a registry for a client on another host.
    pub fn check_registry(&self, name: &str) -> Result<(), ErrorReport> {
        self.check_image(name)?;
        self.check_named(true, "an image of a registry")
    }

    /// Refuses images to a key that is limited to names of functions.
    pub fn check_images(&self) -> Result<(), ErrorReport> {
        if !self.is_limited() {
            return Ok(());
        }
        let message = "a key that is limited to names of functions has no images";
        Err(ErrorReport::new(Code::RIGHT_MISSING, message)
            .hint("ask with a key of the tenant that has no limit"))
    }

    /// Refuses a network of a job that reaches anything outside of the job.
    pub fn check_network(&self, network: Option<&NetworkRequest>) -> Result<(), ErrorReport> {
        let reaches = network.is_some_and(|network| !network.egress.0.is_empty());
        self.check_named(reaches, "addresses outside of its job")
    }

    /// Refuses a query that names what its client may not use. Locations are checked where they are
    /// opened: a client on another host has no files of the machine.
    pub fn check_query(
        &self,
        request: &QueryRequest,
        allowed: &[HttpSource],
    ) -> Result<(), ErrorReport> {
        if self.is_limited() {
            let message = "a key that is limited to names runs no queries: these name anything";
            return Err(ErrorReport::new(Code::RIGHT_MISSING, message));
        }
        request.udfs.iter().try_for_each(|source| self.check_udf_source(source))?;
        if !self.is_remote() || self.is_operator() {
            return Ok(());
        }
        // The address of a store of AWS is made of its region.
        let is_odd = |name: &&&str| request.aws.get(**name).is_some_and(|value| !is_region(value));
        if let Some(name) = REGIONS.iter().find(is_odd) {
            let message = format!("{name} is not the name of a region");
            return Err(ErrorReport::new(Code::S3_SETTING, message));
        }
        let is_set = |name: &str| request.aws.get(name).is_some_and(|value| !value.is_empty());
        if is_set("AWS_ALLOW_HTTP") && !ENDPOINTS.iter().any(|name| is_set(name)) {
            let message = "AWS_ALLOW_HTTP is for a store that AWS_ENDPOINT_URL names";
            return Err(ErrorReport::new(Code::S3_SETTING, message));
        }
        // The machine's network belongs to the operator: it may lead to what no client reaches.
        let endpoints = ENDPOINTS.iter().filter_map(|name| request.aws.get(*name));
        let refused = endpoints.filter(|endpoint| !endpoint.is_empty());
        let refused = refused.filter(|endpoint| !is_allowed(endpoint, allowed)).min();
        let Some(endpoint) = refused else { return Ok(()) };
        let endpoint: String = endpoint.chars().take(MAX_SHOWN).collect();
        let message =
            format!("`{endpoint}` is not a store that the operator of the platform allows");
        Err(ErrorReport::new(Code::HTTP_SOURCE, message).hint(
            "over the network, queries read from AWS, and from the servers that the operator lists \
             in server.http_sources",
        ))
    }

    fn check_named(&self, is_named: bool, what: &str) -> Result<(), ErrorReport> {
        if !is_named || !self.is_remote() || self.is_operator() {
            return Ok(());
        }
        let message = format!("a request over the network may not name {what}");
        Err(ErrorReport::new(Code::RIGHT_MISSING, message).hint(
            "the machine and its network belong to the operator: send an image with `snowmelt image \
             convert`, or do it on the platform's machine",
        ))
    }
}

/// The most characters of an endpoint that an error shows.
const MAX_SHOWN: usize = 200;

/// The variables that say where a store of objects is.
const ENDPOINTS: [&str; 2] = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"];

/// The variables that say in which region a bucket is.
const REGIONS: [&str; 2] = ["AWS_REGION", "AWS_DEFAULT_REGION"];

fn is_region(value: &str) -> bool {
    value.len() <= 64 && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn is_allowed(endpoint: &str, allowed: &[HttpSource]) -> bool {
    let Ok(address) = endpoint.parse::<Uri>() else { return false };
    let (Some(scheme), Some(host)) = (address.scheme_str(), address.host()) else { return false };
    let standard = if scheme == "http" { 80 } else { 443 };
    let port = address.port_u16().unwrap_or(standard);
    let host = host.to_ascii_lowercase();
    allowed.iter().any(|source| source.matches(scheme, &host, port))
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use snowmelt_rpc::Peer;
    use snowmelt_types::{Role, Tenant};

    use super::*;
    use crate::access::identity::KeyHolder;
    use crate::platform::rig::spec;

    fn of_key(tenant: &str, role: Role) -> Identity {
        let tenant = tenant.parse().unwrap();
        let holder = KeyHolder { tenant, role, grants: Vec::new(), key: None };
        Identity::of_key(holder, &HeaderMap::new()).unwrap()
    }

    #[test]
    fn a_function_over_the_network_names_nothing_of_the_machine() {
        let developer = of_key("acme", Role::Administrator);
        let local = Identity::new(Peer::User(4321), None).unwrap();
        let operator = of_key(Tenant::default().as_str(), Role::Operator);
        let plain = spec("");
        developer.check_function(&plain).unwrap();
        for named in [
            FunctionSpec { image: Some("registry.example/a:v1".into()), ..plain.clone() },
            FunctionSpec { packed: Some("registry.example/a:v1".into()), ..plain.clone() },
            FunctionSpec { command: vec!["/usr/bin/env".into()], ..plain.clone() },
        ] {
            let refused = developer.check_function(&named).unwrap_err();
            assert_eq!(refused.code, Code::RIGHT_MISSING.code, "{refused}");
            local.check_function(&named).unwrap();
            operator.check_function(&named).unwrap();
        }
        let own = FunctionSpec { image: Some("a:v1".into()), ..plain.clone() };
        developer.check_function(&own).unwrap();
        let foreign = FunctionSpec { image: Some("oci:/var/images:a".into()), ..plain.clone() };
        for identity in [&developer, &local] {
            let refused = identity.check_function(&foreign).unwrap_err();
            assert_eq!(refused.code, Code::RIGHT_MISSING.code, "{refused}");
        }
        operator.check_function(&foreign).unwrap();
        let rooted = FunctionSpec { root: Some("/srv/root".into()), ..plain.clone() };
        for identity in [&developer, &local] {
            let refused = identity.check_function(&rooted).unwrap_err();
            assert_eq!(refused.code, Code::RIGHT_MISSING.code, "{refused}");
        }
        Identity::new(Peer::User(0), None).unwrap().check_function(&rooted).unwrap();
        operator.check_function(&rooted).unwrap();
        let file = FunctionSpec { command: vec!["./run".into(), "/x".into()], ..plain };
        developer.check_function(&file).unwrap();
    }

    #[test]
    fn code_and_networks_over_the_network_reach_nothing_outside() {
        let developer = of_key("acme", Role::Developer);
        let source = |image: &str| -> UdfSource {
            let code = serde_json::json!({"kind": "source", "file": "f.py", "text": ""});
            let image = (!image.is_empty()).then_some(image);
            serde_json::from_value(serde_json::json!({"code": code, "image": image})).unwrap()
        };
        developer.check_udf_source(&source("")).unwrap();
        developer.check_udf_source(&source("a:v1")).unwrap();
        assert!(developer.check_udf_source(&source("registry.example/a:v1")).is_err());
        let network = |text: &str| serde_json::from_str::<NetworkRequest>(text).unwrap();
        let outside = network(r#"{"egress": [{"to": "10.0.0.0/8"}]}"#);
        developer.check_network(None).unwrap();
        developer.check_network(Some(&network("{}"))).unwrap();
        assert!(developer.check_network(Some(&outside)).is_err());
        of_key("default", Role::Operator).check_network(Some(&outside)).unwrap();
    }

    #[test]
    fn queries_over_the_network_reach_stores_that_are_allowed() {
        let developer = of_key("acme", Role::Developer);
        let allowed = ["https://minio.example.org:9000".parse().unwrap()];
        let with = |name: &str, value: &str| QueryRequest {
            aws: [(name.to_owned(), value.to_owned())].into(),
            ..QueryRequest::default()
        };
        developer.check_query(&QueryRequest::default(), &[]).unwrap();
        developer.check_query(&with("AWS_REGION", "eu-central-1"), &[]).unwrap();
        for (name, value) in [
            ("AWS_REGION", "x.evil.example/"),
            ("AWS_DEFAULT_REGION", "x@10.0.0.5:8443/"),
            ("AWS_ALLOW_HTTP", "true"),
        ] {
            let refused = developer.check_query(&with(name, value), &[]).unwrap_err();
            assert_eq!(refused.code, Code::S3_SETTING.code, "{name}");
        }
        let long = "/run/snowmelt,".repeat(100_000);
        let refused = developer.check_query(&with("AWS_ENDPOINT_URL", &long), &[]).unwrap_err();
        assert!(refused.message.len() < 1000);
        for name in ENDPOINTS {
            developer.check_query(&with(name, "https://MINIO.example.org:9000"), &allowed).unwrap();
            developer.check_query(&with(name, ""), &[]).unwrap();
            for other in [
                "https://minio.example.org",
                "http://minio.example.org:9000",
                "http://169.254.169.254",
                "http://localhost:9000",
                "minio.example.org:9000",
                "https://minio.example.org:9000@10.0.0.1",
            ] {
                let asked = with(name, other);
                let refused = developer.check_query(&asked, &allowed).unwrap_err();
                assert_eq!(refused.code, Code::HTTP_SOURCE.code, "{other}");
                Identity::new(Peer::User(4321), None).unwrap().check_query(&asked, &[]).unwrap();
            }
        }
    }

    #[test]
    fn a_key_that_is_limited_to_names_runs_no_query() {
        let grants = vec!["score-*".parse().unwrap()];
        let tenant = "acme".parse().unwrap();
        let holder = KeyHolder { tenant, role: Role::Developer, grants, key: None };
        let limited = Identity::of_key(holder, &HeaderMap::new()).unwrap();
        let refused = limited.check_query(&QueryRequest::default(), &[]).unwrap_err();
        assert_eq!(refused.code, Code::RIGHT_MISSING.code);
        limited.check_images().unwrap_err();
        of_key("acme", Role::Developer).check_images().unwrap();
    }
}
