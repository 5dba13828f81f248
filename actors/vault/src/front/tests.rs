use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const NOTE: &str = "\
---
# About this note
title: \"Old: title\" # shown in lists
aliases: [one, 'two']   # flow
tags: # what it is about
  - alpha
  # between
  - beta # second
empty:
text: |
  first

  second
# before nested
nested:
    deep: {a: 1}
    other:
count: 3
---
# Body

`title: not this one`
";

fn read_ok(text: &str) -> Map<String, Value> {
    read(text).unwrap()
}

#[test]
fn all_of_it_is_read() {
    let front = read_ok(NOTE);
    assert_eq!(
        Value::Object(front),
        json!({
            "title": "Old: title", "aliases": ["one", "two"], "tags": ["alpha", "beta"],
            "empty": null, "text": "first\n\nsecond\n",
            "nested": {"deep": {"a": 1}, "other": null}, "count": 3,
        })
    );
    assert_eq!(body(NOTE).1, "# Body\n\n`title: not this one`\n");
}

/// Compares two texts and returns the lines that differ.
fn changed(text: &str, new: &str) -> (Vec<String>, Vec<String>) {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (old, new) = (lines(text), lines(new));
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let most = old.len().min(new.len()) - head;
    let tail =
        old.iter().rev().zip(new.iter().rev()).take(most).take_while(|(a, b)| a == b).count();
    (old[head..old.len() - tail].to_vec(), new[head..new.len() - tail].to_vec())
}

#[track_caller]
fn sets(key: &str, value: Value, old: &[&str], new: &[&str]) {
    let set = set(NOTE, key, &value).unwrap();
    let (was, is) = changed(NOTE, &set);
    assert_eq!(
        (
            was.iter().map(String::as_str).collect::<Vec<_>>().as_slice(),
            is.iter().map(String::as_str).collect::<Vec<_>>().as_slice()
        ),
        (old, new),
        "{set}"
    );
    assert_eq!(read_ok(&set)[key], value);
}

#[test]
fn a_value_is_changed_where_it_stands() {
    let title = "title: \"Old: title\" # shown in lists";
    sets("title", json!("New"), &[title], &["title: New # shown in lists"]);
    sets("title", json!(["a", 2]), &[title], &["title: # shown in lists", "  - a", "  - 2"]);
    sets("aliases", json!(null), &["aliases: [one, 'two']   # flow"], &["aliases:   # flow"]);
    sets("empty", json!("x: y"), &["empty:"], &["empty: \"x: y\""]);
    sets("text", json!(true), &["text: |", "  first", "", "  second"], &["text: true"]);
    sets("count", json!("3"), &["count: 3"], &["count: \"3\""]);
    sets("new", json!({"a": [1, "b"]}), &[], &["new:", "  a: [1, b]"]);
    sets(
        "tags",
        json!("one"),
        &["tags: # what it is about", "  - alpha", "  # between", "  - beta # second"],
        &["tags: one # what it is about"],
    );
    sets("nested", json!(1), &["nested:", "    deep: {a: 1}", "    other:"], &["nested: 1"]);
}

#[test]
fn a_key_is_removed_with_its_value_and_nothing_else() {
    let without = |key: &str| changed(NOTE, &delete(NOTE, key).unwrap().unwrap());
    let gone = |key: &str, lines: &[&str]| {
        let (was, is) = without(key);
        assert_eq!(was, lines, "{key}");
        assert!(is.is_empty(), "{key}: {is:?}");
    };
    gone("title", &["title: \"Old: title\" # shown in lists"]);
    gone("text", &["text: |", "  first", "", "  second"]);
    gone("nested", &["nested:", "    deep: {a: 1}", "    other:"]);
    gone("empty", &["empty:"]);
    gone("count", &["count: 3"]);
    assert_eq!(delete(NOTE, "nobody"), Ok(None));
    assert_eq!(delete("---\na: 1\n---\nbody", "a").unwrap().unwrap(), "body");
    assert_eq!(delete("---\n# kept\na: 1\n---\n", "a").unwrap().unwrap(), "---\n# kept\n---\n");
}

#[test]
fn a_note_without_front_matter_gets_some_and_loses_it_again() {
    for body in ["", "text", "# Title\n", "\n\n---\nrule", "\u{feff}with a mark\n", "a\r\nb\r\n"] {
        let with = set(body, "a", &json!("b")).unwrap();
        assert_eq!(read_ok(&with)["a"], "b", "{with:?}");
        assert_eq!(delete(&with, "a").unwrap().unwrap(), body);
    }
    assert_eq!(set("a\r\n", "k", &json!([1])).unwrap(), "---\r\nk:\r\n  - 1\r\n---\r\na\r\n");
}

#[test]
fn line_ends_stay_as_they_are() {
    let text = "---\r\na: 1\r\nb: 2\r\n---\r\nbody\r\n";
    let new = set(text, "a", &json!(["x"])).unwrap();
    assert_eq!(new, "---\r\na:\r\n  - x\r\nb: 2\r\n---\r\nbody\r\n");
    assert_eq!(set(text, "c", &json!(3)).unwrap(), text.replace("2\r\n", "2\r\nc: 3\r\n"));
}

#[test]
fn what_is_malformed_is_refused_with_its_place() {
    let at = |text: &str| {
        let wrong = read(text).unwrap_err();
        for refused in [
            set(text, "k", &json!(1)).err(),
            delete(text, "k").err(),
            add_tag(text, "t").err(),
            remove_tag(text, "t").err(),
        ] {
            assert_eq!(refused.as_ref(), Some(&wrong), "{text}");
        }
        (wrong.line, wrong.column)
    };
    assert_eq!(at("---\na: 1\nno end"), (1, 1));
    assert_eq!(at("---\na: [1, 2\n---\n").0, 3);
    assert_eq!(at("---\na: 1\na: 2\n---\n"), (3, 1));
    assert_eq!(at("---\n- a\n---\n"), (2, 1));
    assert_eq!(at("---\njust words\n---\n"), (2, 1));
    assert_eq!(at("---\nok: 1\n@bad: 2\n---\n").0, 3);
    assert_eq!(at("---\na: *nowhere\n---\n").0, 2);
    let bomb: String = (1..30)
        .map(|n| format!("k{n}: &a{n} [{}]\n", format!("*a{}, ", n - 1).repeat(9)))
        .collect();
    assert!(read(&format!("---\nk0: &a0 x\n{bomb}---\n")).unwrap_err().why.contains("too many"));
    let deep = format!("---\na: {}{}\n---\n", "[".repeat(99), "]".repeat(99));
    assert!(read(&deep).unwrap_err().why.contains("deep"));
}

#[test]
fn aliases_repeat_so_much_text_and_no_more() {
    let long = "x".repeat(100 * 1024);
    let aliases = |count: usize| format!("---\na: &x {long}\nb: [{}]\n---\n", "*x,".repeat(count));
    assert_eq!(read_ok(&aliases(9))["b"][8], long);
    assert!(read(&aliases(10)).unwrap_err().why.contains("repeat too much"));
    // Keys of a mapping are text, too, and an anchor around an anchor is stored as well.
    let keys = format!("---\na: &x {{{long}: 1}}\nb: [{}]\n---\n", "*x,".repeat(10));
    assert!(read(&keys).unwrap_err().why.contains("repeat too much"));
    let around: String = (0..11).map(|n| format!("&a{n} [")).collect();
    let around = format!("---\na: {around}{long}{}\n---\n", "]".repeat(11));
    assert!(read(&around).unwrap_err().why.contains("repeat too much"));
}

#[test]
fn aliases_in_each_other_are_as_deep_as_what_is_written_out() {
    let deeper =
        |n: usize| format!("k{n}: &a{n} {}*a{}{}\n", "[".repeat(20), n - 1, "]".repeat(20));
    let chain =
        |links| format!("---\nk0: &a0 x\n{}---\n", (1..=links).map(deeper).collect::<String>());
    assert!(read(&chain(3)).is_ok());
    assert!(read(&chain(4)).unwrap_err().why.contains("deep"));
}

#[test]
fn what_cannot_be_changed_alone_is_refused_and_nothing_is_lost() {
    let anchored = "---\na: &x [1, 2]\nb: *x\n---\n";
    assert!(set(anchored, "a", &json!(1)).is_err());
    assert_eq!(set(anchored, "b", &json!(1)).unwrap(), "---\na: &x [1, 2]\nb: 1\n---\n");
    assert!(delete(anchored, "a").is_err());
    assert!(set("---\n{a: 1}\n---\n", "a", &json!(2)).is_err());
    assert!(delete("---\na: 1\n---\n---\nb: 1\n---\n", "a").is_err());
}

#[test]
fn a_tag_is_added_in_the_way_of_the_list() {
    let add = |text: &str| add_tag(text, "new").unwrap().unwrap();
    let (was, is) = changed(NOTE, &add(NOTE));
    assert_eq!((was.len(), is), (0, vec!["  - new".to_owned()]));
    assert_eq!(add("---\ntags: [a, b,] # c\n---\n"), "---\ntags: [a, b, new,] # c\n---\n");
    assert_eq!(add("---\ntags: []\n---\n"), "---\ntags:\n  - new\n---\n");
    assert_eq!(add("---\ntags:\n- a\nb: 1\n---\n"), "---\ntags:\n- a\n- new\nb: 1\n---\n");
    assert_eq!(
        add("---\ntags: one, two # c\n---\n"),
        "---\ntags: # c\n  - one\n  - two\n  - new\n---\n"
    );
    assert_eq!(add("---\ntags:\n---\n"), "---\ntags:\n  - new\n---\n");
    assert_eq!(add("---\na: 1\n---\n"), "---\na: 1\ntags:\n  - new\n---\n");
    assert_eq!(add("body"), "---\ntags:\n  - new\n---\nbody");
    assert_eq!(add_tag("---\ntags: New\n---\n", "new"), Ok(None));
    assert_eq!(add_tag(NOTE, "alpha"), Ok(None));
}

#[test]
fn a_tag_is_removed_where_it_stands() {
    let remove = |text: &str, tag| remove_tag(text, tag).unwrap().unwrap();
    let (was, is) = changed(NOTE, &remove(NOTE, "Beta"));
    assert_eq!((was, is.len()), (vec!["  - beta # second".to_owned()], 0));
    assert_eq!(remove("---\ntags: [a, b, c]\n---\n", "a"), "---\ntags: [b, c]\n---\n");
    assert_eq!(remove("---\ntags: [a, b, c]\n---\n", "b"), "---\ntags: [a, c]\n---\n");
    assert_eq!(remove("---\ntags: [a, b, c] # d\n---\n", "c"), "---\ntags: [a, b] # d\n---\n");
    assert_eq!(remove("---\ntags: '#a'\n---\n", "a"), "---\ntags: []\n---\n");
    assert_eq!(remove("---\ntags: # c\n  - a\n---\n", "a"), "---\ntags: [] # c\n---\n");
    assert_eq!(remove_tag(NOTE, "gamma"), Ok(None));
    // Every occurrence is removed; text after the block is not part of it, whatever its characters.
    let often = "---\ntags:\n- b\n- a\n- A # 1\n- c\n- '#a'\n---\n";
    for body in ["", "ä", "äääääääää", "a body"] {
        let text = format!("{often}{body}");
        assert_eq!(remove(&text, "a"), format!("---\ntags:\n- b\n- c\n---\n{body}"));
    }
    assert_eq!(remove("---\ntags: [a, A, b, a, c, a]\n---\n", "a"), "---\ntags: [b, c]\n---\n");
    assert_eq!(remove_tag("#inline", "inline"), Ok(None));
}

fn value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        "[a-zA-Z0-9 _./:#,'\"\\[\\]{}&*!|>%@`?~-]{0,12}",
        "\\PC{0,8}",
        ".{0,6}",
        Just("true".to_owned()),
        Just("0x1f".to_owned()),
        Just("1e3".to_owned()),
        Just("---".to_owned()),
        Just("a\nb\r\n\u{85}\u{2028}\u{feff}".to_owned()),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9f64).prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("\\PC{1,6}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Generates blocks as people write them: entries in many styles, with comments and empty lines
/// between.
fn block() -> impl Strategy<Value = String> {
    let entry = prop::sample::select(vec![
        "KEY: plain words",
        "KEY: 'it''s' # why",
        "KEY: \"a\\tb\"",
        "KEY:",
        "KEY: # nothing",
        "KEY: [a, {b: c}, 'd']",
        "KEY: {a: [1], b: }",
        "KEY:\n  - one # 1\n  # in between\n  - two",
        "KEY:\n- x\n-\n- y",
        "KEY:\n  - a\n  -",
        "KEY: |\n  line\n\n    more\n",
        "KEY: | # head\n  line",
        "KEY: |",
        "KEY: >-\n  folded\n  text",
        "KEY: |+\n  kept\n\n",
        "KEY:\n  sub: 1\n  # c\n  other:\n    - z",
        "KEY: two\n  lines",
        "KEY: !!str 5",
        "KEY: &anchor v",
        "'KEY' : 1.50",
        "\"KEY\": ~",
        "KEY: 2024-01-02",
        "KEY: ä ö # ü",
        "KEY: [\n  a,\n  b # c\n  ]",
        "KEY: 007",
        "? KEY\n: explicit",
        "# only a comment",
        "",
        "KEY: \"two\n  lines\"",
    ]);
    prop::collection::vec(entry, 0..8).prop_map(|entries| {
        let numbered = entries.iter().enumerate();
        numbered.map(|(n, entry)| entry.replace("KEY", &format!("k{n}")) + "\n").collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_is_set_is_got_and_the_rest_is_byte_for_byte_the_same(
        yaml in block(), body in "(#?[a-z \\n-]{0,20}|\\PC{0,10})", nth in 0usize..9, value in value(),
        crlf in any::<bool>(),
    ) {
        let text = format!("---\n{yaml}---\n{body}");
        let text = if crlf { text.replace('\n', "\r\n") } else { text };
        let before = read(&text).unwrap();
        let key = format!("k{nth}");
        let explicit = text.contains(&format!("? {key}\n")) || text.contains(&format!("? {key}\r\n"));
        match set(&text, &key, &value) {
            Ok(new) => {
                let after = read(&new).unwrap();
                prop_assert_eq!(after.len(), before.len() + usize::from(!before.contains_key(&key)));
                for (other, value) in before.iter().filter(|(other, _)| **other != key) {
                    prop_assert_eq!(&after[other], value);
                }
                prop_assert!(new.ends_with(super::body(&text).1));
                // Every line of other keys, and every comment before another key, is still there.
                let own = |line: &&str| line.contains(&key);
                for line in text.lines().filter(|line| line.starts_with(|c: char| !c.is_whitespace())).filter(|line| !own(line)) {
                    let list = line.starts_with('-') && line != "---" ;
                    let end_of_explicit = line.starts_with(':');
                    prop_assert!(list || end_of_explicit || new.lines().any(|now| now == line), "{line:?} is gone from {new:?}");
                }
                if before.contains_key(&key) {
                    // Order of the keys is unchanged.
                    let order = |front: &Map<String, Value>| front.keys().cloned().collect::<Vec<_>>();
                    prop_assert_eq!(order(&before), order(&after));
                } else if !body.starts_with("---") {
                    prop_assert_eq!(delete(&new, &key).unwrap().unwrap_or_default(), if yaml.trim().is_empty() { super::body(&text).1.to_owned() } else { text.clone() });
                }
            }
            Err(refused) => prop_assert!(explicit || yaml.contains('?'), "{refused} of {text:?}"),
        }
        match delete(&text, &key) {
            Ok(Some(new)) => {
                let after = read(&new).unwrap();
                prop_assert!(!after.contains_key(&key));
                prop_assert_eq!(after.len() + 1, before.len());
                prop_assert!(new.ends_with(super::body(&text).1));
            }
            Ok(None) => prop_assert!(!before.contains_key(&key)),
            // A block text that keeps the empty lines after it would grow by those after the entry.
            Err(refused) => prop_assert!(explicit || text.contains("|+") || body.starts_with("---"), "{refused} of {text:?}"),
        }
    }

    #[test]
    fn nothing_panics_and_no_body_is_touched(text in "(---\n)?[-a-z:\\[\\]{}#&*|>'\" \\n\t\r\u{feff}ä]{0,60}(\n---\n)?[a-z#\\n]{0,10}", key in "[a-c]") {
        let rest = super::body(&text).1.to_owned();
        if let Ok(new) = set(&text, &key, &json!("v")) {
            prop_assert!(new.ends_with(&rest));
            prop_assert_eq!(&read(&new).unwrap()[&key], "v");
        }
        let _ = delete(&text, &key);
        let _ = remove_tag(&text, &key);
        if let Ok(Some(new)) = add_tag(&text, "t") {
            prop_assert!(tags_of(&read(&new).unwrap()).contains(&"t".to_owned()));
            prop_assert!(new.ends_with(&rest));
        }
    }
}
