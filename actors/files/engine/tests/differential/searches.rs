//! Searches of generated trees.
//!
//! Where they differ by design: of a binary file the engine tells the lines before the first NUL as they are
//! and counts the file, while `rg` warns and may tell fewer, so binary files are compared by neither. The
//! engine cuts long lines. `find` knows no braces, so patterns have none, and a name by which it is to
//! search has no `/`.

use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
};

use fastrand::Rng;
use hivekeep_file_engine::{
    FileError, FileRoot, FoundLines, FoundPaths, GlobFiles, GrepFiles, Operation, run,
};

use super::{
    CASES, CASES_VARIABLE, cases, given,
    programs::{Hit, begin, hits, output, paths},
    trees::{binaries, make},
};

/// Searches of one tree.
const ON_A_TREE: u64 = 10;

/// What makes `rg` obey nothing but the `.gitignore` files of the tree.
pub(super) const OWN_RULES: [&str; 7] = [
    "--hidden",
    "--no-require-git",
    "--no-ignore-parent",
    "--no-ignore-global",
    "--no-ignore-exclude",
    "--no-ignore-dot",
    "--glob=!.git",
];

pub(super) fn ask<O: Operation>(root: &FileRoot, operation: O) -> Result<O::Outcome, FileError> {
    let outcome = run(root, &operation.into(), &|| false)?;
    Ok(O::outcome_of(outcome).expect("of its kind"))
}

fn case_count() -> u64 {
    given(CASES_VARIABLE).unwrap_or(CASES)
}

pub(super) fn grep(root: &FileRoot, pattern: &str, gitignore: bool) -> FoundLines {
    let (path, pattern) = (".".to_owned(), pattern.to_owned());
    let grep = GrepFiles { path, pattern, ignore_case: false, glob: None, gitignore, limit: 5_000 };
    ask(root, grep).expect("searched")
}

pub(super) fn glob(root: &FileRoot, pattern: &str, gitignore: bool) -> FoundPaths {
    let (path, pattern) = (".".to_owned(), pattern.to_owned());
    ask(root, GlobFiles { path, pattern, gitignore, limit: 200_000 }).expect("searched")
}

/// Lines of the engine, as those of `rg`. Names may have colons and ends of lines: where one ends, `rg`
/// tells.
fn ours(found: &FoundLines, theirs: &[Hit]) -> Vec<Hit> {
    let known: HashMap<_, _> = theirs
        .iter()
        .map(|(path, number, _)| (format!("{path}:{number}:"), (path, number)))
        .collect();
    let split = |shown: &String| {
        let mut ends = shown.match_indices(':').map(|(at, _)| at + 1);
        let at = ends.find(|end| known.contains_key(&shown[..*end]));
        let at = at.unwrap_or_else(|| panic!("rg does not find {shown:?}"));
        let (path, number) = known[&shown[..at]];
        (path.clone(), *number, begin(shown[at..].trim_end_matches(" […]").as_bytes()))
    };
    let mut hits: Vec<_> = found.shown.iter().map(split).collect();
    hits.sort();
    hits
}

/// Compares one search; the number of lines that were found.
pub(super) fn compare_grep(folder: &Path, pattern: &str, gitignore: bool) -> usize {
    let root = FileRoot::folder(folder).expect("opened");
    let found = grep(&root, pattern, gitignore);
    let mut words = vec!["--no-config", "--json", "--no-mmap", "--no-messages"];
    if gitignore {
        words.extend(OWN_RULES);
    } else {
        words.extend(["--no-ignore", "--hidden"]);
    }
    words.extend(["--regexp", pattern, "./"]);
    let mut theirs = hits(&output(folder, "rg", &words));
    if found.total > found.shown.len() as u64 {
        // Beyond the limit: only the count can be compared, and binary files are in it.
        return 0;
    }
    let mut binary = BTreeSet::new();
    binaries(folder, Path::new(""), &mut binary);
    theirs.retain(|(path, ..)| !binary.contains(path));
    let mut lines = found;
    let is_of = |shown: &str, path: &String| {
        shown.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with(':'))
    };
    lines.shown.retain(|shown| !binary.iter().any(|path| is_of(shown, path)));
    let ours = ours(&lines, &theirs);
    let (mut missing, mut more) = (theirs.clone(), ours.clone());
    missing.retain(|hit| !ours.contains(hit));
    more.retain(|hit| !theirs.contains(hit));
    assert!(
        missing.is_empty() && more.is_empty() && ours.len() == theirs.len(),
        "{pattern} gitignore {gitignore}: missing {missing:?}, more {more:?}"
    );
    theirs.len()
}

#[test]
fn generated_trees_are_searched_as_ripgrep_does() {
    let patterns =
        ["hit", "^hit", "hit$", r"\bfn \(\)", "[Hh]it|42", "ä|€", r"(?i)HIT\s", ".", r"x\d+", "^$"];
    let mut found = 0;
    cases(case_count() / ON_A_TREE, |rng| {
        let gitignore = rng.bool();
        let tree = make(rng, gitignore);
        for _ in 0..ON_A_TREE {
            found += compare_grep(tree.path(), patterns[rng.usize(..patterns.len())], gitignore);
        }
    });
    assert!(found > 0, "nothing was ever found");
}

/// A pattern for `glob`, and the same as a regular expression for `find`.
fn pattern(rng: &mut Rng) -> (String, String) {
    let literal = ["a", "b", "ab", ".rs", ".txt", "A", " ", "-"];
    let (mut glob, mut regex) = (String::new(), String::from(r"\./"));
    let folders = rng.usize(0..3);
    for nth in 0..=folders {
        let last = nth == folders;
        if !last && rng.bool() {
            glob.push_str("**/");
            regex.push_str("(.*/)?");
            continue;
        }
        if last && folders > 0 && rng.u8(..5) == 0 {
            glob.push_str("**");
            regex.push_str(".+");
            break;
        }
        for _ in 0..rng.usize(1..4) {
            match rng.u8(..7) {
                0 | 1 if !glob.ends_with('*') => {
                    glob.push('*');
                    regex.push_str("[^/]*");
                }
                2 => {
                    glob.push('?');
                    regex.push_str("[^/]");
                }
                3 => {
                    glob.push_str("[a-c]");
                    regex.push_str("[a-c]");
                }
                4 => {
                    glob.push_str("[!a]");
                    regex.push_str("[^a/]");
                }
                _ => {
                    let part = literal[rng.usize(..literal.len())];
                    glob.push_str(part);
                    regex.push_str(&part.replace('.', r"\."));
                }
            }
        }
        if !last {
            glob.push('/');
            regex.push('/');
        }
    }
    if !glob.contains('/') {
        regex.insert_str(3, "(.*/)?");
    }
    (glob, regex)
}

#[test]
fn generated_trees_are_listed_as_find_does() {
    let mut found = 0;
    cases(case_count() / ON_A_TREE, |rng| {
        let tree = make(rng, false);
        let root = FileRoot::folder(tree.path()).expect("opened");
        for _ in 0..ON_A_TREE {
            let (pattern, regex) = pattern(rng);
            let words =
                ["-regextype", "posix-extended", "!", "-type", "d", "-regex", &regex, "-print0"];
            let words = [&["."][..], &words[..]].concat();
            let theirs = paths(&output(tree.path(), "find", &words));
            assert_eq!(glob(&root, &pattern, false).paths, theirs, "{pattern:?} {regex:?}");
            found += theirs.len();
        }
    });
    assert!(found > 0, "nothing was ever found");
}

#[test]
fn generated_rules_leave_out_what_ripgrep_leaves_out() {
    cases(case_count() / ON_A_TREE, |rng| {
        let tree = make(rng, true);
        let root = FileRoot::folder(tree.path()).expect("opened");
        let words = [&["--no-config", "--files", "--null", "./"][..], &OWN_RULES[..]].concat();
        let theirs = paths(&output(tree.path(), "rg", &words));
        let rules = output(tree.path(), "grep", &["-r", "", "--include=.gitignore", "."]);
        let rules = String::from_utf8_lossy(&rules);
        assert_eq!(glob(&root, "**", true).paths, theirs, "{rules}");
    });
}
