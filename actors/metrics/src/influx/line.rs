//! Line protocol of InfluxDB: `measurement,tag=value field=value timestamp`.

use std::fmt::Write as _;

use serde_json::Value;

use crate::{entry::MetricEntry, tally::owner};

/// Most numbers of an entry's data that become fields of their own.
const MOST_FIELDS: usize = 32;

/// Line of an entry, without its end.
///
/// Tags are `type`, `repo`, `agent_id` and `user`; fields are `value`, which is 1, `n_KEY` for each number
/// in its data, and `data`, all of that as JSON. A field has one type for ever, whatever sessions record.
pub(super) fn of(measurement: &str, entry: &MetricEntry, nanos: i64) -> String {
    let mut line = escaped(measurement, &[',', ' ']);
    let user = owner(entry);
    // In the order of their names, as the server likes it best.
    for (name, value) in [
        ("agent_id", &entry.agent_id),
        ("repo", &entry.repo),
        ("type", &entry.kind),
        ("user", &user),
    ] {
        if !value.is_empty() {
            let _infallible = write!(line, ",{name}={}", tag(value));
        }
    }
    line.push_str(" value=1i");
    let numbers = entry.data.iter().filter_map(|(key, value)| Some((key, finite(value)?)));
    let plain = numbers.filter(|(key, _)| !key.is_empty() && !key.chars().any(char::is_control));
    for (key, number) in plain.take(MOST_FIELDS) {
        let _infallible = write!(line, ",n_{}={number}", tag(key));
    }
    if !entry.data.is_empty() {
        let data = Value::Object(entry.data.clone()).to_string();
        let _infallible = write!(line, ",data=\"{}\"", escaped(&data, &['"', '\\']));
    }
    let _infallible = write!(line, " {nanos}");
    line
}

fn finite(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| number.is_finite())
}

/// A tag's value, or a name of a tag or field. A backslash at the end would escape what follows, and there
/// is no way to write one: it is written as in URLs.
fn tag(text: &str) -> String {
    let bare = text.trim_end_matches('\\');
    let mut tag = escaped(bare, &[',', '=', ' ']);
    (bare.len()..text.len()).for_each(|_| tag.push_str("%5C"));
    tag
}

fn escaped(text: &str, special: &[char]) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if special.contains(&c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_special_is_escaped_where_it_is() {
        let data = json!({ "ms": 1.5, "n": 3, "x y": -2, "s": "a \"b\" \\c,d=e\n", "t": true });
        let entry = MetricEntry {
            at_ms: 7,
            user: None,
            kind: "a b,c=d".to_owned(),
            repo: "C:\\r\\".to_owned(),
            agent_id: String::new(),
            data: data.as_object().cloned().expect("an object"),
        };
        let line = of("m x,y", &entry, 7_000_001);
        let expected = concat!(
            r"m\ x\,y,repo=C:\r%5C,type=a\ b\,c\=d,user=daemon value=1i,n_ms=1.5,n_n=3,n_x\ y=-2,",
            r#"data="{\"ms\":1.5,\"n\":3,\"x y\":-2,\"s\":\"a \\\"b\\\" \\\\c,d=e\\n\",\"t\":true}" 7000001"#,
        );
        assert_eq!(line, expected);
    }
}
