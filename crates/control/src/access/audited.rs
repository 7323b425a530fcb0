//! The note of what somebody does, for the audit.

use std::net::IpAddr;

use snowmelt_rpc::RequestId;

use super::identity::Identity;
use crate::reports::audit::{Audit, AuditNote, AuditedRequest};

impl Identity {
    /// Begins the note of an action; `None` where none is written.
    pub fn note(
        &self,
        audit: &Audit,
        address: Option<IpAddr>,
        action: &str,
        object: &str,
    ) -> Option<AuditNote> {
        let request = || RequestId::current().map(|id| id.to_string()).unwrap_or_default();
        audit.is_on().then(|| {
            let request = AuditedRequest {
                principal: self.who(),
                tenant: self.tenant.to_string(),
                role: self.role.to_string(),
                address,
                action: action.to_owned(),
                object: object.to_owned(),
                request: request(),
            };
            AuditNote::begin(audit, request)
        })
    }
}
