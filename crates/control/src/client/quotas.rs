//! Quotas of tenants.

use http::Method;
use snowmelt_api::{QuotaRequest, QuotaSummary};
use snowmelt_rpc::client::NO_BODY;
use snowmelt_types::ErrorReport;

use super::ApiClient;

impl ApiClient {
    /// Returns the quotas of the tenant; for root those of all.
    pub async fn quotas(&self) -> Result<Vec<QuotaSummary>, ErrorReport> {
        self.get("/v1/quotas").await
    }

    /// Sets quotas of the tenant.
    pub async fn set_quotas(&self, request: &QuotaRequest) -> Result<QuotaSummary, ErrorReport> {
        self.soon(self.http.json(Method::POST, "/v1/quotas", Some(request))).await
    }

    /// Gives the tenant the default quotas again.
    pub async fn reset_quotas(&self) -> Result<(), ErrorReport> {
        self.soon(self.http.no_content(Method::DELETE, "/v1/quotas", NO_BODY)).await
    }
}
