//! Pass over a text: its references and variables give way to values, which are never read again.

use std::ops::Range;

use hivekeep_manifest::dag::reference::{Reference, ReferencePath, references};
use serde_json::Value;

use super::{
    Evaluation, FieldRule, TextField, TextScopes, Variables, env::TextRoom, extract::find,
    value_text, variables::name_length,
};

/// Largest text with its values, and the largest sum of the texts of a value.
pub const MAX_RESOLVED_BYTES: usize = 1024 * 1024;
/// Bytes of values that a text may look into: of those that it only measures, cuts or selects from.
const MAX_READ_BYTES: usize = 4 * MAX_RESOLVED_BYTES;

/// A text, with its values, is beyond [`MAX_RESOLVED_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("with its values the text is longer than 1 MiB: hand large values over in files")]
pub struct TextTooLong;

/// Replaces the references of a text, and its variables where the field has them.
///
/// # Errors
/// When the text becomes too long.
pub fn resolve(
    text: &str,
    field: TextField,
    scopes: &TextScopes<'_>,
) -> Result<String, TextTooLong> {
    TextPass::over(text, &field.rule(), scopes, &mut |pass| {
        pass.region(0..text.len(), 0)?;
        Ok(std::mem::take(&mut pass.out))
    })
}

/// Replaces the references of all texts in a value; keys stay as they are.
///
/// # Errors
/// When the texts become too long, in all.
pub fn resolve_value(
    value: &Value,
    field: TextField,
    scopes: &TextScopes<'_>,
) -> Result<Value, TextTooLong> {
    let (mut value, mut room) = (value.clone(), TextRoom::default());
    each_text(&mut value, &mut |text| {
        *text = room.take(resolve(text, field, scopes)?)?;
        Ok(())
    })?;
    Ok(value)
}

fn each_text(
    value: &mut Value,
    visit: &mut dyn FnMut(&mut String) -> Result<(), TextTooLong>,
) -> Result<(), TextTooLong> {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter_mut().try_for_each(|item| each_text(item, visit)),
        Value::Object(members) => members.values_mut().try_for_each(|it| each_text(it, visit)),
        _ => Ok(()),
    }
}

/// Pass over a text.
pub(super) struct TextPass<'t, 's> {
    pub(super) text: &'t str,
    pub(super) rule: FieldRule,
    pub(super) scopes: TextScopes<'s>,
    references: Vec<Reference<'t>>,
    /// Places of each `${` and of the `}` that ends it, in the order of the first.
    braces: Vec<(usize, usize)>,
    /// False where expressions as `${NAME:-text}` stay, because one of them would set a variable.
    pub(super) has_operators: bool,
    pub(super) would_set: bool,
    pub(super) out: String,
    written: usize,
    read: usize,
}

impl<'t, 's> TextPass<'t, 's> {
    /// Runs a pass; once more without operators if one of them would set a variable.
    pub(super) fn over<R>(
        text: &'t str,
        rule: &FieldRule,
        scopes: &TextScopes<'s>,
        run: &mut dyn FnMut(&mut Self) -> Result<R, TextTooLong>,
    ) -> Result<R, TextTooLong> {
        if text.len() > MAX_RESOLVED_BYTES {
            return Err(TextTooLong);
        }
        let is_literal = rule.evaluation == Evaluation::Literal;
        let mut pass = Self {
            text,
            rule: *rule,
            scopes: *scopes,
            references: if is_literal { Vec::new() } else { references(text).collect() },
            braces: if is_literal { Vec::new() } else { braces(text) },
            has_operators: true,
            would_set: false,
            out: String::new(),
            written: 0,
            read: 0,
        };
        let result = run(&mut pass)?;
        if !pass.would_set {
            return Ok(result);
        }
        pass.has_operators = false;
        (pass.out, pass.written, pass.read) = (String::new(), 0, 0);
        run(&mut pass)
    }

    /// Writes a part of the text with its values to `out`.
    pub(super) fn region(&mut self, region: Range<usize>, depth: usize) -> Result<(), TextTooLong> {
        let part = self.text.get(region.clone()).unwrap_or_default();
        let mut quotes = Quotes::of(part);
        let (mut at, mut plain) = (0, 0);
        while let Some(byte) = part.as_bytes().get(at) {
            if *byte != b'$' {
                quotes.pass(*byte, part, at);
                at += 1;
                continue;
            }
            self.push(part.get(plain..at).unwrap_or_default())?;
            let dollar = Dollar {
                at: region.start + at,
                end: region.end,
                is_escaped: is_escaped(part, at),
                is_quoted: quotes.is_single,
                depth,
            };
            at = self.dollar(&dollar)?.saturating_sub(region.start).max(at + 1);
            plain = at;
        }
        self.push(part.get(plain..).unwrap_or_default())
    }

    /// Writes what stands for a dollar and what belongs to it, and tells where the text goes on.
    fn dollar(&mut self, dollar: &Dollar) -> Result<usize, TextTooLong> {
        let Dollar { at, end, is_escaped, .. } = *dollar;
        let place = self.references.binary_search_by_key(&at, |one| one.range.start);
        let reference = place.ok().and_then(|place| self.references.get(place)).cloned();
        if let Some(Reference { range, path, .. }) = reference.filter(|one| one.range.end <= end) {
            let value = self.scopes.value(&path, &self.rule);
            // Others than ours may have the same form.
            let is_ours =
                !matches!(path, ReferencePath::Item(_) | ReferencePath::StepResult { .. });
            match value {
                value if is_escaped && (is_ours || value.is_some()) => {
                    return self.unescaped(at, range.end);
                }
                Some(value) => return self.push(&value).map(|()| range.end),
                None if is_ours => return self.raw(at, range.end),
                None => {}
            }
        }
        if let Some(close) = self.closing(at).filter(|close| *close < end)
            && let Some(value) = self.selected(at + 2..close)?
        {
            return match is_escaped {
                true => self.unescaped(at, close + 1),
                false => self.push(&value).map(|()| close + 1),
            };
        }
        match self.rule.variables {
            Variables::Kept => self.raw(at, at + 1),
            Variables::Replaced | Variables::ReplacedInPath => self.variable(dollar),
        }
    }

    /// Part of a variable whose value is JSON, as `NAME.items[0]` selects it.
    fn selected(&mut self, inner: Range<usize>) -> Result<Option<String>, TextTooLong> {
        let inner = self.text.get(inner).unwrap_or_default();
        let (name, path) = inner.split_at(name_length(inner));
        if name.is_empty() || !path.starts_with(['.', '[']) {
            return Ok(None);
        }
        let Some(value) = self.scopes.variable(name, &self.rule) else { return Ok(None) };
        self.count_read(value.len())?;
        let value: Option<Value> = serde_json::from_str(&value).ok();
        let part = value.as_ref().filter(|it| it.is_object() || it.is_array());
        Ok(part.and_then(|value| find(value, path)).map(|part| value_text(part).into_owned()))
    }

    /// Writes a part of the text as it is, and tells its end.
    pub(super) fn raw(&mut self, from: usize, to: usize) -> Result<usize, TextTooLong> {
        self.push(self.text.get(from..to).unwrap_or_default())?;
        Ok(to)
    }

    /// Writes a part of the text in place of the backslash before it.
    pub(super) fn unescaped(&mut self, from: usize, to: usize) -> Result<usize, TextTooLong> {
        self.out.pop();
        self.raw(from, to)
    }

    pub(super) fn push(&mut self, text: &str) -> Result<(), TextTooLong> {
        self.written += text.len();
        if self.written > MAX_RESOLVED_BYTES {
            return Err(TextTooLong);
        }
        self.out.push_str(text);
        Ok(())
    }

    pub(super) fn count_read(&mut self, bytes: usize) -> Result<(), TextTooLong> {
        self.read += bytes;
        if self.read > MAX_READ_BYTES { Err(TextTooLong) } else { Ok(()) }
    }

    /// Place of the brace that ends the one behind the dollar at `at`.
    pub(super) fn closing(&self, at: usize) -> Option<usize> {
        let place = self.braces.binary_search_by_key(&at, |(open, _)| *open).ok()?;
        self.braces.get(place).map(|(_, close)| *close)
    }
}

/// Dollar within a region.
pub(super) struct Dollar {
    pub(super) at: usize,
    /// End of the region.
    pub(super) end: usize,
    pub(super) is_escaped: bool,
    pub(super) is_quoted: bool,
    pub(super) depth: usize,
}

/// True behind an odd number of backslashes.
pub(super) fn is_escaped(text: &str, at: usize) -> bool {
    let before = text.as_bytes().get(..at).unwrap_or_default();
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

fn braces(text: &str) -> Vec<(usize, usize)> {
    let (mut open, mut pairs) = (Vec::new(), Vec::new());
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' if at > 0 && text.as_bytes().get(at - 1) == Some(&b'$') => open.push(at - 1),
            b'}' if !is_escaped(text, at) => pairs.extend(open.pop().map(|open| (open, at))),
            _ => {}
        }
    }
    pairs.sort_unstable();
    pairs
}

/// Quotes of a text, as a shell reads them; one that does not end is a character like others.
struct Quotes {
    is_single: bool,
    is_double: bool,
    last_single: Option<usize>,
    last_double: Option<usize>,
}

impl Quotes {
    fn of(text: &str) -> Self {
        let (last_single, last_double) = (text.rfind('\''), text.rfind('"'));
        Self { is_single: false, is_double: false, last_single, last_double }
    }

    fn pass(&mut self, byte: u8, text: &str, at: usize) {
        match byte {
            b'\'' if self.is_single => self.is_single = false,
            b'\'' | b'"' if is_escaped(text, at) => {}
            b'"' if self.is_double => self.is_double = false,
            b'\'' if !self.is_double => self.is_single = self.last_single > Some(at),
            b'"' if !self.is_single => self.is_double = self.last_double > Some(at),
            _ => {}
        }
    }
}
