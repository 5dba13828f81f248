//! Redaction port: values without credentials, for whoever keeps what others sent.

use serde_json::Value;

/// Redactor of values.
pub trait ValueRedactor: Send + Sync {
    /// The value with credentials hidden: what is named like one whole, and what looks like one in any text.
    fn redact(&self, value: Value) -> Value;
}
