//! Credentials do not leave in errors.
//!
//! Results are not touched: a file that was asked for must arrive as it is, or
//! an edit that is based on it destroys it. Errors are another matter. Nobody
//! asked for what is in them, they go into logs and events, and they may quote
//! a command line or an answer of a server. So every text of an error is
//! searched for the shapes of well-known credentials, for what stands behind
//! `password=` and its like, and for the operator's own patterns; and in its details, as in events, what
//! is named like a credential is hidden whole (`keys.rs`).
//!
//! An input that a person is to approve is a third matter: what is hidden there is approved unseen. Nothing
//! is hidden but the credential itself, each with its length, and nothing that a shell or a program could
//! run in its place.

mod keys;

use std::{borrow::Cow, collections::BTreeSet};

use hivekeep_kernel::ToolError;
use hivekeep_ports::ValueRedactor;
use regex::{Captures, Regex, RegexSet};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::RedactionOptions;
use keys::{Keys, Named};

/// Text in place of a credential.
const HIDDEN: &str = "[redacted]";

/// Shapes of credentials that are one word. Each is anchored by a prefix of its issuer, so that hashes,
/// ids and paths are left alone.
const WORDS: [&str; 9] = [
    // Our own credentials.
    r"\bhivekeep_[0-9a-f]{64}\b",
    // AWS access key ids.
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    // GitHub, GitLab, Slack, npm, PyPI, Stripe, Google, model providers.
    r"\bgh[pousr]_[0-9A-Za-z]{36,}\b|\bgithub_pat_[0-9A-Za-z_]{50,}\b",
    r"\bglpat-[0-9A-Za-z_-]{20,}",
    r"\bxox[abeoprs]-[0-9A-Za-z-]{10,}",
    r"\bnpm_[0-9A-Za-z]{36}\b|\bpypi-[0-9A-Za-z_-]{50,}",
    r"\b[sr]k_(?:live|test)_[0-9A-Za-z]{16,}\b|\bAIza[0-9A-Za-z_-]{35}",
    r"\bsk-[0-9A-Za-z_-]{20,}",
    // JSON web tokens: three parts, the first two of which are JSON objects.
    r"\beyJ[0-9A-Za-z_-]{8,}\.eyJ[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]{8,}",
];

/// Shapes of other credentials in texts that are read and not acted on: all that may belong to one goes. A
/// group `keep` stays.
const PASSAGES: [&str; 3] = [
    // Private keys, up to their end or the end of the text.
    r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)",
    // Credentials in headers and in URLs.
    r"(?i)(?P<keep>\b(?:bearer|basic)\s+)[0-9a-z._~+/=-]{16,}",
    r"(?P<keep>\b[a-z][a-z0-9+.-]*://[^\s/:@]*:)[^\s/@]+(?:@)",
];

/// Names in `password=...`, `api_key: ...` and their like, as whole words.
const NAMES: &str = r"(?: \b | _ ) (?: password | passwd | secret | api_?key | access_?key | private_?key
    | (?: access | auth | refresh | id | session | api )_?token | client_?secret )";
/// Characters that may be of a credential where nothing but its surroundings says that it is one: none that
/// is a shell's.
const SECRET: &str = r#"[^\s"',;&|<>()$\x60\\{}]"#;
/// Shortest line of a private key that is taken for one. What is left of a key behind its last such line
/// is of no use alone.
const KEY_LINE: usize = 40;
/// Different capitals in such a line, which no path of a program has.
const KEY_CAPITALS: usize = 8;

/// Hides credentials in texts.
#[derive(Debug)]
pub struct Redactor {
    texts: Shapes,
    inputs: Shapes,
    keys: Keys,
}

/// Shapes that are looked for in one kind of text.
#[derive(Debug)]
struct Shapes {
    /// Tells in one pass whether anything is there.
    any: RegexSet,
    each: Vec<Regex>,
}

impl Shapes {
    fn new(patterns: &[String]) -> Result<Self, regex::Error> {
        let each = patterns.iter().map(|pattern| Regex::new(pattern)).collect::<Result<_, _>>()?;
        Ok(Self { any: RegexSet::new(patterns)?, each })
    }

    /// The text with a mark in place of each credential; the same text when there are none.
    fn replace<'a>(&self, text: &'a str, mark: impl Fn(&str) -> String) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for index in self.any.matches(&text.clone()) {
            let hide = |found: &Captures<'_>| {
                let kept = found.name("keep").map_or("", |keep| keep.as_str());
                format!("{kept}{}", mark(&found[0][kept.len()..]))
            };
            if let Cow::Owned(hidden) = self.each[index].replace_all(&text, hide) {
                text = Cow::Owned(hidden);
            }
        }
        text
    }
}

impl Redactor {
    /// A redactor with the operator's patterns.
    ///
    /// # Errors
    /// When one of them is no regular expression.
    pub fn new(options: &RedactionOptions) -> Result<Self, regex::Error> {
        let named =
            format!(r#"(?ix) (?P<keep> {NAMES} ["']? \s* [=:] \s* ["']? ) [^\s"',;&]{{4,}}"#);
        let patterns = |own: Vec<String>| -> Vec<String> {
            let all = WORDS.map(str::to_owned).into_iter().chain(own);
            let all = all.chain(options.extra_patterns.iter().cloned());
            all.filter(|_| options.enabled).collect()
        };
        let texts = PASSAGES.map(str::to_owned).into_iter().chain([named]).collect();
        Ok(Self {
            texts: Shapes::new(&patterns(texts))?,
            inputs: Shapes::new(&patterns(shapes_of_inputs()))?,
            keys: Keys::new(options),
        })
    }

    /// The text without credentials; the same text when there are none.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.texts.replace(text, |_| HIDDEN.to_owned())
    }

    /// The error with credentials hidden in all of its texts.
    pub(super) fn error(&self, mut error: ToolError) -> ToolError {
        self.in_place(&mut error.message);
        if let Some(step) = &mut error.next_step {
            self.in_place(step);
        }
        let details = std::mem::take(&mut *error.details);
        if let (Value::Object(details), _) = self.json(Value::Object(details)) {
            *error.details = details;
        }
        error
    }

    fn in_place(&self, text: &mut String) {
        if let Cow::Owned(hidden) = self.text(text) {
            *text = hidden;
        }
    }
}

impl ValueRedactor for Redactor {
    fn redact(&self, value: Value) -> Value {
        self.json(value).0
    }
}

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
    /// Reason, which also tells whether all of it is hidden.
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
                if let Cow::Owned(hidden) = self.text(text) {
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

    fn hides(&self, key: &str, value: &Value) -> bool {
        match (self.keys.judge(key), value) {
            (Named::Nothing, _) | (_, Value::Null | Value::Bool(_)) => false,
            (_, Value::String(text)) => !text.is_empty(),
            (Named::Token, Value::Number(_)) => false,
            (Named::Token | Named::Credential, _) => true,
        }
    }
}

/// Shapes in inputs beside those that are one word. None goes on over a line's end, and none begins where a shell
/// would look for a program: behind an assignment and a blank.
fn shapes_of_inputs() -> Vec<String> {
    vec![
        // A private key whose lines are joined by `\n`.
        format!(r"(?P<keep>-----BEGIN [A-Z ]*PRIVATE KEY-----)(?:\\n|[0-9A-Za-z+/=]){{{KEY_LINE},}}"),
        r#"(?i)(?P<keep>\bauthorization["']?[\x20\t]*:[\x20\t]*["']?(?:bearer|basic)[\x20\t]+)[0-9a-z._~+/=-]{16,}"#
            .to_owned(),
        format!(r#"(?P<keep>\b[a-z][a-z0-9+.-]*://[^\s/:@"'$\x60]*:)(?:[{SECRET}&&[^/@]]+)@"#),
        format!(
            r#"(?ix) (?P<keep> {NAMES} ["']?
                (?: = | [\x20\t]* : [\x20\t]* | [\x20\t]* = [\x20\t]* ["'] ) ["']? ) {SECRET}{{4,}}"#
        ),
    ]
}

fn hidden(secret: &str) -> String {
    format!("[{} characters hidden]", secret.chars().count())
}

impl Redactor {
    /// An input as the person who approves it is shown it.
    pub fn input(&self, args: &Map<String, Value>) -> Map<String, Value> {
        let member = |(name, value): (&String, &Value)| match (self.hides(name, value), value) {
            (true, Value::String(text)) => (name.clone(), hidden(text).into()),
            (true, other) => (name.clone(), hidden(&other.to_string()).into()),
            (false, value) => (name.clone(), self.shown(value)),
        };
        args.iter().map(member).collect()
    }

    fn shown(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.lines(text).into(),
            Value::Array(items) => items.iter().map(|item| self.shown(item)).collect(),
            Value::Object(map) => self.input(map).into(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    /// A text, line by line. The lines of a private key are hidden each for itself.
    fn lines(&self, text: &str) -> String {
        if self.inputs.each.is_empty() {
            return text.to_owned();
        }
        let (mut shown, mut of_key) = (String::with_capacity(text.len()), false);
        for line in text.split_inclusive('\n') {
            if of_key && is_key_line(line.trim()) {
                shown.push_str(&line.replace(line.trim(), &hidden(line.trim())));
                continue;
            }
            of_key |= line.contains("PRIVATE KEY-----");
            of_key &= !line.contains("-----END ");
            shown.push_str(&self.inputs.replace(line, hidden));
        }
        shown
    }
}

fn is_key_line(line: &str) -> bool {
    let base64 = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    let capitals: BTreeSet<_> = line.chars().filter(char::is_ascii_uppercase).collect();
    line.len() >= KEY_LINE && line.chars().all(base64) && capitals.len() >= KEY_CAPITALS
}

#[cfg(test)]
mod tests;
