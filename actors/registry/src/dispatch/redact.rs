//! Credentials do not leave in errors.
//!
//! Results are not touched: a file that was asked for must arrive as it is, or
//! an edit that is based on it destroys it. Errors are another matter. Nobody
//! asked for what is in them, they go into logs and events, and they may quote
//! a command line or an answer of a server. So every text of an error is
//! searched for the shapes of well-known credentials, for what stands behind
//! `password=` and its like, and for the operator's own patterns; and in its details, as in events, what
//! is named like a credential is hidden whole (`json.rs`, `keys.rs`). An input that a person is to approve
//! is a third matter (`input.rs`): what is hidden there is approved unseen.

mod input;
mod json;
mod keys;

use std::borrow::Cow;

use hivekeep_kernel::{ToolError, ports::ValueRedactor};
use regex::{Captures, Regex, RegexSet};
use serde_json::Value;

use crate::RedactionOptions;
use keys::Keys;

pub use json::{RedactedPath, RedactionReason};

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
            inputs: Shapes::new(&patterns(input::shapes()))?,
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

#[cfg(test)]
mod tests {
    use super::*;
    use hivekeep_kernel::Layer;

    fn redactor() -> Redactor {
        let extra_patterns = vec!["ACME-[0-9]+".to_owned()];
        let options = RedactionOptions { extra_patterns, ..RedactionOptions::default() };
        Redactor::new(&options).expect("patterns")
    }

    // Put together here, so that scanners of source text find nothing.
    fn samples() -> Vec<(String, &'static str)> {
        let run = |prefix: &str, length: usize| format!("{prefix}{}", "a1B2".repeat(length / 4));
        vec![
            (format!("key AKIA{} used", "A1B2".repeat(4)), "key [redacted] used"),
            (format!("hivekeep_{}", "a1b2".repeat(16)), HIDDEN),
            (run("ghp_", 36), HIDDEN),
            (run("glpat-", 20), HIDDEN),
            (run("xoxb-", 20), HIDDEN),
            (run("sk-", 40), HIDDEN),
            (run("sk_live_", 24), HIDDEN),
            (format!("eyJ{0}.eyJ{0}.{0}", "a1B2".repeat(3)), HIDDEN),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----!".into(),
                "[redacted]!",
            ),
            ("-----BEGIN PRIVATE KEY-----\ncut of".into(), HIDDEN),
            (run("Authorization: Bearer ", 24), "Authorization: Bearer [redacted]"),
            ("https://me:hunter2@example.org/x".into(), "https://me:[redacted]example.org/x"),
            ("PASSWORD=hunter22 ok".into(), "PASSWORD=[redacted] ok"),
            (r#"{"db_password": "hunter22"}"#.into(), r#"{"db_password": "[redacted]"}"#),
            ("api-key? api_key: abcdef".into(), "api-key? api_key: [redacted]"),
            ("ACME-123".into(), HIDDEN),
        ]
    }

    #[test]
    fn credentials_are_hidden() {
        for (text, hidden) in samples() {
            assert_eq!(redactor().text(&text), hidden, "{text}");
        }
    }

    #[test]
    fn other_texts_are_left_alone() {
        for text in [
            "ws_0195f3a27c1e7b1a8f21b5b0a4c3d2e1 is not running",
            "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
            "the password was wrong",
            "password: ",
            "task-12345678901234567890 and disk-full-on-the-first-volume",
            "http://127.0.0.1:7717/mcp",
            "git@example.org:project/repo.git",
            "the secretary: Ms Miller",
            "tokens: 5000, max_tokens=4096",
            "/usr/lib/x86_64-linux-gnu/libssl.so.3",
            "basic understanding of bearer bonds",
        ] {
            let redactor = redactor();
            let left = redactor.text(text);
            assert!(matches!(left, Cow::Borrowed(_)), "{text} -> {left}");
        }
    }

    #[test]
    fn all_texts_of_an_error_are_searched() {
        let secret = format!("ghp_{}", "a1B2".repeat(9));
        let error =
            ToolError::foreign(Layer::Guest, "clone_failed", format!("no access with {secret}"))
                .next(format!("renew {secret}"))
                .detail("argv", serde_json::json!(["git", { "note": secret }]))
                .detail("request", serde_json::json!({ "client_secret": "of no shape" }));
        let text = serde_json::to_string(&redactor().error(error)).expect("serialises");
        assert!(!text.contains(&secret) && text.matches(HIDDEN).count() == 4, "{text}");
    }

    #[test]
    fn the_switch_turns_it_off() {
        let options = RedactionOptions { enabled: false, ..RedactionOptions::default() };
        let redactor = Redactor::new(&options).expect("patterns");
        assert_eq!(redactor.text("password=hunter22"), "password=hunter22");
    }
}
