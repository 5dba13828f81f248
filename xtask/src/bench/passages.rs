//! Corpus of short sections, made of the sentences of this repository's documentation, and questions to it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::repo::Repo;

/// A section is smaller than a passage may be.
const MOST_BYTES: usize = 400;
const QUESTIONS: usize = 50;

/// Writes files below `corpus/`, each with so many sections that each are one passage; their size in bytes.
pub(super) fn make(repo: &Repo, folder: &Path, (files, sections): (usize, usize)) -> Result<usize> {
    let sentences = sentences(&repo.root.join("docs"))?;
    let (mut dice, mut bytes) = (Dice(1), 0);
    for file in 0..files {
        let path = folder.join(format!("corpus/part-{:02}/text-{file}.md", file % 50));
        fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        let mut text = String::new();
        for section in 0..sections {
            let _ = write!(text, "# Part {file}.{section}\n\n");
            let begin = text.len();
            while text.len() - begin < MOST_BYTES / 2 {
                text.push_str(&sentences[dice.below(sentences.len())]);
                text.push(' ');
            }
            text.push_str("\n\n");
        }
        bytes += text.len();
        fs::write(path, text)?;
    }
    Ok(bytes)
}

/// Questions of ordinary words.
pub(super) fn questions(repo: &Repo) -> Result<Vec<String>> {
    let text = fs::read_to_string(repo.root.join("tests/quality/questions.json"))?;
    let all: Vec<Value> = serde_json::from_str(&text)?;
    let questions = all.iter().filter_map(|it| it["question"].as_str()).take(QUESTIONS);
    Ok(questions.map(str::to_owned).collect())
}

/// Plain sentences of Markdown files.
fn sentences(folder: &Path) -> Result<Vec<String>> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                let text = fs::read_to_string(&path)?;
                let paragraphs = text.split("\n\n").map(|it| it.replace('\n', " "));
                let plain = |it: &String| it.starts_with(char::is_alphabetic);
                for paragraph in paragraphs.filter(plain) {
                    let ends = paragraph.split_inclusive(". ").map(str::trim);
                    found.extend(
                        ends.filter(|it| (40..=MOST_BYTES / 2).contains(&it.len()))
                            .map(str::to_owned),
                    );
                }
            }
        }
    }
    ensure!(found.len() > 500, "only {} sentences are in {}", found.len(), folder.display());
    Ok(found)
}

/// Numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % most
    }
}
