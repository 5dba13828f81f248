//! Dotenv text: `NAME=value` on lines, with quotes over several of them, and comments.

use super::{
    NamedTexts, TextField, TextScopes, env::TextRoom, resolve, text::is_escaped,
    variables::is_variable,
};

/// Line of a dotenv text that is no `NAME=value`, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {0} is not `NAME=value`")]
pub struct DotenvError(pub usize);

/// Names with their values; of two with a name the later counts. A value in single quotes is as it stands;
/// in others `$NAME` reads a name before it in this text, and nothing else.
///
/// # Errors
/// For a line that is neither a name with a value nor a comment, for a quote without an end, and for values
/// that are too long.
pub fn dotenv(text: &str) -> Result<NamedTexts, DotenvError> {
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let (mut found, mut room, mut rest) = (NamedTexts::new(), TextRoom::default(), text.as_str());
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return Ok(found);
        }
        if rest.starts_with('#') {
            rest = rest.split_once('\n').map_or("", |(_, behind)| behind);
            continue;
        }
        let error = || {
            let before = text.get(..text.len() - rest.len()).unwrap_or_default();
            DotenvError(before.matches('\n').count() + 1)
        };
        let entry = entry(rest).ok_or_else(error)?;
        let scopes = TextScopes { env: Some(&found), ..TextScopes::default() };
        let value = match entry.quote {
            Some('\'') => Ok(entry.value.to_owned()),
            Some(_) => resolve(&unescaped(entry.value), TextField::StepText, &scopes),
            None => resolve(entry.value, TextField::StepText, &scopes),
        };
        let value = value.and_then(|value| room.take(value)).map_err(|_| error())?;
        found.insert(entry.name.to_owned(), value);
        rest = entry.behind;
    }
}

struct DotenvEntry<'t> {
    name: &'t str,
    quote: Option<char>,
    value: &'t str,
    behind: &'t str,
}

/// Entry that a text begins with.
fn entry(text: &str) -> Option<DotenvEntry<'_>> {
    let blanks = [' ', '\t'];
    let text = text.strip_prefix("export ").unwrap_or(text).trim_start_matches(blanks);
    let (name, value) = text.split_once('=')?;
    let name = name.trim_end_matches(blanks);
    let value = value.trim_start_matches(blanks);
    let quote = value.chars().next().filter(|c| matches!(c, '\'' | '"'));
    let (value, tail) = match quote {
        Some(quote) => {
            let inner = value.get(1..)?;
            let is_end = |at: &usize| quote == '\'' || !is_escaped(inner, *at);
            let end = inner.match_indices(quote).map(|(at, _)| at).find(is_end)?;
            (inner.get(..end)?, inner.get(end + 1..)?)
        }
        None => {
            let (line, _) = value.split_once('\n').unwrap_or((value, ""));
            let end = line.find(" #").unwrap_or(line.len());
            let (line, tail) = value.split_at(if line.starts_with('#') { 0 } else { end });
            (line.trim_end(), tail)
        }
    };
    let (comment, behind) = tail.split_once('\n').unwrap_or((tail, ""));
    let is_comment = comment.trim_start().is_empty() || comment.trim_start().starts_with('#');
    let is_entry = is_variable(name) && is_comment;
    is_entry.then_some(DotenvEntry { name, quote, value, behind })
}

/// Text of a value in double quotes; a dollar keeps its backslash.
fn unescaped(value: &str) -> String {
    let (mut text, mut characters) = (String::new(), value.chars());
    while let Some(c) = characters.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        match characters.next() {
            Some('n') => text.push('\n'),
            Some('r') => text.push('\r'),
            Some('t') => text.push('\t'),
            Some(escaped @ ('"' | '\\')) => text.push(escaped),
            Some(other) => text.extend(['\\', other]),
            None => text.push('\\'),
        }
    }
    text
}
