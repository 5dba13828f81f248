//! Retrieval with real embedding models from the pages of this repository that questions are about: what is found of
//! 157 questions.
//!
//! `TEST_HIVEKEEP_STATIC_MODEL` and `TEST_HIVEKEEP_MINILM` name the models' folders; `cargo xtask test --only
//! embeddings` brings both. An encoder takes minutes for all documents in a development build: it is asked about the
//! guides, and with `TEST_HIVEKEEP_QUALITY=all`, as in a nightly run, about all.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{home::Home, wire::Wire};

/// Passages of an answer that the rank is looked for among.
const LOOKED_AT: usize = 10;
/// Passages that recall looks at.
const RECALLED: usize = 5;
/// What an encoder finds at least in the guides alone: two of their 26 questions less than it did, for a paragraph
/// that is added to a guide can move one.
const GUIDES: [(&str, [f64; 2]); 3] =
    [("vector", [0.65, 0.50]), ("bm25", [0.69, 0.52]), ("hybrid", [0.69, 0.51])];
/// Words in a row that a question may have of its document.
const MOST_COPIED: usize = 5;

/// How much of the answers a mode finds.
#[derive(Debug, Clone, Copy)]
struct Quality {
    recall: f64,
    reciprocal_rank: f64,
}

impl Quality {
    fn at_least(self, least: [f64; 2]) -> bool {
        self.recall >= least[0] && self.reciprocal_rank >= least[1]
    }
}

#[derive(Deserialize)]
struct Question {
    question: String,
    /// Document, from `docs/`.
    source: String,
    /// Text that the passage has.
    answer: String,
}

/// Text with single spaces.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Words of a text, small.
fn words(text: &str) -> Vec<String> {
    let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|it| !it.is_empty());
    words.map(str::to_lowercase).collect()
}

fn questions() -> Vec<Question> {
    serde_json::from_str(include_str!("../../quality/questions.json")).expect("a list")
}

fn docs() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")
}

#[test]
fn each_question_has_its_answer_in_its_document() {
    let all = questions();
    assert!(all.len() >= 150, "{}", all.len());
    for Question { question, source, answer } in &all {
        let text = std::fs::read_to_string(docs().join(source))
            .unwrap_or_else(|error| panic!("{source}: {error}"));
        assert!(plain(&text).contains(answer), "{source} does not say `{answer}`: {question}");
        let (words, text) = (words(question), format!(" {} ", words(&text).join(" ")));
        let copied = words.windows(MOST_COPIED + 1);
        let copied: Vec<_> = copied.filter(|run| text.contains(&run.join(" "))).collect();
        assert!(copied.is_empty(), "{question} has {copied:?} of {source}");
    }
}

#[test]
#[ignore = "needs a model: `cargo xtask test --only embeddings`"]
fn a_tiny_static_model_is_found_with() {
    // A model of 64 parts tells few pages apart.
    let least = [("vector", [0.17, 0.11]), ("bm25", [0.71, 0.54]), ("hybrid", [0.71, 0.54])];
    find_with("TEST_HIVEKEEP_STATIC_MODEL", ".", least);
}

#[test]
#[ignore = "needs a model: `cargo xtask test --only embeddings`"]
fn minilm_is_found_with() {
    let all = std::env::var_os("TEST_HIVEKEEP_QUALITY").is_some_and(|wanted| wanted == "all");
    let (part, least) = match all {
        true => (".", [("vector", [0.70, 0.49]), ("bm25", [0.71, 0.54]), ("hybrid", [0.70, 0.56])]),
        false => ("guides", GUIDES),
    };
    find_with("TEST_HIVEKEEP_MINILM", part, least);
}

/// Asks the questions about a part of the documents in the three modes. `least` has recall and mean reciprocal
/// rank of each.
#[allow(clippy::print_stdout)]
fn find_with(variable: &str, part: &str, least: [(&str, [f64; 2]); 3]) {
    let model = std::env::var_os(variable).expect("the step sets it");
    let home = Home::new().with("HIVEKEEP_REGISTRY__RATE__ENABLED", "false");
    // Pages without a question would move the ranks of all others.
    let pages = home.path("pages");
    for Question { source, .. } in questions() {
        let page = pages.join(&source);
        std::fs::create_dir_all(page.parent().expect("it is below")).expect("made");
        std::fs::copy(docs().join(&source), page).expect("copied");
    }
    let config = format!(
        "[session.places.docs]\nfolder = {:?}\nread_only = true\n[ingest.local]\nfolder = {:?}\n",
        pages,
        Path::new(&model)
    );
    std::fs::write(home.path("config.toml"), config).expect("writes");
    let _daemon = home.daemon();
    let made = ["ingest", part, "--place", "docs", "--collection", "docs"];
    println!("{}", home.ok(&made).trim());
    let mut wire = Wire::mcp(&home);
    let found = least.map(|(mode, _)| ask_all(&mut wire, mode, part));
    for ((mode, _), Quality { recall, reciprocal_rank }) in least.iter().zip(found) {
        println!("{variable} {mode}: recall@{RECALLED} {recall:.3}, MRR {reciprocal_rank:.3}");
    }
    for ((mode, least), quality) in least.into_iter().zip(found) {
        assert!(quality.at_least(least), "{mode}: {quality:?}");
    }
    let [_, words, both] = found;
    // Of the few about a part, one place of one answer moves the ranks.
    let rank = if part == "." { words.reciprocal_rank } else { 0.0 };
    // A paragraph that is new can move one question of all.
    let recall = words.recall - 1.01 / 157.0;
    assert!(both.at_least([recall, rank]), "{both:?} beside {words:?}");
}

fn ask_all(wire: &mut Wire, mode: &str, part: &str) -> Quality {
    // A source is told from the folder that was ingested.
    let below = |source: String| match part {
        "." => Some(source),
        part => Some(source.strip_prefix(part)?.trim_start_matches('/').to_owned()),
    };
    let asked = questions().into_iter();
    let all: Vec<_> =
        asked.filter_map(|it| Some(Question { source: below(it.source)?, ..it })).collect();
    let (mut recalled, mut reciprocal) = (0.0, 0.0);
    for (id, question) in (1..).zip(&all) {
        let asked = json!({
            "collection": "docs", "question": question.question, "topK": LOOKED_AT, "mode": mode,
        });
        let found = wire.call(id, "rag_query", asked);
        let rank = rank(&found, question);
        recalled += f64::from(rank.is_some_and(|rank| rank < RECALLED));
        reciprocal += rank.map_or(0.0, |rank| 1.0 / (rank + 1) as f64);
    }
    let all = all.len() as f64;
    Quality { recall: recalled / all, reciprocal_rank: reciprocal / all }
}

/// Place of the first passage of a document with the answer, or of the one before that the answer begins in.
fn rank(found: &Value, Question { source, answer, .. }: &Question) -> Option<usize> {
    let rows = found["result"]["structuredContent"]["results"].as_array();
    let words: Vec<_> = answer.split_whitespace().collect();
    let half = words[..words.len().div_ceil(2)].join(" ");
    rows.unwrap_or_else(|| panic!("{found}")).iter().position(|row| {
        let content = plain(row["content"].as_str().unwrap_or_default());
        row["source"] == *source && (content.contains(answer) || content.ends_with(&half))
    })
}
