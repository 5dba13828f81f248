//! Pattern of tool names: a name, or the beginning of one and a star.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Pattern of names: `exec`, `fs.*`, `git_*` or `*`. A name is matched as it is declared and in its
/// form with `_` for `.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct ToolPattern(String);

impl ToolPattern {
    /// True for a name that the pattern has.
    pub fn matches(&self, name: &str) -> bool {
        let one = |name: &str| match self.0.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == self.0,
        };
        one(name) || name.contains('.') && one(&name.replace('.', "_"))
    }
}

impl ToolPattern {
    /// True when it has every name that another has.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (self.0.strip_suffix('*'), other.0.strip_suffix('*')) {
            (Some(beginning), Some(longer)) => longer.starts_with(beginning),
            (Some(beginning), None) => other.0.starts_with(beginning),
            (None, Some(_)) => false,
            (None, None) => self.0 == other.0,
        }
    }
}

impl fmt::Display for ToolPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ToolPattern {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let name = text.strip_suffix('*').unwrap_or(&text);
        let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._".contains(c);
        match !text.is_empty() && text.len() <= 65 && name.chars().all(letter) {
            true => Ok(Self(text)),
            false => Err(format!(
                "`{text}` is not a valid pattern: a tool's name, or its beginning and `*`"
            )),
        }
    }
}

impl From<ToolPattern> for String {
    fn from(pattern: ToolPattern) -> Self {
        pattern.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A pattern that covers another has each of its names, and no other does.
        #[test]
        fn what_is_covered_is_matched(
            one in "[ab]{0,2}\\*|[ab]{1,3}",
            other in "[ab]{0,2}\\*|[ab]{1,3}",
            rest in "[ab]{0,3}",
        ) {
            let pattern = |text: &str| ToolPattern::try_from(text.to_owned()).expect("a pattern");
            let name = other.strip_suffix('*').map_or(other.clone(), |start| format!("{start}{rest}"));
            let (whole, part) = (pattern(&one), pattern(&other));
            if whole.covers(&part) {
                prop_assert!(whole.matches(&name), "{one} {other} {name}");
            } else {
                let unlike = other.replace('*', "c");
                prop_assert!(!whole.matches(&unlike), "{one} {other}");
            }
        }
    }

    #[test]
    fn names_match_in_both_forms() {
        let pattern = |text: &str| ToolPattern::try_from(text.to_owned());
        for (text, name, is) in [
            ("exec", "exec", true),
            ("exec", "exec_background", false),
            ("fs.*", "fs.read", true),
            ("fs_*", "fs.read", true),
            ("fs_read", "fs.read", true),
            ("fs.read", "fs_read", false),
            ("*", "anything", true),
            ("git_*", "github", false),
        ] {
            assert_eq!(pattern(text).expect(text).matches(name), is, "{text} {name}");
        }
        assert!(pattern(&"a".repeat(65)).is_ok() && pattern("._09*").is_ok());
        for bad in ["", "*x", "a*b", "A", "a b", "**", &"a".repeat(66)] {
            assert!(pattern(bad).is_err(), "{bad}");
        }
    }
}
