//! Line ends of notes, which every change keeps, whichever it is given.

use super::*;

const NOTE: &str = "---\ntags: [one]\n---\none\ntwo #t\nthree\n";
const CHANGED: &str = "---\ntags: [one, two]\nk:\n  - x\n---\n0\n0.5\n1\n+\n2\n#t\n3\n4\n5\n6\n";

#[tokio::test]
async fn a_note_keeps_its_line_ends_whichever_it_is_given() {
    let vault = TestVault::open(Options::default()).await;
    let text = || std::fs::read_to_string(vault.at("n.md")).unwrap();
    for (own, given) in [("\n", "\n"), ("\n", "\r\n"), ("\r\n", "\n"), ("\r\n", "\r\n")] {
        let replace = |old: &str, new: &str, regex: bool| {
            let (old, new) = (old.replace('\n', given), new.replace('\n', given));
            let what = json!({"action": "replace", "path": "n.md", "regex": regex});
            with(what, json!({"old_string": old, "new_string": new}))
        };
        let write = |content: &str, mode: &str| json!({"action": "write", "path": "n.md", "content": content, "mode": mode});
        vault.ok(write(&NOTE.replace('\n', own), "overwrite")).await;
        for change in [
            replace("one\ntwo", "1\n+\n2", false),
            replace("three", "3\n4", false),
            replace("^(2) .*$", "$1\n#t", true),
        ] {
            assert_eq!(vault.ok(change.clone()).await["replacements"], 1, "{own:?}: {change}");
        }
        vault.ok(write(&"5\n6\n".replace('\n', given), "append")).await;
        vault.ok(write(&"0\n0.5\n".replace('\n', given), "prepend")).await;
        let set = json!({"action": "frontmatter", "frontmatter_action": "set", "path": "n.md"});
        vault.ok(with(set, json!({"key": "k", "value": ["x"]}))).await;
        let add = json!({"action": "tags", "tags_action": "add", "path": "n.md", "tag": "two"});
        assert_eq!(vault.ok(add).await["tags"], json!(["one", "two", "t"]));
        assert_eq!(text(), CHANGED.replace('\n', own), "given {given:?}");
        let read = vault.ok(json!({"action": "read", "path": "n.md", "format": "json"})).await;
        assert_eq!(read["frontmatter"], json!({"tags": ["one", "two"], "k": ["x"]}));
        let search = json!({"action": "search", "query": "^0.5$", "regex": true, "tag": "one"});
        assert_eq!(vault.ok(search).await["results"][0]["line"], "0.5");
    }
    // Line ends that are named are replaced.
    let unify =
        json!({"action": "replace", "path": "n.md", "old_string": "\r\n", "new_string": "\n"});
    for regex in [false, true] {
        std::fs::write(vault.at("n.md"), CHANGED.replace('\n', "\r\n")).unwrap();
        vault.ok(with(unify.clone(), json!({"regex": regex}))).await;
        assert_eq!(text(), CHANGED);
    }
}

#[tokio::test]
async fn lines_that_are_not_edited_keep_their_ends() {
    let vault = TestVault::open(Options::default()).await;
    for (note, old, new, regex, changed) in [
        ("a\r\nb\nc\r\n", "a\nb", "1\n2", false, "1\r\n2\nc\r\n"),
        ("a\r\nb\nc\r\n", "b\r\nc", "2\r\n+\r\n3", false, "a\r\n2\n+\r\n3\r\n"),
        ("a\r\nb\nc\r\n", "b", "2\n+", false, "a\r\n2\n+\nc\r\n"),
        ("a\nb\r\nc\n", "b", "2\n+", false, "a\n2\r\n+\r\nc\n"),
        ("a\r\nb\nc\r\n", "^b$", "2\n+", true, "a\r\n2\r\n+\nc\r\n"),
        // A class may hold a line end without being meant for it.
        ("a b\r\nc\r\n", "a\\sb", "a\nb", true, "a\r\nb\r\nc\r\n"),
    ] {
        vault.ok(json!({"action": "write", "path": "n.md", "content": note})).await;
        let what = json!({"action": "replace", "path": "n.md", "regex": regex});
        vault.ok(with(what, json!({"old_string": old, "new_string": new}))).await;
        let text = std::fs::read_to_string(vault.at("n.md")).unwrap();
        assert_eq!(text, changed, "{old:?} in {note:?}");
    }
}

fn with(mut args: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("no object: {more}") };
    args.as_object_mut().unwrap().extend(more);
    args
}
