//! Redactor of paths of the host, for answers that leave the operator's command line.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// Shown in place of a path.
const HIDDEN: &str = "[path of the host]";

/// An absolute path: a slash that begins a word, and what follows to the word's end. In `https://x/y`
/// and `a/b` no slash does.
static PATH: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(^|[^\w/.\-~])(/[\w.@+\-][^\s"'`),;:\]}>]*)"#)
        .expect("a literal that a test uses")
});

/// Text without paths of the host.
pub(crate) fn hide(text: &str) -> String {
    PATH.replace_all(text, format!("${{1}}{HIDDEN}")).into_owned()
}

/// Value whose texts have no paths of the host; keys of mappings count as texts.
pub(crate) fn hide_in(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(hide(&text)),
        Value::Array(items) => items.into_iter().map(hide_in).collect(),
        Value::Object(map) => {
            map.into_iter().map(|(key, value)| (hide(&key), hide_in(value))).collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_go_and_the_rest_stays() {
        for (text, shown) in [
            ("/srv/notes", "[path of the host]"),
            ("/srv/notes (3 GiB free)", "[path of the host] (3 GiB free)"),
            ("cannot open `/etc/a.pem`: no", "cannot open `[path of the host]`: no"),
            ("path=/x/y,/z", "path=[path of the host],[path of the host]"),
            ("https://example.org/a/b", "https://example.org/a/b"),
            ("docker.io/library/bash:5", "docker.io/library/bash:5"),
            ("3/4 and a / b", "3/4 and a / b"),
            ("", ""),
        ] {
            assert_eq!(hide(text), shown);
        }
    }
}
