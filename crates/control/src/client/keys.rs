//! Keys of clients on other hosts, and where people log in.

use http::Method;
use snowmelt_api::{KeyRequest, KeyRotation, KeySummary, LoginOffer, MadeKey};
use snowmelt_rpc::client::{NO_BODY, TlsServer};
use snowmelt_types::ErrorReport;

use super::{ApiClient, segment};

impl ApiClient {
    /// Makes a key of the tenant.
    pub async fn make_key(&self, request: &KeyRequest) -> Result<MadeKey, ErrorReport> {
        self.soon(self.http.json(Method::POST, "/v1/keys", Some(request))).await
    }

    /// Returns the keys of the tenant; for root those of all.
    pub async fn keys(&self) -> Result<Vec<KeySummary>, ErrorReport> {
        self.get("/v1/keys").await
    }

    /// Makes a key in the place of another one.
    pub async fn rotate_key(
        &self,
        id: &str,
        rotation: &KeyRotation,
    ) -> Result<MadeKey, ErrorReport> {
        let path = format!("/v1/keys/{}/rotations", segment(id));
        self.soon(self.http.json(Method::POST, &path, Some(rotation))).await
    }

    /// Revokes a key.
    pub async fn revoke_key(&self, id: &str) -> Result<(), ErrorReport> {
        let path = format!("/v1/keys/{}", segment(id));
        self.soon(self.http.no_content(Method::DELETE, &path, NO_BODY)).await
    }

    /// A client of the platform at a URL, for what needs no key.
    pub fn without_token(server: TlsServer) -> Self {
        Self { http: snowmelt_rpc::Client::tls_without_token(server) }
    }

    /// Returns where people log in.
    pub async fn login_offer(&self) -> Result<LoginOffer, ErrorReport> {
        self.get("/v1/login").await
    }
}
