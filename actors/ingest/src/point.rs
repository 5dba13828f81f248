//! Points: passages as a store keeps them, with two vectors each and what results show of them.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::{Builder, Uuid};

/// Id of a point: by content and place, so that what is unchanged keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct PointId(pub(crate) Uuid);

impl PointId {
    /// Id of the `nth` passage with this text in a file of a place.
    pub(crate) fn of(file: &str, embedded: &str, nth: u32) -> Self {
        let mut hash = blake3::Hasher::new();
        for part in [file.as_bytes(), embedded.as_bytes()] {
            hash.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        hash.update(&nth.to_le_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize().as_bytes()[..16]);
        Self(Builder::from_custom_bytes(bytes).into_uuid())
    }
}

/// Sparse vector: indices in ascending order, each once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SparseVector {
    pub(crate) indices: Vec<u32>,
    pub(crate) values: Vec<f32>,
}

/// Data of a passage beside its vectors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PassagePayload {
    pub(crate) text: String,
    /// File, as `PLACE:PATH`.
    pub(crate) file: String,
    /// Path from the folder that was ingested.
    pub(crate) source: String,
    pub(crate) section: String,
    pub(crate) category: String,
    pub(crate) chunk_index: u32,
    /// Line that it begins at, from 1.
    pub(crate) line: u32,
}

/// Payload without its text: where a passage is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Whereabouts {
    pub(crate) file: String,
    pub(crate) source: String,
    pub(crate) section: String,
    pub(crate) category: String,
    pub(crate) chunk_index: u32,
    pub(crate) line: u32,
}

impl Whereabouts {
    /// Names of its fields in a payload.
    pub(crate) const FIELDS: [&'static str; 6] =
        ["file", "source", "section", "category", "chunk_index", "line"];
}

impl From<&PassagePayload> for Whereabouts {
    fn from(payload: &PassagePayload) -> Self {
        let PassagePayload { text: _, file, source, section, category, chunk_index, line } =
            payload.clone();
        Self { file, source, section, category, chunk_index, line }
    }
}

/// Passage with its vectors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) id: PointId,
    pub(crate) dense: Vec<f32>,
    pub(crate) sparse: SparseVector,
    pub(crate) payload: PassagePayload,
}

/// Id of a collection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct CollectionId(Uuid);

impl CollectionId {
    /// New id; ids sort by time.
    pub(crate) fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl fmt::Display for CollectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "col_{}", self.0.simple())
    }
}

impl fmt::Debug for CollectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for CollectionId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hex = text.strip_prefix("col_").filter(|hex| hex.len() == 32);
        let id = hex.and_then(|hex| Uuid::try_parse(hex).ok());
        id.map(Self).ok_or_else(|| format!("`{text:.80}` is not a valid id of a collection"))
    }
}

impl From<CollectionId> for String {
    fn from(id: CollectionId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for CollectionId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_of_content_and_place() {
        let id = PointId::of("a.md", "text", 0);
        assert_eq!(id, PointId::of("a.md", "text", 0));
        let others =
            [("b.md", "text", 0), ("a.md", "texts", 0), ("a.md", "text", 1), ("a.mdt", "ext", 0)];
        assert!(others.iter().all(|(source, text, nth)| PointId::of(source, text, *nth) != id));
    }

    #[test]
    fn an_id_of_a_collection_reads_back() {
        let id = CollectionId::new();
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("col_1".parse::<CollectionId>().is_err() && "x".parse::<CollectionId>().is_err());
    }
}
