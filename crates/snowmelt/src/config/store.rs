//! The settings of the store of a platform's records.

use std::path::{Path, PathBuf};

use snowmelt_control::server::{EtcdSettings, StoreSettings};
use snowmelt_types::ErrorReport;

use super::keys::{
    STORE_CA, STORE_CERTIFICATE, STORE_FOLDER, STORE_KEY, STORE_PASSWORD_FILE, STORE_URL,
    STORE_USER,
};
use super::{ConfigSources, ConfigValue, wrong};

/// The store of records: the file in the state folder, or etcd.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Location of etcd; if absent, records are in the state folder.
    pub url: Option<ConfigValue<String>>,
    /// Folder that all controls share.
    pub folder: Option<ConfigValue<PathBuf>>,
    /// PEM file with authorities of the certificates of etcd.
    pub ca: Option<ConfigValue<PathBuf>>,
    /// PEM file with the certificate that etcd is shown.
    pub certificate: Option<ConfigValue<PathBuf>>,
    /// PEM file with the key of that certificate.
    pub key: Option<ConfigValue<PathBuf>>,
    /// User of etcd.
    pub user: Option<ConfigValue<String>>,
    /// File with the password of that user.
    pub password_file: Option<ConfigValue<PathBuf>>,
}

impl StoreConfig {
    pub(super) fn load(sources: &ConfigSources) -> Result<Self, ErrorReport> {
        let text = |text: &str| Ok(text.to_owned());
        Ok(Self {
            url: sources.maybe(&STORE_URL, None, text)?,
            folder: sources.named_path(&STORE_FOLDER)?,
            ca: sources.file(&STORE_CA, None)?,
            certificate: sources.file(&STORE_CERTIFICATE, None)?,
            key: sources.file(&STORE_KEY, None)?,
            user: sources.maybe(&STORE_USER, None, text)?,
            password_file: sources.file(&STORE_PASSWORD_FILE, None)?,
        })
    }

    /// The settings of a server; absent if records are in its state folder.
    ///
    /// # Errors
    /// `SM-0110` for settings that are wrong or contradict each other.
    pub fn settings(&self) -> Result<Option<StoreSettings>, ErrorReport> {
        let Some(url) = &self.url else { return Ok(None) };
        self.at(&url.value, None).map(Some)
    }

    /// The settings of a store at another location, or with another folder.
    ///
    /// # Errors
    /// `SM-0110` for settings that are wrong or contradict each other.
    pub fn at(&self, url: &str, folder: Option<&Path>) -> Result<StoreSettings, ErrorReport> {
        let of = |file: &Option<ConfigValue<PathBuf>>| file.as_ref().map(|file| file.value.clone());
        let etcd = EtcdSettings::parse(url);
        let etcd = EtcdSettings {
            ca: of(&self.ca),
            certificate: of(&self.certificate),
            key: of(&self.key),
            user: self.user.as_ref().map(|user| user.value.clone()),
            password_file: of(&self.password_file),
            ..etcd.map_err(|problem| wrong(STORE_URL.name, &problem))?
        };
        etcd.check().map_err(|problem| wrong(STORE_URL.name, &problem))?;
        let known = self.folder.as_ref().map(|folder| &*folder.value);
        let Some(folder) = folder.or(known) else {
            let problem = "a store in etcd needs a folder that all controls share";
            return Err(wrong(STORE_FOLDER.name, problem)
                .hint("name one on a shared disk, such as /srv/snowmelt"));
        };
        Ok(StoreSettings { etcd, folder: folder.to_owned() })
    }
}
