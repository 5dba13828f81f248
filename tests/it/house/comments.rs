//! A comment names its subject: a stranger needs no line before it.

use super::sources::{Source, sources};

/// Words that begin a comment which is spoken of something else.
const WITHOUT_SUBJECT: [&str; 7] = ["What", "Who", "It", "Of", "As", "One", "That"];

/// Text of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim_start())
}

/// Lines of `source` that begin a comment without a subject.
fn without_subject(source: &Source) -> Vec<usize> {
    let lines = source.text.lines().enumerate();
    let starts = lines.scan(false, |within, (number, line)| {
        let text = comment(line);
        let begins = text.filter(|_| !*within);
        *within = text.is_some();
        Some((number + 1, begins))
    });
    let word = |text: &str| WITHOUT_SUBJECT.contains(&text.split(' ').next().unwrap_or_default());
    starts.filter(|(_, text)| text.is_some_and(word)).map(|(number, _)| number).collect()
}

#[test]
fn comments_name_their_subject() {
    let production = |source: &Source| {
        let path = &source.path;
        (path.starts_with("actors/") || path.starts_with("src/"))
            && !path.contains("/tests")
            && !path.ends_with("tests.rs")
    };
    let mut found = Vec::new();
    for source in sources(&[".rs"]).into_iter().filter(production) {
        found.extend(without_subject(&source).iter().map(|line| format!("{}:{line}", source.path)));
    }
    assert!(found.is_empty(), "name what is spoken of: {found:#?}");
}

#[test]
fn a_comment_without_a_subject_is_seen() {
    let text = "//! What it is.\n\n/// One more.\n/// It goes on.\nfn a() {}\n/// Limit of what is\n// Of it.\n";
    let source = Source { path: "a.rs".to_owned(), text: text.to_owned() };
    assert_eq!(without_subject(&source), [1, 3]);
}
