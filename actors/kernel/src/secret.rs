//! Redacting newtype: an option's secret, which no dump of the configuration shows.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// Shown in place of a secret.
pub const REDACTED: &str = "[redacted]";

/// Secret text of an option: a key or a password. It is read as any text; what is serialised, shown
/// or printed of it says only whether there is one. It is therefore no part of a wire or of a record.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretString(String);

impl SecretString {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Secret text.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// True if no secret is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn shown(&self) -> &'static str {
        if self.0.is_empty() { "" } else { REDACTED }
    }
}

impl std::fmt::Debug for SecretString {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecretString({})", self.shown())
    }
}

impl Serialize for SecretString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.shown())
    }
}

impl<'de> Deserialize<'de> for SecretString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The library's error repeats the value.
        let text = String::deserialize(deserializer);
        text.map(Self).map_err(|_| D::Error::custom("a secret has to be a text"))
    }
}

impl JsonSchema for SecretString {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SecretString".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "password", "writeOnly": true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_and_never_shown() {
        #[derive(Debug, Default, Serialize, Deserialize)]
        struct Options {
            key: SecretString,
            other: Option<SecretString>,
        }
        let read: Options =
            serde_json::from_str(r#"{ "key": "hunter2", "other": "" }"#).expect("reads");
        assert_eq!(read.key.expose(), "hunter2");
        assert!(!read.key.is_empty() && read.other.as_ref().is_some_and(SecretString::is_empty));
        let schema = schemars::schema_for!(SecretString);
        assert_eq!(schema.as_value()["writeOnly"], true);
        let shown = [format!("{read:?}"), serde_json::to_string(&read).expect("serialises")];
        for text in shown {
            assert!(text.contains(REDACTED) && !text.contains("hunter2"), "{text}");
        }
        assert_eq!(serde_json::to_value(Options::default()).expect("serialises")["key"], "");
        let error =
            serde_json::from_str::<Options>(r#"{ "key": 123456789 }"#).expect_err("refused");
        assert!(!error.to_string().contains("123456789"), "{error}");
    }
}
