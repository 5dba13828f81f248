//! Redaction of JSON: by key names, and of texts by shapes.

use serde::Serialize;
use serde_json::Value;

use super::{HIDDEN, Redactor, keys::Named};

/// Why something is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RedactionReason {
    /// Its key names a credential; all of it is hidden.
    Key,
    /// A part of the text has the shape of one.
    Shape,
}

/// Place of something hidden.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RedactedPath {
    /// JSON Pointer (RFC 6901) to it.
    pub pointer: String,
    /// Why.
    pub reason: RedactionReason,
}

impl Redactor {
    /// The value without credentials, and where they were. What a key names is hidden whole, but for
    /// `null`, truth values and the empty text, which tell nothing but whether there is one.
    pub fn json(&self, mut value: Value) -> (Value, Vec<RedactedPath>) {
        let mut found = Vec::new();
        self.walk(&mut value, &mut String::new(), &mut found);
        (value, found)
    }

    fn walk(&self, value: &mut Value, pointer: &mut String, found: &mut Vec<RedactedPath>) {
        let length = pointer.len();
        match value {
            Value::String(text) => {
                if let std::borrow::Cow::Owned(hidden) = self.text(text) {
                    *text = hidden;
                    let reason = RedactionReason::Shape;
                    found.push(RedactedPath { pointer: pointer.clone(), reason });
                }
            }
            Value::Array(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    pointer.push_str(&format!("/{at}"));
                    self.walk(item, pointer, found);
                    pointer.truncate(length);
                }
            }
            Value::Object(map) => {
                for (key, item) in map {
                    pointer.push('/');
                    pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
                    if self.hides(key, item) {
                        *item = Value::from(HIDDEN);
                        let reason = RedactionReason::Key;
                        found.push(RedactedPath { pointer: pointer.clone(), reason });
                    } else {
                        self.walk(item, pointer, found);
                    }
                    pointer.truncate(length);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    pub(super) fn hides(&self, key: &str, value: &Value) -> bool {
        match (self.keys.judge(key), value) {
            (Named::Nothing, _) | (_, Value::Null | Value::Bool(_)) => false,
            (_, Value::String(text)) => !text.is_empty(),
            (Named::Token, Value::Number(_)) => false,
            (Named::Token | Named::Credential, _) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::RedactionOptions;

    fn redacted(value: Value) -> (Value, Vec<(String, RedactionReason)>) {
        let redactor = Redactor::new(&RedactionOptions::default()).expect("patterns");
        let (value, found) = redactor.json(value);
        (value, found.into_iter().map(|path| (path.pointer, path.reason)).collect())
    }

    #[test]
    fn what_a_key_names_and_what_has_a_shape_is_hidden_and_its_place_is_told() {
        use RedactionReason::{Key, Shape};
        let token = format!("ghp_{}", "a1B2".repeat(9));
        let (value, found) = redacted(json!({
            "env": [{ "API_KEY": "x" }, { "PATH": "/bin" }],
            "a/b~c": { "password": 1234, "token": 5, "max_tokens": 4096, "token_present": true },
            "command": format!("curl -H 'x: {token}'"),
            "credentials": { "user": "me", "any": ["x"] },
            "secret": null, "client_secret": "", "passwords": false,
        }));
        assert_eq!(
            value,
            json!({
                "env": [{ "API_KEY": HIDDEN }, { "PATH": "/bin" }],
                "a/b~c": { "password": HIDDEN, "token": 5, "max_tokens": 4096, "token_present": true },
                "command": format!("curl -H 'x: {HIDDEN}'"),
                "credentials": HIDDEN,
                "secret": null, "client_secret": "", "passwords": false,
            })
        );
        let place = |pointer: &str, reason| (pointer.to_owned(), reason);
        let places = [
            place("/env/0/API_KEY", Key),
            place("/a~1b~0c/password", Key),
            place("/command", Shape),
            place("/credentials", Key),
        ];
        assert_eq!(found, places);
    }

    /// A name in one of the spellings that programs use.
    fn spelled(words: &[&str], how: usize) -> String {
        let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
        match how {
            0 => words.join("_"),
            1 => words.join("-"),
            2 => words.join("_").to_uppercase(),
            3 => {
                words[0].to_owned()
                    + &words[1..].iter().map(|word| capital(word)).collect::<String>()
            }
            _ => words.iter().map(|word| capital(word)).collect::<Vec<_>>().join("-"),
        }
    }

    proptest::proptest! {
        /// Whatever stands around it, wherever it is: it is gone, and everything else is there.
        #[test]
        fn a_named_secret_is_hidden_in_any_spelling_at_any_depth(
            around in "[a-z]{3,8}",
            name in proptest::sample::select(vec!["password", "client secret", "api key", "access token"]),
            how in 0_usize..5,
            secret in "[!-~]{8,40}",
            depth in 0_usize..6,
        ) {
            let words: Vec<_> = std::iter::once(around.as_str()).chain(name.split(' ')).collect();
            let mut value = json!({ spelled(&words, how): secret.clone(), "plain": "stays" });
            for level in 0..depth {
                value = if level % 2 == 0 { json!([1, value]) } else { json!({ "inner": value }) };
            }
            let (hidden, found) = redacted(value);
            let text = hidden.to_string();
            let quoted = serde_json::to_string(&secret).expect("a text");
            proptest::prop_assert!(!text.contains(&quoted), "{text}");
            proptest::prop_assert!(text.contains("stays") && found.len() == 1, "{text} {found:?}");
        }
    }

    #[test]
    fn the_places_are_pointers_into_the_value() {
        let before = json!({ "~/": [{ "x/~0": { "password": "p" } }], "": { "token": "t" } });
        let (after, found) = redacted(before.clone());
        assert_eq!(found.len(), 2);
        for (pointer, _) in found {
            assert!(before.pointer(&pointer).is_some_and(|value| value != HIDDEN), "{pointer}");
            assert_eq!(after.pointer(&pointer), Some(&json!(HIDDEN)), "{pointer}");
        }
    }
}
