//! Stream names and sequence numbers.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Error;

/// Maximum length of a stream name, in bytes.
const MAX_BYTES: usize = 128;

/// Name of a stream: `kind/id`, for example `workspace/ws_7f3a`.
///
/// `kind` is made of `a-z 0-9 _ -`, `id` of `A-Z a-z 0-9 _ - .`; both have at least one character,
/// and the whole has at most 128 bytes. The set excludes the NUL that separates names in the
/// database's keys.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StreamId(Arc<str>);

impl StreamId {
    /// Checks and joins `kind/id`.
    pub fn new(kind: &str, id: &str) -> Result<Self, Error> {
        Self::parse(&format!("{kind}/{id}"))
    }

    /// Checks a whole name.
    pub fn parse(name: &str) -> Result<Self, Error> {
        let kind_char = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b);
        let id_char = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
        let good = name.len() <= MAX_BYTES
            && name.split_once('/').is_some_and(|(kind, id)| {
                !kind.is_empty()
                    && !id.is_empty()
                    && kind.bytes().all(kind_char)
                    && id.bytes().all(id_char)
            });
        if good {
            Ok(StreamId(name.into()))
        } else {
            Err(Error::invalid(format!(
                "{name:?} is not a stream name: kind/id, at most {MAX_BYTES} bytes"
            )))
        }
    }

    /// Whole name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Part before the slash.
    pub fn kind(&self) -> &str {
        self.0.split_once('/').map_or("", |(kind, _)| kind)
    }

    /// Part after the slash.
    pub fn id(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, id)| id)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for StreamId {
    type Error = Error;

    fn try_from(name: String) -> Result<Self, Error> {
        Self::parse(&name)
    }
}

impl From<StreamId> for String {
    fn from(id: StreamId) -> String {
        id.0.as_ref().into()
    }
}

/// Position in a stream, or in the sequence of events. The first is 1; 0 means "before the first".
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Seq(u64);

impl Seq {
    /// Position before the first record.
    pub const ZERO: Seq = Seq(0);
    /// Position of the first record.
    pub const FIRST: Seq = Seq(1);

    /// Position with this number.
    pub const fn new(number: u64) -> Self {
        Seq(number)
    }

    /// Number of the position.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Position after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Seq(self.0 + 1)
    }

    /// Position before this one; zero stays zero.
    #[must_use]
    pub const fn prev(self) -> Self {
        Seq(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_each_other() {
        let seven = Seq::new(7);
        assert_eq!((seven.next().get(), seven.prev().get(), seven.get()), (8, 6, 7));
        assert_eq!([Seq::FIRST.prev(), Seq::ZERO.prev()], [Seq::ZERO; 2]);
    }

    #[test]
    fn names_are_checked() {
        for good in ["ws/a", "work_space-2/WS.1_x-", &format!("k/{}", "a".repeat(126))] {
            assert_eq!(StreamId::parse(good).unwrap().as_str(), good);
        }
        for bad in
            ["", "a", "/a", "a/", "A/b", "a/b/c", "a/b\0", "a/é", &format!("k/{}", "a".repeat(127))]
        {
            assert!(StreamId::parse(bad).is_err(), "{bad:?}");
        }
        let id = StreamId::new("ws", "x.1").unwrap();
        assert_eq!((id.kind(), id.id()), ("ws", "x.1"));
        assert!(serde_json::from_str::<StreamId>("\"no slash\"").is_err());
    }
}
