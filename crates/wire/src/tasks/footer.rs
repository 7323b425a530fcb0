//! The footers of Parquet files, between planning, tasks and the platform that keeps them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The footer of a Parquet object. It belongs to the version of the object whose entity tag is in
/// [`S3Access::versions`](crate::S3Access::versions).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectFooter {
    /// The length of the footer at the end of the object in bytes, with its length field and the
    /// magic number.
    pub length: u64,
    /// The encoded metadata of the row groups that the task reads, without length field and magic
    /// number; `None` if it is too long to be sent.
    #[serde(default, with = "as_base64", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Bytes>,
}

/// A footer that the platform keeps for later queries. The platform interprets neither name nor
/// bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFooter {
    /// The file and its version: at most [`MAX_KEPT_NAME`] bytes.
    pub file: String,
    /// The bytes of the footer, with their length and the magic number; at most
    /// [`MAX_KEPT_FOOTER`].
    #[serde(default, with = "as_base64", skip_serializing_if = "Option::is_none")]
    pub footer: Option<Bytes>,
}

/// The longest name of a file and its version for which a footer is kept.
pub const MAX_KEPT_NAME: usize = 8 << 10;

/// The longest footer that is kept.
pub const MAX_KEPT_FOOTER: usize = 256 << 10;

/// The most footers in one request or reply.
pub const MAX_FOOTERS: usize = 32;

/// Optional bytes as text for JSON.
mod as_base64 {
    use super::*;

    pub(super) fn serialize<S: Serializer>(
        bytes: &Option<Bytes>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        bytes.as_ref().map(|bytes| STANDARD.encode(bytes)).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Bytes>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        let decoded = text.map(|text| STANDARD.decode(text)).transpose();
        Ok(decoded.map_err(serde::de::Error::custom)?.map(Bytes::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_footer_survives_json() {
        for metadata in [None, Some(Bytes::from_static(&[0, 255, 7]))] {
            let footer = ObjectFooter { length: 11, metadata };
            let text = serde_json::to_string(&footer).unwrap();
            assert_eq!(serde_json::from_str::<ObjectFooter>(&text).unwrap(), footer);
        }
        assert!(serde_json::from_str::<ObjectFooter>(r#"{"length":1,"metadata":"?"}"#).is_err());
    }
}
