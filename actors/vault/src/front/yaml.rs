//! YAML values: emitted in a form that every reader understands alike, and plain scalars resolved
//! by the core schema of YAML 1.2.

use std::fmt::Write;

use serde_json::{Number, Value};

/// Formats a value on one line.
pub(super) fn inline(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => string(text),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            let pairs: Vec<_> = map
                .iter()
                .map(|(key, value)| format!("{}: {}", string(key), inline(value)))
                .collect();
            format!("{{{}}}", pairs.join(", "))
        }
    }
}

/// Layout of a value after its key.
pub(super) enum Form {
    /// Text on the key's line; empty for null.
    Line(String),
    /// Lines of their own, without indentation.
    Lines(Vec<String>),
}

pub(super) fn form(value: &Value) -> Form {
    match value {
        Value::Null => Form::Line(String::new()),
        Value::Array(items) if !items.is_empty() => {
            Form::Lines(items.iter().map(|item| format!("- {}", inline(item))).collect())
        }
        Value::Object(map) if !map.is_empty() => {
            let line = |(key, value): (&String, &Value)| match value {
                Value::Null => format!("{}:", string(key)),
                value => format!("{}: {}", string(key), inline(value)),
            };
            Form::Lines(map.iter().map(line).collect())
        }
        value => Form::Line(inline(value)),
    }
}

/// Formats a string, unquoted where it is unambiguous.
pub(super) fn string(text: &str) -> String {
    if is_bare(text) {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        let _ = match c {
            '"' => write!(quoted, "\\\""),
            '\\' => write!(quoted, "\\\\"),
            '\n' => write!(quoted, "\\n"),
            '\t' => write!(quoted, "\\t"),
            '\r' => write!(quoted, "\\r"),
            c if is_printable(c) => write!(quoted, "{c}"),
            c if u32::from(c) <= 0xff => write!(quoted, "\\x{:02x}", u32::from(c)),
            c if u32::from(c) <= 0xffff => write!(quoted, "\\u{:04x}", u32::from(c)),
            c => write!(quoted, "\\U{:08x}", u32::from(c)),
        };
    }
    quoted.push('"');
    quoted
}

/// True for characters that YAML calls printable, except those at which some readers break lines.
fn is_printable(c: char) -> bool {
    let plane_end = u32::from(c) & 0xfffe == 0xfffe;
    let breaks = matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}');
    !(c.is_control() || breaks || plane_end)
}

fn is_bare(text: &str) -> bool {
    let inner = |c: char| c.is_alphanumeric() || " _-./+@()".contains(c);
    let first = |c: char| c.is_alphabetic() || c == '_';
    let words = ["yes", "no", "on", "off", "y", "n"];
    (text.starts_with(first) || is_date(text))
        && text.chars().all(inner)
        && !text.ends_with(' ')
        && resolved(text).is_string()
        && !words.iter().any(|word| text.eq_ignore_ascii_case(word))
}

fn is_date(text: &str) -> bool {
    text.len() == 10
        && text.bytes().enumerate().all(|(at, b)| match at {
            4 | 7 => b == b'-',
            _ => b.is_ascii_digit(),
        })
}

/// Resolves a plain scalar.
pub(super) fn resolved(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    number(text).map_or_else(|| Value::from(text), Value::Number)
}

/// Parses a number that JSON can represent exactly; others stay strings.
fn number(text: &str) -> Option<Number> {
    let radix = |prefix, radix| {
        text.strip_prefix(prefix).and_then(|digits| u64::from_str_radix(digits, radix).ok())
    };
    if let Some(number) = radix("0x", 16).or_else(|| radix("0o", 8)) {
        let signed = text[2..].starts_with(['+', '-']);
        return (!signed).then(|| number.into());
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit() || b".eE+-".contains(&b)) {
        return None;
    }
    if digits.bytes().all(|b| b.is_ascii_digit()) {
        let text = text.strip_prefix('+').unwrap_or(text);
        let signed = text.parse::<i64>().ok().map(Number::from);
        return signed.or_else(|| text.parse::<u64>().ok().map(Number::from));
    }
    // Floats of the schema have at least one digit before the exponent.
    let mantissa = digits.split(['e', 'E']).next().unwrap_or_default();
    let has_digit = mantissa.bytes().any(|b| b.is_ascii_digit());
    text.parse::<f64>().ok().filter(|_| has_digit).and_then(Number::from_f64)
}
