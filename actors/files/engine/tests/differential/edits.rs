//! Edits of generated files: replacements against `sed`, changed lines against `patch`.
//!
//! Where they differ by design: `sed` replaces nothing and succeeds where a text does not occur, or occurs
//! several times; the engine refuses, and the file stays as it was.

use std::{fmt::Write as _, fs};

use fastrand::Rng;
use hivekeep_file_engine::{
    EditFileText, EditOutcome, FileError, FileErrorKind, FileRoot, Occurrences, TextEdit,
};
use tempfile::TempDir;

use super::{
    CASES, CASES_VARIABLE, cases, given,
    programs::{fed, output},
    searches::ask,
};

const PARTS: [&str; 13] =
    ["a", "b", "ab", "\n", " ", "ä", "😀", "/", "&", "\\", "[a]", "*", "fn x() {}"];

fn text(rng: &mut Rng, most: usize) -> String {
    (0..rng.usize(..=most)).map(|_| PARTS[rng.usize(..PARTS.len())]).collect()
}

fn edit(root: &FileRoot, edits: Vec<TextEdit>) -> Result<EditOutcome, FileError> {
    ask(root, EditFileText { path: "f".to_owned(), edits, expected: None })
}

/// An edit in the words of `sed -z`, which takes a whole text as one line.
fn script(edit: &TextEdit) -> String {
    let mut script = String::from("s/");
    for letter in edit.old.chars() {
        match letter {
            '\n' => script.push_str("\\n"),
            '/' | '\\' | '[' | ']' | '*' | '.' | '^' | '$' => {
                script.push('\\');
                script.push(letter);
            }
            letter => script.push(letter),
        }
    }
    script.push('/');
    for letter in edit.new.chars() {
        match letter {
            '\n' => script.push_str("\\n"),
            '/' | '\\' | '&' => {
                script.push('\\');
                script.push(letter);
            }
            letter => script.push(letter),
        }
    }
    script.push('/');
    if edit.which == Occurrences::All {
        script.push('g');
    }
    script
}

#[test]
fn generated_edits_are_those_of_sed() {
    let folder = TempDir::new().expect("a folder");
    let root = FileRoot::folder(folder.path()).expect("opened");
    let (mut landed, mut refused) = (0, 0);
    cases(given(CASES_VARIABLE).unwrap_or(CASES), |rng| {
        let before = text(rng, 40);
        fs::write(folder.path().join("f"), &before).expect("written");
        let mut edits = Vec::new();
        for _ in 0..rng.usize(1..4) {
            let which = [Occurrences::Only, Occurrences::First, Occurrences::All][rng.usize(..3)];
            let old = PARTS[rng.usize(..PARTS.len())].to_owned() + &text(rng, 1);
            edits.push(TextEdit { which, old, new: text(rng, 3) });
        }
        let done = edit(&root, edits.clone());
        let after = fs::read_to_string(folder.path().join("f")).expect("there");
        match done {
            Ok(_) => {
                let scripts = edits.iter().flat_map(|edit| ["-e".to_owned(), script(edit)]);
                let words: Vec<_> = ["-z".to_owned()].into_iter().chain(scripts).collect();
                let theirs = fed(folder.path(), "sed", &words, before.as_bytes());
                assert_eq!(after.as_bytes(), theirs, "{before:?} {edits:?}");
                landed += 1;
                if !before.contains('\n') {
                    return;
                }
                // The same edits, whichever line ends they have, in the file with the other line ends.
                fs::write(folder.path().join("f"), before.replace('\n', "\r\n")).expect("written");
                edit(&root, edits.clone()).expect("edited as well");
                let with_cr = fs::read_to_string(folder.path().join("f")).expect("there");
                assert_eq!(with_cr, after.replace('\n', "\r\n"), "{before:?} {edits:?}");
                for edit in &mut edits {
                    edit.old = edit.old.replace('\n', "\r\n");
                    edit.new = edit.new.replace('\n', "\r\n");
                }
                fs::write(folder.path().join("f"), &before).expect("written");
                edit(&root, edits.clone()).expect("edited as well");
                let without = fs::read_to_string(folder.path().join("f")).expect("there");
                assert_eq!(without, after, "{before:?} {edits:?}");
            }
            Err(error) => {
                assert_eq!(after, before, "{edits:?}");
                let nth = error.edit.expect("its number") as usize - 1;
                let scripts = edits[..nth].iter().flat_map(|edit| ["-e".to_owned(), script(edit)]);
                let words = ["-z".to_owned(), "-e".to_owned(), String::new()].into_iter();
                let words: Vec<_> = words.chain(scripts).collect();
                let left = fed(folder.path(), "sed", &words, before.as_bytes());
                let left = String::from_utf8(left).expect("text");
                let times = left.matches(&edits[nth].old).count();
                match error.kind {
                    FileErrorKind::NoMatch => assert_eq!(times, 0, "{before:?} {edits:?}"),
                    FileErrorKind::ManyMatches => {
                        assert!(times > 1 && edits[nth].which == Occurrences::Only);
                        assert_eq!(error.occurrences, Some(times as u64));
                    }
                    _ => panic!("{error}: {before:?} {edits:?}"),
                }
                refused += 1;
            }
        }
    });
    assert!(landed > 0 && refused > 0, "{landed} landed, {refused} were refused");
}

/// Lines that are all different, with ends of both kinds; the last may have none.
fn lines(rng: &mut Rng, what: &str) -> Vec<String> {
    let end = if rng.bool() { "\r\n" } else { "\n" };
    let mut lines: Vec<_> = (0..rng.usize(1..12))
        .map(|nth| format!("{what} {nth} {}{end}", text(rng, 2).replace(['\r', '\n'], "~")))
        .collect();
    if rng.u8(..3) == 0
        && let Some(last) = lines.last_mut()
    {
        last.truncate(last.trim_end().len());
    }
    lines
}

/// A line of a diff; one without an end is said to have none.
fn told(diff: &mut String, sign: char, line: &str) {
    diff.push(sign);
    diff.push_str(line);
    if !line.ends_with('\n') {
        diff.push_str("\n\\ No newline at end of file\n");
    }
}

#[test]
fn generated_changes_of_lines_are_those_of_patch() {
    let folder = TempDir::new().expect("a folder");
    let root = FileRoot::folder(folder.path()).expect("opened");
    let (ours, theirs) = (folder.path().join("f"), folder.path().join("g"));
    cases(given(CASES_VARIABLE).unwrap_or(CASES), |rng| {
        let before = lines(rng, "line");
        for file in [&ours, &theirs] {
            fs::write(file, before.concat()).expect("written");
        }
        let (mut diff, mut edits) = (String::from("--- g\n+++ g\n"), Vec::new());
        let (mut at, mut grown) = (0, 0_i64);
        while at < before.len() {
            let old = &before[at..before.len().min(at + rng.usize(1..3))];
            let is_last = at + old.len() == before.len();
            if rng.bool() {
                // In place of a line without an end, lines have the file's.
                let is_open = !old.concat().contains('\n');
                let end = if is_open && before[0].ends_with("\r\n") { "\r\n" } else { "\n" };
                let mut new: Vec<_> =
                    (0..rng.usize(0..3)).map(|nth| format!("new {at} {nth}{end}")).collect();
                // What has no end may only be the last line of a file.
                if is_last
                    && rng.bool()
                    && let Some(last) = new.last_mut()
                {
                    last.truncate(last.trim_end().len());
                }
                let first = |first: i64, count: usize| if count == 0 { first - 1 } else { first };
                let (from, to) = (at as i64 + 1, at as i64 + 1 + grown);
                let (from, to) = (first(from, old.len()), first(to, new.len()));
                let _ = writeln!(diff, "@@ -{from},{} +{to},{} @@", old.len(), new.len());
                old.iter().for_each(|line| told(&mut diff, '-', line));
                new.iter().for_each(|line| told(&mut diff, '+', line));
                grown += new.len() as i64 - old.len() as i64;
                edits.push(TextEdit {
                    which: Occurrences::Only,
                    old: old.concat(),
                    new: new.concat(),
                });
            }
            at += old.len();
        }
        if edits.is_empty() {
            return;
        }
        edit(&root, edits.clone()).unwrap_or_else(|error| panic!("{error}: {before:?} {edits:?}"));
        fs::write(folder.path().join("diff"), &diff).expect("written");
        let words = ["--binary", "--silent", "--posix", "g", "diff"];
        output(folder.path(), "patch", &words);
        let read = |file| fs::read_to_string(file).expect("there");
        // A file that nothing is left of is removed by `patch`.
        let patched = if theirs.exists() { read(&theirs) } else { String::new() };
        assert_eq!(read(&ours), patched, "{before:?}\n{diff}");
    });
}
