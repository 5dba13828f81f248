//! Minimal edits: one entry changes, everything else stays byte for byte.

use serde_json::{Map, Value};

use super::tree::{Entry, Mapping, Shape};
use super::yaml::{self, Form};
use super::{FrontMatterBlock, MalformedFrontMatter, begin, locate, parsed};

/// Sets a key. A note without front matter gets a block.
///
/// # Errors
/// Position where the block is malformed, or is written so that the key cannot be set alone.
pub(crate) fn set(text: &str, key: &str, value: &Value) -> Result<String, MalformedFrontMatter> {
    let Some((block, mapping)) = parsed(text)? else {
        let at = begin(text);
        let rest = &text[at..];
        let first = rest.split_inclusive('\n').next().unwrap_or_default();
        let line_end = if first.ends_with("\r\n") { "\r\n" } else { "\n" };
        let entry = written(key, value, "", line_end);
        let made = format!("{}---{line_end}{entry}---{line_end}{rest}", &text[..at]);
        return checked(made, &expected(&Mapping::default(), key, Some(value)), 1);
    };
    editable(&mapping)?;
    let mut edit = Edit { text: text.to_owned(), block: &block };
    let line = edit.line_of(mapping.find(key));
    match mapping.find(key) {
        Some(entry) if entry.node.value == *value => return Ok(edit.text),
        Some(entry) => edit.replace(entry, &mapping, value)?,
        None => {
            let indent =
                mapping.entries.first().map_or("", |entry| edit.indent(entry.key_at.start));
            let entry = written(key, value, indent, block.line_end);
            edit.text.insert_str(block.inside.end, &entry);
        }
    }
    checked(edit.text, &expected(&mapping, key, Some(value)), line)
}

/// Removes a key with its value; the last one with the whole block, unless comments remain in it.
/// `None` if there is no such key.
///
/// # Errors
/// See [`set`].
pub(crate) fn delete(text: &str, key: &str) -> Result<Option<String>, MalformedFrontMatter> {
    let Some((block, mapping)) = parsed(text)? else { return Ok(None) };
    let Some(entry) = mapping.find(key) else { return Ok(None) };
    editable(&mapping)?;
    let mut edit = Edit { text: text.to_owned(), block: &block };
    let line = edit.line_of(Some(entry));
    let start = edit.line_start(entry.key_at.start);
    let end = edit.line_end(edit.end_of(entry, &mapping).max(entry.key_at.end));
    edit.cut(start, end);
    let left = edit.text.len() + block.inside.len() - text.len();
    let inside = &edit.text[block.inside.start..block.inside.start + left];
    if inside.trim().is_empty() {
        let fence = block.whole.end - block.inside.end;
        let end = block.inside.start + left + fence;
        edit.text.replace_range(block.whole.start..end, "");
        // Text after the block could be taken for front matter now.
        if super::read(&edit.text).is_ok_and(|now| now.is_empty()) && locate(&edit.text) == Ok(None)
        {
            return Ok(Some(edit.text));
        }
        return Err(at(line, "without its front matter, the note would begin with another"));
    }
    checked(edit.text, &expected(&mapping, key, None), line).map(Some)
}

fn editable(mapping: &Mapping) -> Result<(), MalformedFrontMatter> {
    match mapping.flow {
        true => Err(at(2, "it is written in braces: write one key per line to have it edited")),
        false => Ok(()),
    }
}

pub(super) fn at(line: usize, why: &str) -> MalformedFrontMatter {
    MalformedFrontMatter { line, column: 1, why: why.to_owned() }
}

/// Values that the block must have after an edit.
pub(super) fn expected(mapping: &Mapping, key: &str, value: Option<&Value>) -> Map<String, Value> {
    let mut values = mapping.values();
    match value {
        Some(value) => drop(values.insert(key.to_owned(), value.clone())),
        None => drop(values.shift_remove(key)),
    }
    values
}

/// Verifies an edit by parsing it; see [`super`].
pub(super) fn checked(
    text: String,
    expected: &Map<String, Value>,
    line: usize,
) -> Result<String, MalformedFrontMatter> {
    match super::read(&text) {
        Ok(now) if same(&now, expected) => Ok(text),
        _ => Err(at(line, "this entry is written in a way in which it cannot be changed alone")),
    }
}

/// Equality up to the representation of numbers, which may change in JSON.
fn same(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    a.len() == b.len()
        && a.iter().all(|(key, value)| b.get(key).is_some_and(|other| alike(value, other)))
}

fn alike(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b))
        }
        (Value::Object(a), Value::Object(b)) => same(a, b),
        (a, b) => a == b,
    }
}

/// Formats an entry.
fn written(key: &str, value: &Value, indent: &str, line_end: &str) -> String {
    let key = yaml::string(key);
    match yaml::form(value) {
        Form::Line(line) if line.is_empty() => format!("{indent}{key}:{line_end}"),
        Form::Line(line) => format!("{indent}{key}: {line}{line_end}"),
        Form::Lines(lines) => {
            format!("{indent}{key}:{line_end}{}", under(&lines, indent, line_end))
        }
    }
}

fn under(lines: &[String], indent: &str, line_end: &str) -> String {
    lines.iter().map(|line| format!("{indent}  {line}{line_end}")).collect()
}

/// Edit in progress: a text and its block. Positions are those of the block before the edit.
pub(super) struct Edit<'b> {
    pub(super) text: String,
    pub(super) block: &'b FrontMatterBlock,
}

impl Edit<'_> {
    fn yaml(&self) -> &str {
        self.block.yaml(&self.text)
    }

    /// Line of the note that an entry begins on.
    pub(super) fn line_of(&self, entry: Option<&Entry>) -> usize {
        let at = entry.map_or(0, |entry| entry.key_at.start).min(self.yaml().len());
        2 + self.yaml().as_bytes()[..at].iter().filter(|b| **b == b'\n').count()
    }

    pub(super) fn line_start(&self, at: usize) -> usize {
        self.yaml()[..at].rfind('\n').map_or(0, |newline| newline + 1)
    }

    /// Offset after the line's end.
    pub(super) fn line_end(&self, at: usize) -> usize {
        self.yaml()[at..].find('\n').map_or(self.yaml().len(), |newline| at + newline + 1)
    }

    pub(super) fn indent(&self, at: usize) -> &str {
        let line = &self.yaml()[self.line_start(at)..];
        &line[..line.len() - line.trim_start_matches(' ').len()]
    }

    pub(super) fn cut(&mut self, start: usize, end: usize) {
        self.put(start, end, "");
    }

    /// Removes ranges, which are in order.
    pub(super) fn cut_all(&mut self, cuts: &[(usize, usize)]) {
        let base = self.block.inside.start;
        let mut left = String::with_capacity(self.text.len());
        let mut from = 0;
        for (start, end) in cuts {
            left.push_str(&self.text[from..base + start]);
            from = base + end;
        }
        left.push_str(&self.text[from..]);
        self.text = left;
    }

    pub(super) fn put(&mut self, start: usize, end: usize, new: &str) {
        let base = self.block.inside.start;
        self.text.replace_range(base + start..base + end, new);
    }

    /// End of an entry's value. Where the parser does not give it: before the comments and empty
    /// lines that the next key follows.
    pub(super) fn end_of(&self, entry: &Entry, mapping: &Mapping) -> usize {
        if let Some(end) = entry.node.end {
            let blank = self.yaml()[entry.node.start.min(end)..end].trim().is_empty();
            let head = self.line_end(entry.key_at.end);
            return if blank { head - usize::from(head > 0) } else { end };
        }
        if matches!(entry.node.shape, Shape::Empty) {
            return self.colon(entry).unwrap_or(entry.key_at.end);
        }
        let next = mapping.entries.iter().map(|other| other.key_at.start);
        let next = next.filter(|start| *start > entry.key_at.start).min();
        let mut end = next.map_or(self.yaml().len(), |start| self.line_start(start));
        while end > entry.node.start {
            let start = self.line_start(end - 1);
            let line = self.yaml()[start..end].trim();
            if !(line.is_empty() || line.starts_with('#')) || start <= entry.node.start {
                return start + self.yaml()[start..end].trim_end().len();
            }
            end = start;
        }
        end
    }

    /// Offset after the colon that follows the key; `None` if something else follows.
    pub(super) fn colon(&self, entry: &Entry) -> Option<usize> {
        let rest = &self.yaml()[entry.key_at.end..];
        let colon = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        rest[colon..].starts_with(':').then_some(entry.key_at.end + colon + 1)
    }

    /// Replaces the value of a key.
    fn replace(
        &mut self,
        entry: &Entry,
        mapping: &Mapping,
        value: &Value,
    ) -> Result<(), MalformedFrontMatter> {
        let line = self.line_of(Some(entry));
        let refused = || at(line, "the key is written in a way in which it cannot be set alone");
        let colon = self.colon(entry).ok_or_else(refused)?;
        let mut end = self.end_of(entry, mapping).max(colon);
        let mut beside = String::new();
        if matches!(entry.node.shape, Shape::BlockText) {
            // Keep the comment beside the `|`.
            let head = self.yaml()[colon..self.line_end(colon)].trim_end();
            beside = head.find(" #").map(|at| head[at..].to_owned()).unwrap_or_default();
            end = end.max(colon + head.len());
        }
        let indent = self.indent(entry.key_at.start).to_owned();
        let line_end = self.block.line_end;
        let empty = matches!(entry.node.shape, Shape::Empty);
        let same_line = empty
            || matches!(entry.node.shape, Shape::BlockText)
            || entry.node.start < self.line_end(colon);
        let form = yaml::form(value);
        let text = |line: &str| match line {
            "" => String::new(),
            line => format!(" {line}"),
        };
        match (same_line, form) {
            // Replace the value alone; a comment after it stays.
            (true, Form::Line(line)) => self.put(colon, end, &(text(&line) + &beside)),
            (true, Form::Lines(lines)) => {
                let after = self.line_end(end);
                self.put(after, after, &under(&lines, &indent, line_end));
                self.put(colon, end, &beside);
            }
            // Replace the lines below the key; a comment beside the key stays.
            (false, form) => {
                let (start, after) = (self.line_start(entry.node.start), self.line_end(end));
                match form {
                    Form::Line(line) => {
                        self.cut(start, after);
                        self.put(colon, colon, &text(&line));
                    }
                    Form::Lines(lines) => self.put(start, after, &under(&lines, &indent, line_end)),
                }
            }
        }
        Ok(())
    }
}
