//! Passages of a file, as they should be in the collection.

use std::collections::BTreeMap;

use tokio::task::spawn_blocking;

use super::Ingestion;
use crate::{
    category::category,
    point::{PassagePayload, PointId},
    reading::{ReadFailure, SourceFile, SourcePlace, SourceText},
    split::{PassageSize, TextForm, split},
};

/// Passage as it should be in the collection.
pub(super) struct Wanted {
    pub(super) id: PointId,
    /// Text whose vector it has.
    pub(super) embedded: String,
    pub(super) payload: PassagePayload,
}

impl Ingestion {
    /// Passages of a file. Blocking work is done beside.
    pub(super) async fn passages(
        &self,
        place: &SourcePlace,
        file: &SourceFile,
        key: &str,
    ) -> Result<Vec<Wanted>, ReadFailure> {
        let (shared, options) = (&self.shared, &self.shared.options);
        let text = place.read(file, shared.file_limits(), &shared.pdfs).await?;
        let (source, key) = (file.source.clone(), key.to_owned());
        let size = PassageSize { bytes: options.chunk_bytes, overlap_chars: options.overlap_chars };
        let read = spawn_blocking(move || match text {
            SourceText::Text(text, form) => {
                passages_of(&source, &key, &[(String::new(), text)], form, size)
            }
            SourceText::Pages(pages) => {
                let named =
                    pages.into_iter().zip(1..).map(|(page, nr)| (format!("page {nr}"), page));
                passages_of(&source, &key, &named.collect::<Vec<_>>(), TextForm::Plain, size)
            }
            SourceText::NoText(_) => Vec::new(),
        });
        read.await.map_err(|panic| ReadFailure::File(format!("it cannot be split: {panic}")))
    }
}

/// Passages of the parts of a file, each with what its sections begin with.
fn passages_of(
    source: &str,
    key: &str,
    parts: &[(String, String)],
    form: TextForm,
    size: PassageSize,
) -> Vec<Wanted> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let category = category(source);
    let passages = parts.iter().flat_map(|(name, text)| {
        split(text, form, size).into_iter().map(move |passage| (name, text, passage))
    });
    let wanted = passages.enumerate().map(|(at, (name, text, passage))| {
        let text = text[passage.shown].trim();
        let section = if name.is_empty() { passage.section } else { name.clone() };
        let embedded = match section.is_empty() {
            true => format!("{source}\n{text}"),
            false => format!("{source}\n{section}\n{text}"),
        };
        let nth = seen.entry(embedded.clone()).or_default();
        let id = PointId::of(key, &embedded, *nth);
        *nth += 1;
        let payload = PassagePayload {
            text: text.to_owned(),
            file: key.to_owned(),
            source: source.to_owned(),
            section,
            category: category.to_owned(),
            chunk_index: u32::try_from(at).unwrap_or(u32::MAX),
            line: passage.line,
        };
        Wanted { id, embedded, payload }
    });
    wanted.collect()
}
