//! Full-text index of short documents, ranked by Okapi BM25.
//!
//! A field that says more of what its document is about is in it several times, which is how BM25 without
//! fields weighs them. Words are cut at everything but letters and digits, so that the parts of a name are
//! words, and stemmed.

use std::collections::BTreeSet;

use bm25::{Document, SearchEngine, SearchEngineBuilder, SearchResult, Tokenizer};
use rust_stemmers::{Algorithm, Stemmer};

/// Words of questions, which say nothing of what is looked for.
const STOP: [&str; 30] = [
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "how",
    "i", "in", "is", "it", "me", "my", "of", "on", "or", "that", "the", "this", "to", "what",
    "which", "with",
];

/// Tokenizer that cuts texts into stems.
struct StemTokenizer(Stemmer);

impl Tokenizer for StemTokenizer {
    fn tokenize(&self, text: &str) -> Vec<String> {
        let lower = text.to_lowercase();
        let words = lower.split(|c: char| !c.is_alphanumeric());
        words
            .filter(|word| !word.is_empty() && !STOP.contains(word))
            .map(|word| self.0.stem(word).into_owned())
            .collect()
    }
}

fn tokenizer() -> StemTokenizer {
    StemTokenizer(Stemmer::create(Algorithm::English))
}

/// Index of documents, each known by its place among them.
pub struct WordIndex(SearchEngine<usize, u32, StemTokenizer>);

impl WordIndex {
    /// Indexes documents.
    pub fn new(documents: Vec<String>) -> Self {
        let documents = documents.into_iter().enumerate();
        let documents = documents.map(|(at, contents)| Document::new(at, contents));
        Self(SearchEngineBuilder::with_tokenizer_and_documents(tokenizer(), documents).build())
    }

    /// Documents that have a word of a query, with their BM25 scores, the best first.
    pub fn search(&self, query: &str) -> Vec<(usize, f32)> {
        self.found(query).into_iter().map(|one| (one.document.id, one.score)).collect()
    }

    /// Documents that have a word of a query, the best first, with scores from 0 to 1: the best has the
    /// share of the query's words that are in it, the others as much less as BM25 has them below it.
    pub fn relevance(&self, query: &str) -> Vec<(usize, f32)> {
        let found = self.found(query);
        let Some(best) = found.first() else { return Vec::new() };
        let words = |text: &str| BTreeSet::from_iter(tokenizer().tokenize(text));
        let (wanted, there) = (words(query), words(&best.document.contents));
        let share = wanted.intersection(&there).count() as f32 / wanted.len() as f32;
        let scale = share / best.score.max(f32::MIN_POSITIVE);
        found.iter().map(|one| (one.document.id, one.score * scale)).collect()
    }

    fn found(&self, query: &str) -> Vec<SearchResult<usize>> {
        let mut found = self.0.search(query, None);
        found.sort_by(|one, other| {
            let by_score = other.score.total_cmp(&one.score);
            by_score.then(one.document.id.cmp(&other.document.id))
        });
        found
    }
}

/// Document of fields, each with how often it is in it.
pub fn document<'t>(fields: impl IntoIterator<Item = (&'t str, usize)>) -> String {
    fields.into_iter().map(|(text, times)| format!("{text}\n").repeat(times)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relevance_is_the_share_of_the_query_that_the_best_has() {
        let documents = ["reviews changes in Rust", "reviews texts", "resizes images"];
        let index = WordIndex::new(documents.map(str::to_owned).to_vec());
        let found = index.relevance("review the changes");
        assert_eq!(found[0], (0, 1.0));
        assert!(found.len() == 2 && found[1].0 == 1 && found[1].1 < 0.7, "{found:?}");
        assert_eq!(index.relevance("review zebras")[0].1, 0.5);
        assert!(index.relevance("zebra").is_empty() && index.relevance("of the").is_empty());
        assert_eq!(index.search("image").len(), 1);
        assert!(WordIndex::new(Vec::new()).relevance("image").is_empty());
    }
}
