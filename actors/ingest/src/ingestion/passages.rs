//! Passages of a file, as they should be in the collection.

use std::{
    collections::{BTreeMap, HashMap},
    sync::MutexGuard,
};

use blake3::Hash;
use hivekeep_kernel::lock;
use tokio::task::spawn_blocking;

use super::Ingestion;
use crate::{
    point::{PassagePayload, PointId},
    reading::{ReadFailure, ReadSource, SourceFile, SourcePlace, SourceText},
    split::{PassageSize, TextForm, split},
};

/// Pages without text that are named.
const MOST_PAGES_NAMED: usize = 20;
/// Categories of sources with the words of their paths that stand for them; the first that fits is taken.
const CATEGORIES: [(&str, &[&str]); 7] = [
    ("ui-component", &["flux"]),
    ("ui-component", &["ui", "component"]),
    ("brand", &["brand", "mascot"]),
    ("product-brief", &["brief"]),
    ("help-doc", &["help", "draft"]),
    ("task", &["task", "plan"]),
    ("architecture", &["architecture", "migration"]),
];

/// Category of what none of the words stands for.
const OTHERWISE: &str = "documentation";

/// Passage as it should be in the collection.
pub(super) struct Wanted {
    pub(super) id: PointId,
    /// Text whose vector it has.
    pub(super) embedded: String,
    pub(super) payload: PassagePayload,
}

/// Passages of a file, with the reason for what is left out.
pub(super) struct FilePassages {
    pub(super) passages: PassagesWanted,
    /// Why all or a part of it is left out.
    pub(super) left_out: Option<String>,
}

pub(super) enum PassagesWanted {
    /// Passages that the file should have.
    New(Vec<Wanted>),
    /// Unchanged since the last round, with the number of passages.
    Same(u64),
}

/// PDF that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SeenPdf {
    hash: Hash,
    passages: u64,
    /// Why a part of it is left out.
    left_out: Option<String>,
}

/// PDFs of the last complete round, so that an unchanged one is not read again: each read takes a process.
#[derive(Default)]
pub(super) struct SeenPdfs {
    last: HashMap<String, SeenPdf>,
    now: HashMap<String, SeenPdf>,
}

impl SeenPdfs {
    /// An unchanged PDF whose passages are all kept.
    fn same(&mut self, key: &str, hash: Hash, kept: usize) -> Option<SeenPdf> {
        let is = |seen: &&SeenPdf| seen.hash == hash && seen.passages == kept as u64;
        let seen = self.last.get(key).filter(is)?.clone();
        self.now.insert(key.to_owned(), seen.clone());
        Some(seen)
    }

    /// Begins a round.
    pub(super) fn begin(&mut self) {
        self.now.clear();
    }

    /// Ends a round whose passages are all written.
    pub(super) fn end(&mut self) {
        self.last = std::mem::take(&mut self.now);
    }
}

impl Ingestion {
    /// Passages of a file, of which the collection has `kept`. Blocking work runs on other threads.
    pub(super) async fn passages(
        &self,
        place: &SourcePlace,
        file: &SourceFile,
        key: &str,
        kept: usize,
    ) -> Result<FilePassages, ReadFailure> {
        let (shared, options) = (&self.shared, &self.shared.options);
        let ReadSource { text, partly: mut left_out } =
            place.read(file, shared.file_limits()).await?;
        let (parts, form, hash) = match text {
            SourceText::NoText(why) => {
                let passages = PassagesWanted::New(Vec::new());
                return Ok(FilePassages { passages, left_out: Some(why) });
            }
            SourceText::Text(text, form) => (vec![(String::new(), text)], form, None),
            SourceText::Pdf(bytes) => {
                let hash = blake3::hash(&bytes);
                if let Some(SeenPdf { passages, left_out, .. }) = self.seen().same(key, hash, kept)
                {
                    let passages = PassagesWanted::Same(passages);
                    return Ok(FilePassages { passages, left_out });
                }
                let pages = shared.pdfs.read(bytes).await.map_err(ReadFailure::File)?;
                left_out = without_text(&pages);
                let named = pages.into_iter().zip(1..);
                let named = named.map(|(page, number)| (format!("page {number}"), page));
                (named.collect(), TextForm::Plain, Some(hash))
            }
        };
        let (source, of) = (file.source.clone(), key.to_owned());
        let size = PassageSize { bytes: options.chunk_bytes, overlap_chars: options.overlap_chars };
        let split = spawn_blocking(move || passages_of(&source, &of, &parts, form, size));
        let wanted = split
            .await
            .map_err(|panic| ReadFailure::File(format!("it cannot be split: {panic}")))?;
        if let Some(hash) = hash {
            let (passages, left_out) = (wanted.len() as u64, left_out.clone());
            self.seen().now.insert(key.to_owned(), SeenPdf { hash, passages, left_out });
        }
        Ok(FilePassages { passages: PassagesWanted::New(wanted), left_out })
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, SeenPdfs> {
        lock(&self.seen)
    }
}

/// Names the pages of a PDF that have no text; `None` if all have some.
fn without_text(pages: &[String]) -> Option<String> {
    let bare = |page: &&str| !page.chars().any(char::is_alphanumeric);
    let bare: Vec<_> =
        pages.iter().map(String::as_str).zip(1..).filter(|(page, _)| bare(page)).collect();
    let named: Vec<_> =
        bare.iter().take(MOST_PAGES_NAMED).map(|(_, number)| number.to_string()).collect();
    let more = if bare.len() > named.len() { " and more" } else { "" };
    let of = pages.len();
    (!bare.is_empty()).then(|| {
        format!("{} of its {of} pages have no text: {}{more}", bare.len(), named.join(", "))
    })
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

/// Category of a path from the folder that is ingested.
fn category(path: &str) -> &'static str {
    let path = path.to_lowercase();
    let words: Vec<_> = path.split(|c: char| !c.is_alphanumeric()).collect();
    let has =
        |wanted: &&str| words.iter().any(|word| word.strip_suffix('s').unwrap_or(word) == *wanted);
    let fits = |(name, wanted): &&(&str, &[&str])| match *name {
        // Both words together.
        "ui-component" => wanted.iter().all(has),
        _ => wanted.iter().any(has),
    };
    CATEGORIES.iter().find(fits).map_or(OTHERWISE, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pdf_is_seen_when_its_round_has_come_to_its_end() {
        let (one, other) = (blake3::hash(b"one"), blake3::hash(b"other"));
        let mut seen = SeenPdfs::default();
        let pdf = |hash| SeenPdf { hash, passages: 3, left_out: Some("page 2".to_owned()) };
        let read = |seen: &mut SeenPdfs, hash| seen.now.insert("a.pdf".to_owned(), pdf(hash));
        seen.begin();
        read(&mut seen, one);
        // The round was cut off before its `end`.
        seen.begin();
        assert_eq!(seen.same("a.pdf", one, 3), None);
        read(&mut seen, one);
        seen.end();
        for _ in 0..2 {
            seen.begin();
            let (none, same) = (seen.same("b.pdf", one, 3), seen.same("a.pdf", one, 3));
            assert_eq!((none, same), (None, Some(pdf(one))));
            seen.end();
        }
        assert_eq!(seen.same("a.pdf", other, 3), None, "it was edited");
        assert_eq!(seen.same("a.pdf", one, 2), None, "a passage was lost");
    }

    #[test]
    fn pages_without_text_are_named() {
        let pages = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        assert_eq!(without_text(&pages(&["a", "b"])), None);
        let told = without_text(&pages(&["a", " \n", "b", "-"])).expect("two");
        assert_eq!(told, "2 of its 4 pages have no text: 2, 4");
        let many = without_text(&vec![String::new(); 30]).expect("all");
        assert!(many.ends_with("20 and more"), "{many}");
    }

    #[test]
    fn words_count_and_parts_of_words_do_not() {
        let rows = [
            ("ui/component/button.md", "ui-component"),
            ("flux/a.md", "ui-component"),
            ("influxdb.md", "documentation"),
            ("explanation.md", "documentation"),
            ("docs/tasks/one.md", "task"),
            ("release-plan.md", "task"),
            ("architecture.md", "architecture"),
            ("ui.md", "documentation"),
            ("Mascot.md", "brand"),
        ];
        for (path, wanted) in rows {
            assert_eq!(category(path), wanted, "{path}");
        }
    }
}
