//! The settings of the audit.

use std::path::{Path, PathBuf};

use snowmelt_control::AuditSettings;
use snowmelt_types::{ByteSize, ErrorReport};

use super::keys::{
    AUDIT_COLLECTOR, AUDIT_ENABLED, AUDIT_FILE_SIZE, AUDIT_FILES, AUDIT_FOLDER, AUDIT_REQUIRED,
};
use super::{ConfigSources, ConfigValue, amount, boolean, number, wrong};

/// The files of the audit, and where its lines are posted.
#[derive(Clone, Debug)]
pub struct AuditConfig {
    /// Whether a server writes an audit.
    pub enabled: ConfigValue<bool>,
    /// Folder of its files.
    pub folder: ConfigValue<PathBuf>,
    /// Size at which a file is closed.
    pub file_size: ConfigValue<ByteSize>,
    /// Number of closed files that are kept; 0 means all.
    pub files: ConfigValue<u32>,
    /// Whether requests are refused while it cannot be written.
    pub required: ConfigValue<bool>,
    /// URL to which lines are posted; none are if absent.
    pub collector: Option<ConfigValue<String>>,
}

impl AuditConfig {
    pub(super) fn load(sources: &ConfigSources, state: &Path) -> Result<Self, ErrorReport> {
        Ok(Self {
            enabled: sources.get(&AUDIT_ENABLED, None, boolean)?,
            folder: sources.path(&AUDIT_FOLDER, || state.join("audit"))?,
            file_size: sources.get(&AUDIT_FILE_SIZE, None, amount)?,
            files: sources.get(&AUDIT_FILES, None, number)?,
            required: sources.get(&AUDIT_REQUIRED, None, boolean)?,
            collector: sources.maybe(&AUDIT_COLLECTOR, None, |text| Ok(text.to_owned()))?,
        })
    }

    /// The settings of a server; absent if it writes none.
    ///
    /// # Errors
    /// `SM-0110` for an address that is not one of HTTP.
    pub fn settings(&self) -> Result<Option<AuditSettings>, ErrorReport> {
        if !self.enabled.value {
            return Ok(None);
        }
        let collector = self.collector.as_ref().map(|url| url.value.clone());
        let is_http = |url: &String| {
            let schemes = ["http://", "https://"];
            schemes
                .iter()
                .filter_map(|scheme| url.strip_prefix(scheme))
                .any(|rest| !rest.is_empty())
        };
        if collector.as_ref().is_some_and(|url| !is_http(url)) {
            let problem = "not an address like https://collector.example/audit";
            return Err(wrong(AUDIT_COLLECTOR.name, problem));
        }
        Ok(Some(AuditSettings {
            folder: self.folder.value.clone(),
            file_size: self.file_size.value,
            files: self.files.value,
            is_required: self.required.value,
            collector,
        }))
    }
}
