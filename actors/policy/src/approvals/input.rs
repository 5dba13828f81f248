//! Input of a call: its digest, which approvals are bound to, and as people are shown it: without
//! credentials, and with what is left out. The digest is SHA-256 over the canonical form, RFC 8785.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::Approval;

/// Largest number up to which JSON's numbers, which are doubles, tell whole numbers apart.
const EXACT: u64 = 1 << 53;
/// Characters of an input that lists and forms show, and that are kept of a finished approval.
const SHOWN: usize = 2_000;
/// Characters of an input that are kept while an approval waits, for whoever looks at all of it.
const KEPT: usize = 40_000;

/// `sha256:` and 64 hexadecimal digits. The order of keys and white space do not count, nor does the
/// way a number is written: `1` and `1.0` are one number to JSON. Whole numbers beyond 2^53, which the
/// canonical form rounds, are added behind it as they are, so that no two inputs have one digest.
pub fn input_digest(args: &Map<String, Value>) -> String {
    let canonical = serde_json_canonicalizer::to_vec(args);
    // A map of JSON values has text keys and finite numbers: there is nothing that could fail.
    let mut canonical = canonical.expect("JSON has a canonical form");
    args_beyond(args, &mut canonical);
    format!("sha256:{}", hexadecimal(&Sha256::digest(canonical)))
}

fn args_beyond(args: &Map<String, Value>, to: &mut Vec<u8>) {
    let mut pairs: Vec<_> = args.iter().collect();
    pairs.sort_unstable_by_key(|(key, _)| key.as_str());
    pairs.into_iter().for_each(|(_, value)| beyond(value, to));
}

fn beyond(value: &Value, to: &mut Vec<u8>) {
    match value {
        Value::Object(map) => args_beyond(map, to),
        Value::Array(list) => list.iter().for_each(|value| beyond(value, to)),
        Value::Number(number) => {
            let size = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
            if size.is_some_and(|size| size > EXACT) {
                to.extend_from_slice(format!("\n{number}").as_bytes());
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Two lower-case digits for each byte.
pub fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let pair = |byte: &u8| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    bytes.iter().flat_map(pair).collect()
}

/// Text of an input from which credentials were taken out, as far as it is kept, and the characters of all
/// of it. The shortest members stand first, so that what is cut is the longest one.
pub fn input_text(input: &Map<String, Value>) -> (String, usize) {
    let member =
        |(name, value): (&String, &Value)| format!("{}:{value}", Value::from(name.as_str()));
    let mut members: Vec<_> = input.iter().map(member).collect();
    members.sort_by_key(String::len);
    let whole = format!("{{{}}}", members.join(","));
    (beginning(&whole, KEPT).to_owned(), whole.chars().count())
}

fn beginning(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end])
}

impl Approval {
    /// Beginning of the input. What is left out is told in a line of its own.
    pub fn input_beginning(&self) -> String {
        let Self { id, call, .. } = self;
        let shown = beginning(&call.input, SHOWN);
        let left = call.input_chars.saturating_sub(shown.chars().count());
        match shown.len() < call.input.len() {
            true => {
                format!("{shown}\n... {left} more characters: `hivekeep approvals show {id}`")
            }
            false => self.whole_input(),
        }
    }

    /// Forgets what is kept of the input for a decision alone.
    pub(super) fn shorten(&mut self) {
        let shown = beginning(&self.call.input, SHOWN).len();
        self.call.input.truncate(shown);
    }

    /// All of the input that is kept. What is not is told in a line of its own.
    pub fn whole_input(&self) -> String {
        let input = &self.call.input;
        match self.call.input_chars.saturating_sub(input.chars().count()) {
            0 => input.clone(),
            left => format!("{input}\n... {left} more characters, which are not kept"),
        }
    }
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
        assert_ne!(digest(r#"{"n":9007199254740993}"#), digest(r#"{"n":9007199254740992}"#));
        for other in
            [r#"{"b":{"y":1,"x":[2,1]},"a":"é"}"#, r#"{"b":{"y":"1","x":[1,2]},"a":"é"}"#, "{}"]
        {
            assert_ne!(one, digest(other), "{other}");
        }
    }
}
