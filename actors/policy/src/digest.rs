//! Digest of an input: SHA-256 over its canonical form, RFC 8785.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// `sha256:` and 64 hexadecimal digits. The order of keys and white space do not count, nor does the
/// way a number is written: `1` and `1.0` are one number to JSON.
pub fn input_digest(args: &Map<String, Value>) -> String {
    let canonical = serde_json_canonicalizer::to_vec(args);
    // A map of JSON values has text keys and finite numbers: there is nothing that could fail.
    let canonical = canonical.expect("JSON has a canonical form");
    format!("sha256:{}", hexadecimal(&Sha256::digest(canonical)))
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(json: &str) -> String {
        input_digest(&serde_json::from_str(json).expect("an object"))
    }

    #[test]
    fn form_does_not_count_and_content_does() {
        let one = digest(r#"{"b":{"y":1,"x":[1,2]},"a":"é"}"#);
        assert_eq!(one, digest("{ \"a\": \"\\u00e9\", \"b\": { \"x\": [1.0, 2], \"y\": 1 } }"));
        assert_eq!(digest("{}"), format!("sha256:{}", hexadecimal(&Sha256::digest(b"{}"))));
        for other in [r#"{"b":{"y":1,"x":[2,1]},"a":"é"}"#, r#"{"b":{"y":"1","x":[1,2]},"a":"é"}"#, "{}"] {
            assert_ne!(one, digest(other), "{other}");
        }
    }
}
