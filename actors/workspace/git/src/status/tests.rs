use proptest::prelude::*;

use super::*;

const IDS: &str = "N... 100644 100644 100644 1111111 2222222";

#[test]
fn every_kind_of_record_is_read() {
    let text = format!(
        "# branch.oid 0123abcd\0# branch.head feature/x\0# branch.upstream origin/feature/x\0\
         # branch.ab +3 -12\0# stash 2\0\
         1 M. {IDS} staged file\01 .M {IDS} changed\01 MM {IDS} both\01 .D {IDS} gone\0\
         2 R. {IDS} R100 new name\0old\nname\02 .R {IDS} R090 to\0from\0\
         u UU N... 100644 100644 100644 100644 111 222 333 a conflict\0\
         ? -n\0? \"quoted\"\0! ignored\0"
    );
    let status = read(text.as_bytes(), false).expect("porcelain");
    assert_eq!(status.commit_sha.as_deref(), Some("0123abcd"));
    assert_eq!(status.branch.as_deref(), Some("feature/x"));
    assert_eq!(status.upstream.as_deref(), Some("origin/feature/x"));
    assert_eq!((status.ahead, status.behind, status.detached), (Some(3), Some(12), false));
    assert_eq!(status.staged, ["staged file", "both", "new name"]);
    assert_eq!(status.modified, ["changed", "both", "gone", "to"]);
    assert_eq!(status.conflicted, ["a conflict"]);
    assert_eq!(status.untracked, ["-n", "\"\\\"quoted\\\"\""]);
    let renamed: Vec<_> =
        status.renamed.iter().map(|it| (it.from.as_str(), it.to.as_str(), it.staged)).collect();
    assert_eq!(renamed, [("old\nname", "new name", true), ("from", "to", false)]);
    assert!(status.dirty && !status.truncated);
}

#[test]
fn a_clean_tree_a_new_one_and_a_bare_commit_are_told_apart() {
    let clean = read(b"# branch.oid 01\0# branch.head main\0", false).expect("porcelain");
    assert!(!clean.dirty && clean.ahead.is_none() && clean.upstream.is_none());
    let new = read(b"# branch.oid (initial)\0# branch.head main\0? f\0", false).expect("porcelain");
    assert_eq!((new.commit_sha, new.branch.as_deref()), (None, Some("main")));
    let detached = read(b"# branch.oid 01\0# branch.head (detached)\0", false).expect("porcelain");
    assert!(detached.detached && detached.branch.is_none());
    assert!(!read(b"! target\0", false).expect("porcelain").dirty);
}

#[test]
fn what_is_cut_is_read_as_far_as_it_is_whole() {
    let status = read(b"? one\0? tw", true).expect("porcelain");
    assert_eq!((status.untracked.len(), status.truncated), (1, true));
    let line = format!("? one\x002 R. {IDS} R100 to\0");
    assert_eq!(read(line.as_bytes(), true).expect("porcelain").untracked, ["one"]);
    assert!(read(line.as_bytes(), false).is_err());
    let many: String = (0..MAX_PATHS + 5).map(|n| format!("? f{n}\0")).collect();
    let status = read(many.as_bytes(), false).expect("porcelain");
    assert_eq!((status.untracked.len(), status.truncated, status.dirty), (MAX_PATHS, true, true));
}

#[test]
fn what_is_no_porcelain_is_refused() {
    for text in [
        "x\0",
        "On branch main\0",
        "1 M.\0",
        "1 M. a b\0",
        "? \0",
        "9 a\0",
        "# branch.ab 1 2\0",
        "M  file\0",
        "nothing",
    ] {
        assert!(read(text.as_bytes(), false).is_err(), "{text}");
    }
}

/// Reads back what [`spelled`] made.
fn read_back(text: &str) -> Vec<u8> {
    let Some(quoted) = text.strip_prefix('"') else { return text.as_bytes().to_vec() };
    let (mut bytes, mut rest) = (Vec::new(), quoted.strip_suffix('"').expect("closed").as_bytes());
    while let [first, tail @ ..] = rest {
        (bytes, rest) = match (first, tail) {
            (b'\\', [c @ (b'"' | b'\\'), tail @ ..]) => ([bytes, vec![*c]].concat(), tail),
            (b'\\', [a, b, c, tail @ ..]) => {
                let digits = String::from_utf8(vec![*a, *b, *c]).expect("digits");
                let byte = u8::from_str_radix(&digits, 8).expect("octal");
                ([bytes, vec![byte]].concat(), tail)
            }
            (byte, tail) => ([bytes, vec![*byte]].concat(), tail),
        };
    }
    bytes
}

proptest! {
    #[test]
    fn paths_of_any_bytes_come_through(
        paths in proptest::collection::vec(proptest::collection::vec(1u8..=255, 1..30), 0..8),
    ) {
        let mut text = Vec::new();
        for path in &paths {
            text.extend_from_slice(format!("1 M. {IDS} ").as_bytes());
            text.extend_from_slice(path);
            text.push(0);
        }
        let status = read(&text, false).expect("porcelain");
        let back: Vec<_> = status.staged.iter().map(|path| read_back(path)).collect();
        prop_assert_eq!(back, paths);
    }

    #[test]
    fn rubbish_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut: bool) {
        let _ = read(&bytes, cut);
    }
}
