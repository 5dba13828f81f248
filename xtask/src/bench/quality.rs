//! How many answers retrieval finds: 157 questions about this repository's documentation, each of which has its
//! answer in one passage, by vectors, by words and by both, with two models.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::figure::{Figure, Target};
use super::{client::StdioClient, house::BenchDaemon, kit::BenchPrograms};
use crate::test::outside;

/// Passages that a rank is looked for among, and those that recall looks at.
const LOOKED_AT: usize = 10;
const RECALLED: usize = 5;
const MODES: [&str; 3] = ["hybrid", "bm25", "vector"];

#[derive(Deserialize)]
struct Question {
    question: String,
    source: String,
    answer: String,
}

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if kit.wants("rag_quality") {
        figures.push(with_model(kit, "rag_quality", &outside::minilm(kit.repo)?)?);
    }
    if kit.wants("rag_quality_tiny") {
        figures.push(with_model(kit, "rag_quality_tiny", &outside::static_model(kit.repo)?)?);
    }
    Ok(figures)
}

#[expect(clippy::cast_precision_loss, reason = "some hundred questions")]
fn with_model(kit: &BenchPrograms<'_>, name: &'static str, model: &Path) -> Result<Figure> {
    let docs = kit.repo.root.join("docs");
    let house = BenchDaemon::open(
        kit,
        &format!(
            "[session.places.docs]\nfolder = {docs:?}\nread_only = true\n[ingest.local]\nfolder = {model:?}\n"
        ),
    )?;
    let mut client = house.attach()?;
    let made = client
        .call("rag_ingest", &json!({ "path": ".", "place": "docs", "collection": "docs" }))?;
    ensure!(made["success"] == true && made["failed_count"] == 0, "{made}");
    let text = fs::read_to_string(kit.repo.root.join("tests/quality/questions.json"))?;
    let questions: Vec<Question> = serde_json::from_str(&text)?;
    let (mut recalls, mut remark) = ([0.0; MODES.len()], String::new());
    for (mode, recall) in MODES.into_iter().zip(&mut recalls) {
        let ranks: Vec<_> =
            questions.iter().map(|it| rank(&mut client, mode, it)).collect::<Result<_>>()?;
        let all = ranks.len() as f64;
        let found = ranks.iter().filter(|rank| rank.is_some_and(|rank| rank < RECALLED)).count();
        let reciprocal: f64 = ranks.iter().flatten().map(|rank| 1.0 / (rank + 1) as f64).sum();
        *recall = found as f64 / all;
        let _ = write!(remark, "{mode} {recall:.3} (MRR {:.3}), ", reciprocal / all);
    }
    Ok(Figure {
        name,
        unit: "recall@5",
        value: recalls[0],
        baseline: Some(recalls[1]),
        target: Target::AtLeastTimes(1.0),
        remark: format!(
            "{remark}of {} questions to {} passages; the model is {}",
            questions.len(),
            made["chunks"],
            client.call("rag_collections", &json!({ "show_stats": true }))?["collections"][0]
                ["model"]
                .as_str()
                .context("a name")?
        ),
    })
}

/// Place of the first passage that has the answer, or that the answer begins in.
fn rank(client: &mut StdioClient, mode: &str, question: &Question) -> Result<Option<usize>> {
    let Question { question, source, answer } = question;
    let asked =
        json!({ "collection": "docs", "question": question, "topK": LOOKED_AT, "mode": mode });
    let found = client.call("rag_query", &asked)?;
    let words: Vec<_> = answer.split_whitespace().collect();
    let half = words[..words.len().div_ceil(2)].join(" ");
    let has = |row: &Value| {
        let text = row["content"].as_str().unwrap_or_default();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        row["source"] == *source && (text.contains(answer) || text.ends_with(&half))
    };
    Ok(found["results"].as_array().context("results")?.iter().position(has))
}
