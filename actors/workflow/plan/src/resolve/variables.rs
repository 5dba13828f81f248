//! Variables of a text whose field has them: `$NAME`, `${NAME}`, and the operators of shells within the braces.

use std::ops::Range;

use regex::{Regex, RegexBuilder};

use super::text::{Dollar, TextPass, TextTooLong};
use super::{Evaluation, Variables};

/// Nesting of expressions; those below stay as they are.
const MAX_DEPTH: usize = 16;
/// Longest pattern of `${NAME#pattern}`; others match nothing.
const MAX_PATTERN_BYTES: usize = 256;

/// Operators, the longer before what they begin with.
const OPERATORS: [&str; 13] =
    [":-", ":+", ":?", ":=", "##", "%%", "-", "+", "?", "=", "#", "%", ":"];

impl TextPass<'_, '_> {
    /// Writes what stands for a variable, and tells where the text goes on.
    pub(super) fn variable(&mut self, dollar: &Dollar) -> Result<usize, TextTooLong> {
        let Dollar { at, end, .. } = *dollar;
        let rest = self.text.get(at + 1..end).unwrap_or_default();
        let is_command = self.rule.evaluation == Evaluation::Evaluated && rest.starts_with('(');
        let close = self.closing(at).filter(|close| *close < end);
        let name = &rest[..name_length(rest)];
        let is_variable = !name.is_empty() || close.is_some();
        if dollar.is_escaped && self.rule.variables != Variables::ReplacedInPath {
            return match is_variable || is_command {
                true => self.unescaped(at, at + 1),
                false => self.raw(at, at + 1),
            };
        }
        if dollar.is_quoted || !is_variable {
            return self.raw(at, at + 1);
        }
        match close {
            Some(close) if rest.starts_with('{') => self.braced(at, close, dollar.depth),
            _ => match self.scopes.variable(name, &self.rule) {
                Some(value) => self.push(&value).map(|()| at + 1 + name.len()),
                None => self.raw(at, at + 1 + name.len()),
            },
        }
    }

    /// Writes what stands for the expression from the dollar at `at` to the brace at `close`.
    fn braced(&mut self, at: usize, close: usize, depth: usize) -> Result<usize, TextTooLong> {
        let inner = self.text.get(at + 2..close).unwrap_or_default();
        let (inner, is_length) =
            inner.strip_prefix('#').map_or((inner, false), |name| (name, true));
        let length = name_length(inner);
        let (name, rest) = inner.split_at(length);
        if name.is_empty() {
            // Not a variable; what is within may be one.
            return self.raw(at, at + 2);
        }
        let Some(value) = self.scopes.variable(name, &self.rule) else {
            return self.raw(at, close + 1);
        };
        if rest.is_empty() && !is_length {
            self.push(&value)?;
            return Ok(close + 1);
        }
        let operator = OPERATORS.iter().find(|operator| rest.starts_with(**operator));
        let word = close - rest.len() + operator.map_or(0, |operator| operator.len())..close;
        if !self.has_operators || depth >= MAX_DEPTH || is_length && !rest.is_empty() {
            return self.raw(at, close + 1);
        }
        match (operator.copied(), value.is_empty()) {
            (None, _) if is_length => {
                self.count_read(value.len())?;
                self.push(&value.chars().count().to_string())?;
            }
            (Some(":-"), true) | (Some(":+"), false) | (Some("+"), _) => {
                self.region(word, depth + 1)?;
            }
            (Some(":+"), true) => {}
            (Some(":="), true) => {
                self.would_set = true;
                self.raw(at, close + 1)?;
            }
            (Some(":-" | ":=" | ":?"), false) | (Some("-" | "=" | "?"), _) => self.push(&value)?,
            (Some(":"), _) => match slice(&value, self.text.get(word).unwrap_or_default()) {
                Some(part) => self.push(part)?,
                None => return self.raw(at, close + 1),
            },
            (Some(operator @ ("#" | "##" | "%" | "%%")), _) => {
                self.count_read(value.len())?;
                let pattern = self.word(word, depth)?;
                self.push(without(&value, operator, &pattern))?;
            }
            _ => return self.raw(at, close + 1),
        }
        Ok(close + 1)
    }

    /// Text of a word with its values.
    fn word(&mut self, word: Range<usize>, depth: usize) -> Result<String, TextTooLong> {
        let before = std::mem::take(&mut self.out);
        self.region(word, depth + 1)?;
        Ok(std::mem::replace(&mut self.out, before))
    }
}

/// Length of the variable's name, or of the parameter's place, that a text begins with.
pub(super) fn name_length(text: &str) -> usize {
    let is_place = text.starts_with(|c: char| c.is_ascii_digit());
    let within = |byte: &u8| match is_place {
        true => byte.is_ascii_digit(),
        false => byte.is_ascii_alphanumeric() || *byte == b'_',
    };
    text.bytes().take_while(within).count()
}

/// True for the name of a variable.
pub(super) fn is_variable(text: &str) -> bool {
    name_length(text) == text.len() && text.starts_with(|c: char| !c.is_ascii_digit())
}

/// Bytes of a value by `OFFSET` or `OFFSET:LENGTH`; negative numbers count from the end.
fn slice<'v>(value: &'v str, bounds: &str) -> Option<&'v str> {
    let (offset, length) = bounds.split_once(':').map_or((bounds, None), |(o, l)| (o, Some(l)));
    let number = |text: &str| text.trim().parse::<i64>().ok();
    let whole = i64::try_from(value.len()).ok()?;
    let from_end = |number: i64| if number < 0 { whole.saturating_add(number) } else { number };
    let start = from_end(number(offset)?).clamp(0, whole);
    let end = match length.map(number) {
        None => whole,
        Some(Some(length)) if length < 0 => from_end(length),
        Some(length) => start.saturating_add(length?),
    };
    let boundary = |at: i64| value.floor_char_boundary(usize::try_from(at).unwrap_or_default());
    value.get(boundary(start)..boundary(end.clamp(start, whole)))
}

/// Value without the shortest (`#`, `%`) or longest beginning or end that a shell's pattern matches.
fn without<'v>(value: &'v str, operator: &str, pattern: &str) -> &'v str {
    let is_longest = operator.len() == 2;
    let part = expression(pattern, operator, is_longest).and_then(|expression| {
        let found = expression.captures(value)?;
        found.name("kept").map(|kept| kept.as_str())
    });
    part.unwrap_or(value)
}

fn expression(pattern: &str, operator: &str, is_longest: bool) -> Option<Regex> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return None;
    }
    let many = if is_longest { ".*" } else { ".*?" };
    let mut matched = String::new();
    let mut characters = pattern.chars();
    while let Some(c) = characters.next() {
        match c {
            '*' => matched.push_str(many),
            '?' => matched.push('.'),
            '\\' => matched.push_str(&regex::escape(&characters.next()?.to_string())),
            '[' => {
                let set = characters.as_str();
                // A bracket that comes first is one of the set.
                let first = set.char_indices().find(|(_, c)| !"!^".contains(*c))?;
                let behind = first.0 + first.1.len_utf8();
                let end = behind + set.get(behind..)?.find(']')?;
                let (negated, members) = match set.get(..end)?.strip_prefix(['!', '^']) {
                    Some(members) => ("^", members),
                    None => ("", set.get(..end)?),
                };
                let members = members.replace('\\', r"\\").replace('[', r"\[").replace(']', r"\]");
                matched.push_str(&format!("[{negated}{}]", members.replace("&&", r"&\&")));
                characters = set.get(end + 1..)?.chars();
            }
            _ => matched.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    // The shortest end begins as late as it can.
    let kept = if is_longest { ".*?" } else { ".*" };
    let whole = match operator.starts_with('#') {
        true => format!("^(?:{matched})(?<kept>.*)$"),
        false => format!("^(?<kept>{kept})(?:{matched})$"),
    };
    RegexBuilder::new(&whole).dot_matches_new_line(true).build().ok()
}
