//! Terms of a text, and its BM25 weights as a sparse vector: the share of the formula that a document brings.
//! What the collection brings, how rare a term is, its store multiplies when it searches.

use std::{collections::BTreeMap, sync::LazyLock};

use bm25::{Embedder, EmbedderBuilder, Tokenizer};
use rust_stemmers::{Algorithm, Stemmer};

use crate::point::SparseVector;

/// Terms of a passage of ordinary size. Fixed, so that no weight changes while a collection grows.
const ORDINARY_TERMS: f32 = 70.0;
/// Longest word that is a term; longer ones are data.
const MAX_TERM_CHARS: usize = 64;
/// Words that tell nothing of a text.
const STOP_WORDS: [&str; 69] = [
    "a", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "can", "could", "do",
    "does", "for", "from", "happen", "happens", "has", "have", "how", "i", "if", "in", "into",
    "is", "it", "its", "may", "me", "might", "must", "my", "no", "not", "of", "on", "or", "should",
    "so", "some", "than", "that", "the", "their", "them", "then", "there", "these", "they", "this",
    "to", "too", "very", "was", "were", "what", "when", "where", "which", "who", "why", "will",
    "with", "would", "yes", "you", "your",
];

/// Splits text into stemmed words; names in code are split into theirs, and kept whole too.
#[derive(Default)]
struct Words;

static EMBEDDER: LazyLock<Embedder<u32, Words>> =
    LazyLock::new(|| EmbedderBuilder::with_avgdl(ORDINARY_TERMS).build());

impl Tokenizer for Words {
    fn tokenize(&self, text: &str) -> Vec<String> {
        let stemmer = Stemmer::create(Algorithm::English);
        let mut terms = Vec::new();
        for name in text.split(|c: char| !c.is_alphanumeric() && c != '_') {
            let parts = parts(name);
            let whole = (parts.len() > 1).then(|| name.to_lowercase());
            for word in parts.into_iter().chain(whole) {
                let stop = word.is_empty() || STOP_WORDS.contains(&word.as_str());
                if !stop && word.chars().count() <= MAX_TERM_CHARS {
                    terms.push(stemmer.stem(&word).into_owned());
                }
            }
        }
        terms
    }
}

/// Words of a name: `max_file_kb` has three, and so has `MaxFileKb`.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut before = '_';
    for letter in name.chars() {
        let begins = letter == '_' || (letter.is_uppercase() && before.is_lowercase());
        if begins && parts.last().is_some_and(|part| !part.is_empty()) {
            parts.push(String::new());
        }
        if let (true, Some(part)) = (letter != '_', parts.last_mut()) {
            part.extend(letter.to_lowercase());
        }
        before = letter;
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Weights of a passage.
pub(crate) fn weights(text: &str) -> SparseVector {
    let weighed: BTreeMap<u32, f32> =
        EMBEDDER.embed(text).0.into_iter().map(|term| (term.index, term.value)).collect();
    let (indices, values) = weighed.into_iter().unzip();
    SparseVector { indices, values }
}

/// Terms of a question, each once.
pub(crate) fn wanted(question: &str) -> SparseVector {
    let SparseVector { indices, values } = weights(question);
    SparseVector { values: vec![1.0; values.len()], indices }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_names_are_found_and_stems_meet() {
        let terms = |text: &str| Words.tokenize(text);
        assert_eq!(terms("max_file_kb"), ["max", "file", "kb", "max_file_kb"]);
        assert_eq!(terms("SagaHandle")[..2], ["saga", "handl"]);
        assert_eq!(terms("running the workspaces"), terms("run a workspace"));
        assert!(terms(&"x".repeat(65)).is_empty() && terms("__ the , of").is_empty());
    }

    #[test]
    fn a_term_weighs_more_when_it_is_there_more_often() {
        let weight = |text: &str, term: &str| {
            let index = wanted(term).indices[0];
            let weights = weights(text);
            weights.indices.iter().position(|at| *at == index).map(|at| weights.values[at])
        };
        assert!(weight("disk disk room", "disk") > weight("disk full room", "disk"));
        assert!(weight("disk", "disk") > weight(&format!("disk {}", "room ".repeat(200)), "disk"));
        assert_eq!(weight("room", "disk"), None);
        let weights = weights("disk room disk");
        assert!(weights.indices.is_sorted() && weights.indices.len() == 2);
    }
}
