//! Digests of a call's input and of its result.

use hivekeep_policy::hexadecimal;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Text in place of a value that is left out of a digest.
const REDACTED: &str = "[REDACTED]";

/// Digest of a result, of its JSON.
pub(super) fn of_result(json: &str) -> String {
    format!("sha256:{}", hexadecimal(&Sha256::digest(json)))
}

/// The input without the values of these fields, at any depth, and which of them it had.
pub(super) fn without(
    input: &Map<String, Value>,
    fields: &[String],
) -> (Map<String, Value>, Vec<String>) {
    let (mut input, mut found) = (input.clone(), Vec::new());
    if !fields.is_empty() {
        hide(&mut input, fields, &mut found);
    }
    (input, found)
}

fn hide(object: &mut Map<String, Value>, fields: &[String], found: &mut Vec<String>) {
    for (key, value) in object {
        if fields.iter().any(|field| field == key) {
            *value = REDACTED.into();
            if !found.contains(key) {
                found.push(key.clone());
            }
        } else {
            hide_in(value, fields, found);
        }
    }
}

fn hide_in(value: &mut Value, fields: &[String], found: &mut Vec<String>) {
    match value {
        Value::Object(object) => hide(object, fields, found),
        Value::Array(list) => list.iter_mut().for_each(|item| hide_in(item, fields, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use hivekeep_policy::input_digest;
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    #[test]
    fn an_input_is_known_by_its_content_and_a_secret_is_left_out() {
        let one = object(json!({ "a": 1, "b": { "c": [1.0, "x"] } }));
        let same = object(json!({ "b": { "c": [1, "x"] }, "a": 1 }));
        assert_eq!(input_digest(&one), input_digest(&same));
        assert_ne!(input_digest(&one), input_digest(&object(json!({ "a": 2 }))));
        let secret = |text: &str| object(json!({ "list": [{ "password": text }], "a": 1 }));
        let fields = ["password".to_owned(), "other".to_owned()];
        let (hidden, found) = without(&secret("x"), &fields);
        assert_eq!(found, ["password"]);
        assert_eq!(input_digest(&hidden), input_digest(&without(&secret("y"), &fields).0));
        assert_ne!(input_digest(&secret("x")), input_digest(&secret("y")));
        // The digest of the empty text, as published.
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(of_result(""), empty);
    }
}
