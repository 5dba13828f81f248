//! Redactor: removes credentials from git's output.

use std::sync::LazyLock;

use hivekeep_protocol::Secret;
use regex::{Captures, Regex};

/// Replacement of a credential.
const HIDDEN: &str = "***";
/// Minimum length of a known secret; shorter ones occur everywhere by chance.
const LEAST_BYTES: usize = 4;

/// Patterns of well-known credentials. A group `keep` stays.
static SHAPES: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let shapes = [
        r"\b(?:gh[pousr]_[0-9A-Za-z]{16,}|github_pat_[0-9A-Za-z_]{20,}|glpat-[0-9A-Za-z_-]{16,})",
        r"(?i)(?P<keep>\b(?:proxy-)?authorization\s*:[ \t]*)[^\r\n]+",
        r"(?i)(?P<keep>\b(?:https?|git|ftps?)://)[^\s/'\x22<>]*@",
        r"(?i)(?P<keep>\b[a-z][a-z0-9+.-]*://[^\s/:@]*:)[^\s/'\x22<>]*@",
    ];
    shapes.map(|shape| Regex::new(shape).expect("tested below")).to_vec()
});

/// Redactor of texts.
#[derive(Debug, Default)]
pub struct SecretRedactor {
    /// Secrets of the call, longest first.
    known: Vec<Secret>,
}

impl SecretRedactor {
    /// Adds a secret to hide.
    pub fn add(&mut self, secret: &Secret) {
        if secret.expose().len() >= LEAST_BYTES && !self.known.contains(secret) {
            self.known.push(secret.clone());
            self.known.sort_by_key(|secret| std::cmp::Reverse(secret.expose().len()));
        }
    }

    /// Returns the text without credentials, and their number.
    pub fn text(&self, text: &str) -> (String, usize) {
        let (mut text, mut hidden) = (text.to_owned(), 0);
        for secret in &self.known {
            let found = text.matches(secret.expose()).count();
            if found > 0 {
                hidden += found;
                text = text.replace(secret.expose(), HIDDEN);
            }
        }
        for shape in SHAPES.iter() {
            let mut found = 0;
            let replaced = shape.replace_all(&text, |captures: &Captures<'_>| {
                let at = if captures[0].ends_with('@') { "@" } else { "" };
                let keep = captures.name("keep").map_or("", |keep| keep.as_str());
                let shown = format!("{keep}{HIDDEN}{at}");
                found += usize::from(shown != captures[0]);
                shown
            });
            if found > 0 {
                let replaced = replaced.into_owned();
                hidden += found;
                text = replaced;
            }
        }
        (text, hidden)
    }

    /// Redacts git's output for people.
    pub fn words(&self, bytes: &[u8]) -> String {
        self.text(String::from_utf8_lossy(bytes).trim_end()).0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shapes_are_hidden_and_the_rest_stays() {
        let run = |prefix: &str, len: usize| format!("{prefix}{}", "a1".repeat(len / 2));
        for (text, expected) in [
            (run("token ghp_", 36), "token ***"),
            (run("x=github_pat_", 40), "x=***"),
            (run("glpat-", 20), "***"),
            ("Authorization: Basic bWU6cHc=\nnext".into(), "Authorization: ***\nnext"),
            ("proxy-authorization:Bearer abc".into(), "proxy-authorization:***"),
            ("to https://me:p@ss@example.org/r".into(), "to https://***@example.org/r"),
            ("to 'http://tok@h:81/r.git'".into(), "to 'http://***@h:81/r.git'"),
            ("ssh://git:pw@h/r".into(), "ssh://git:***@h/r"),
            ("ssh://git@h/r git@h:r a@b.org".into(), "ssh://git@h/r git@h:r a@b.org"),
            (
                "https://example.org/@scope/x ghp_short".into(),
                "https://example.org/@scope/x ghp_short",
            ),
        ] {
            assert_eq!(SecretRedactor::default().text(&text).0, expected, "{text}");
        }
    }

    #[test]
    fn those_of_the_call_are_hidden_longest_first() {
        let mut hider = SecretRedactor::default();
        for secret in ["abc", "hunter22", "hunter22-longer"] {
            hider.add(&Secret::new(secret.to_owned()));
        }
        assert_eq!(hider.text("abc hunter22-longer hunter22"), ("abc *** ***".to_owned(), 2));
        assert!(!format!("{hider:?}").contains("hunter"));
    }

    proptest! {
        #[test]
        fn a_known_secret_is_nowhere(
            secret in "[!-~]{8,40}", before in "\\PC{0,40}", after in "\\PC{0,40}",
        ) {
            prop_assume!(!HIDDEN.contains(&secret));
            let mut hider = SecretRedactor::default();
            hider.add(&Secret::new(secret.clone()));
            let (text, hidden) = hider.text(&format!("{before}{secret}{after}"));
            // A replacement could only spell the secret again with stars.
            prop_assert!(!text.contains(&secret) || secret.contains("***"));
            prop_assert!(hidden >= 1);
        }
    }
}
