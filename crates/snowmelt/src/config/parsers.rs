//! Parsers of settings. The error says what is wrong with the text.

use std::net::SocketAddr;
use std::time::Duration;

use clap::ValueEnum;
use snowmelt_api::NamedLimit;
use snowmelt_control::server::QuotaLimits;
use snowmelt_image::profile::PublicKey;
use snowmelt_types::{ByteSize, parse_duration};
use snowmelt_wire::HttpSource;

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("`{text}` is not an address like 10.0.0.1:7070"))
}

pub(super) fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number from 0"))
}

pub(super) fn factor(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("`{text}` is not a whole number from 1"))
}

pub(super) fn boolean(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| format!("`{text}` is neither true nor false"))
}

pub(super) fn keys(text: &str) -> Result<Vec<PublicKey>, String> {
    let key = |text: &str| {
        let wrong = format!("`{text}` is not a key: `snowmelt image key` prints one");
        PublicKey::parse(text).map_err(|_| wrong)
    };
    list(text).iter().map(|text| key(text)).collect()
}

pub(super) fn http_sources(text: &str) -> Result<Vec<HttpSource>, String> {
    list(text).iter().map(|text| text.parse()).collect()
}

/// Quotas by kind: `instances=8,memory=16GiB`.
pub(super) fn quotas(text: &str) -> Result<QuotaLimits, String> {
    let mut limits = QuotaLimits::new();
    for named in list(text) {
        let NamedLimit { kind, limit } = named.parse()?;
        match limit.over(None) {
            Some(amount) => drop(limits.insert(kind, amount)),
            // More than there ever is.
            None => drop(limits.insert(kind, u64::MAX)),
        }
    }
    Ok(limits)
}

pub(super) fn list(text: &str) -> Vec<String> {
    let parts = text.split(',').map(str::trim);
    parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

pub(super) fn amount(text: &str) -> Result<ByteSize, String> {
    text.parse().map_err(|error: snowmelt_types::ParseResourceError| error.to_string())
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

pub(super) fn choice<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, false).map_err(|_| {
        let names = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let names: Vec<_> = names.map(|value| value.get_name().to_owned()).collect();
        format!("`{text}` is not one of {}", names.join(", "))
    })
}
