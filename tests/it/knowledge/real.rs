//! Retrieval from this repository's documentation with a real embedding model: what is found of 157 questions.
//!
//! `TEST_HIVEKEEP_EMBED_MODEL` names the model's folder; `cargo xtask test --only embeddings` brings one.

use std::path::Path;

use serde::Deserialize;
use serde_json::json;

use crate::{home::Home, wire::Wire};

/// Passages of an answer that the rank is looked for among.
const LOOKED_AT: usize = 10;
/// Passages that recall looks at.
const RECALLED: usize = 5;
/// Least recall and least mean reciprocal rank of each mode, with the tiny static model.
const LEAST: [(&str, f64, f64); 3] =
    [("vector", 0.10, 0.06), ("bm25", 0.54, 0.36), ("hybrid", 0.33, 0.24)];

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
        assert!(
            !plain(&text).to_lowercase().contains(&question.to_lowercase()),
            "{question} is copied"
        );
    }
}

/// Quality of the three modes.
#[test]
#[allow(clippy::print_stdout)]
fn questions_find_their_passages() {
    let Some(model) = std::env::var_os("TEST_HIVEKEEP_EMBED_MODEL") else {
        println!("SKIPPED: TEST_HIVEKEEP_EMBED_MODEL names no model");
        return;
    };
    let home = Home::new().with("HIVEKEEP_REGISTRY__RATE__ENABLED", "false");
    let config = format!(
        "[session.places.docs]\nfolder = {:?}\nread_only = true\n[ingest.local]\nfolder = {:?}\n",
        docs(),
        Path::new(&model)
    );
    std::fs::write(home.path("config.toml"), config).expect("writes");
    let _daemon = home.daemon();
    println!("{}", home.ok(&["ingest", docs().to_str().expect("UTF-8")]).trim());
    let mut wire = Wire::mcp(&home);
    let all = questions();
    let (mut id, mut worse) = (0, Vec::new());
    for (mode, least_recall, least_rank) in LEAST {
        let (mut recalled, mut reciprocal) = (0.0, 0.0);
        for Question { question, source, answer } in &all {
            id += 1;
            let asked = json!({ "collection": "docs", "question": question, "topK": LOOKED_AT, "mode": mode });
            let found = wire.call(id, "rag_query", asked);
            let rows = found["result"]["structuredContent"]["results"]
                .as_array()
                .unwrap_or_else(|| panic!("{found}"))
                .clone();
            // A passage of a document with the answer, or the one before that the answer begins in.
            let words: Vec<_> = answer.split_whitespace().collect();
            let half = words[..words.len().div_ceil(2)].join(" ");
            let rank = rows.iter().position(|row| {
                let content = plain(row["content"].as_str().unwrap_or_default());
                row["source"] == *source && (content.contains(answer) || content.ends_with(&half))
            });
            recalled += f64::from(rank.is_some_and(|rank| rank < RECALLED));
            reciprocal += rank.map_or(0.0, |rank| 1.0 / (rank + 1) as f64);
        }
        let (recall, rank) = (recalled / all.len() as f64, reciprocal / all.len() as f64);
        println!("{mode}: recall@{RECALLED} {recall:.3}, MRR {rank:.3} of {} questions", all.len());
        if recall < least_recall || rank < least_rank {
            worse.push(format!("{mode}: {recall:.3} and {rank:.3}"));
        }
    }
    assert!(worse.is_empty(), "{worse:?}");
}
