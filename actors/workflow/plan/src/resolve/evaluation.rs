//! Evaluated text: literal parts, and commands whose outputs stand for them.

use std::ops::Range;

use super::{
    TextField, TextScopes, TextTooLong, Variables,
    text::{TextPass, is_escaped},
};

/// Part of an evaluated text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextPart {
    /// Text that is used as it is.
    Literal(String),
    /// Line for the shell of the run's place, whose environment has what the text's scope has.
    Command(String),
}

/// Takes an evaluated text apart. Where commands begin and end is read from the text as it is written:
/// no value can begin or end one. Within a command variables are the shell's.
///
/// # Errors
/// When the text becomes too long.
pub fn evaluate(
    text: &str,
    field: TextField,
    scopes: &TextScopes<'_>,
) -> Result<Vec<TextPart>, TextTooLong> {
    let rule = field.rule();
    let commands = commands(text);
    TextPass::over(text, &rule, scopes, &mut |pass| {
        let (mut parts, mut at) = (Vec::new(), 0);
        for (whole, body) in &commands {
            pass.region(at..whole.start, 0)?;
            parts.push(TextPart::Literal(std::mem::take(&mut pass.out)));
            pass.rule.variables = Variables::Kept;
            pass.region(body.clone(), 0)?;
            pass.rule.variables = rule.variables;
            parts.push(TextPart::Command(std::mem::take(&mut pass.out)));
            at = whole.end;
        }
        pass.region(at..text.len(), 0)?;
        parts.push(TextPart::Literal(std::mem::take(&mut pass.out)));
        parts.retain(|part| !matches!(part, TextPart::Literal(text) if text.is_empty()));
        Ok(parts)
    })
}

/// Places of commands, each with that of its body. There is none within another.
fn commands(text: &str) -> Vec<(Range<usize>, Range<usize>)> {
    let (mut found, mut at) = (Vec::new(), 0);
    let (mut has_backtick, mut has_bracket) = (true, true);
    while let Some(next) = text.get(at..).and_then(|rest| rest.find(['`', '$'])) {
        let start = at + next;
        at = start + 1;
        let is_backtick = text.as_bytes().get(start) == Some(&b'`');
        let is_bracket = !is_backtick && text.as_bytes().get(at) == Some(&b'(');
        // Where no end was found there is none further on.
        let has_end = if is_backtick { &mut has_backtick } else { &mut has_bracket };
        if !(is_backtick || is_bracket) || !*has_end || is_escaped(text, start) {
            continue;
        }
        let body = if is_backtick { at } else { at + 1 };
        match end_of(text, body, if is_backtick { '`' } else { ')' }) {
            Some(end) => {
                found.push((start..end + 1, body..end));
                at = end + 1;
            }
            None => *has_end = false,
        }
    }
    found
}

fn end_of(text: &str, from: usize, end: char) -> Option<usize> {
    let mut at = from;
    loop {
        at += text.get(at..)?.find(end)?;
        if !is_escaped(text.get(from..)?, at - from) {
            return Some(at);
        }
        at += 1;
    }
}

/// Evaluated text on its way: it asks for the outputs of its commands, one after the other.
#[derive(Debug, Clone)]
pub struct Computation {
    parts: std::vec::IntoIter<TextPart>,
    text: String,
}

impl Computation {
    /// Computation of a text's parts.
    pub fn new(parts: Vec<TextPart>) -> Self {
        Self { parts: parts.into_iter(), text: String::new() }
    }

    /// Takes the output of the command before, and tells the next; `None` once the text is whole.
    pub fn next(&mut self, output: Option<&str>) -> Option<String> {
        self.text.push_str(output.unwrap_or_default().trim());
        for part in self.parts.by_ref() {
            match part {
                TextPart::Literal(text) => self.text.push_str(&text),
                TextPart::Command(line) => return Some(line),
            }
        }
        None
    }

    /// Text with the outputs so far.
    pub fn text(self) -> String {
        self.text
    }
}
