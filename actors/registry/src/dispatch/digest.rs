//! A digest of an input that tells inputs apart without showing them.
//!
//! BLAKE3 over a canonical form: the order of an object's keys does not count,
//! everything else does. Each value is tagged and each text led by its length,
//! so that no two values have one form.

use serde_json::{Map, Value};

/// The digest of an input.
pub(super) fn of(args: &Map<String, Value>) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    object(&mut hasher, args);
    hasher.finalize()
}

fn value(hasher: &mut blake3::Hasher, value: &Value) {
    match value {
        Value::Null => tag(hasher, b'n', 0),
        Value::Bool(truth) => tag(hasher, b'b', usize::from(*truth)),
        Value::Number(number) => text(hasher, b'd', &number.to_string()),
        Value::String(string) => text(hasher, b's', string),
        Value::Array(items) => {
            tag(hasher, b'a', items.len());
            items.iter().for_each(|item| self::value(hasher, item));
        }
        Value::Object(map) => object(hasher, map),
    }
}

fn object(hasher: &mut blake3::Hasher, map: &Map<String, Value>) {
    tag(hasher, b'o', map.len());
    let mut pairs: Vec<_> = map.iter().collect();
    pairs.sort_unstable_by_key(|(key, _)| key.as_str());
    for (key, item) in pairs {
        text(hasher, b'k', key);
        value(hasher, item);
    }
}

fn text(hasher: &mut blake3::Hasher, kind: u8, text: &str) {
    tag(hasher, kind, text.len());
    hasher.update(text.as_bytes());
}

fn tag(hasher: &mut blake3::Hasher, kind: u8, len: usize) {
    hasher.update(&[kind]);
    hasher.update(&(len as u64).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(json: &str) -> blake3::Hash {
        of(&serde_json::from_str(json).expect("an object"))
    }

    #[test]
    fn the_order_of_keys_does_not_count() {
        let (a, b) = (r#"{"a": 1, "b": {"c": 2, "d": 3}}"#, r#"{"b": {"d": 3, "c": 2}, "a": 1}"#);
        assert_eq!(digest(a), digest(b));
    }

    #[test]
    fn everything_else_does() {
        let different = [
            r#"{}"#,
            r#"{"a": 1}"#,
            r#"{"a": 1.0}"#,
            r#"{"a": "1"}"#,
            r#"{"a": true}"#,
            r#"{"a": null}"#,
            r#"{"a": [1]}"#,
            r#"{"a": [[1]]}"#,
            r#"{"a": {"b": 1}}"#,
            r#"{"ab": "c"}"#,
            r#"{"a": "bc"}"#,
            r#"{"a": ["b", "c"]}"#,
            r#"{"a": ["c", "b"]}"#,
        ];
        let digests: std::collections::HashSet<_> =
            different.iter().map(|json| digest(json)).collect();
        assert_eq!(digests.len(), different.len());
    }
}
