//! Scalar resolution by the core schema of YAML 1.2.

use serde_json::{Number, Value};

/// Resolves a plain scalar.
pub(super) fn plain(text: &str) -> Value {
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
