//! Editor of the key `tags`: a YAML list in either style, or a string of words.

use serde_json::{Map, Value};

use super::edit::{Edit, checked, expected};
use super::tree::{Entry, Mapping, Shape};
use super::{MalformedFrontMatter, parsed, set, yaml};

const KEY: &str = "tags";

/// Tags in the front matter. A string is split at commas and spaces, as Obsidian does.
pub(crate) fn tags_of(front: &Map<String, Value>) -> Vec<String> {
    let words = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| c == ',' || c.is_whitespace());
        words.map(plain).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    match front.get(KEY) {
        Some(Value::String(text)) => words(text),
        Some(Value::Array(items)) => items.iter().filter_map(tag).collect(),
        Some(value) => tag(value).into_iter().collect(),
        None => Vec::new(),
    }
}

/// Tag without its `#`.
pub(crate) fn plain(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix('#').unwrap_or(text)
}

/// Case-folded form by which tags are compared, as in Obsidian.
pub(crate) fn fold(tag: &str) -> String {
    tag.to_lowercase()
}

fn same(a: &str, b: &str) -> bool {
    a == b || fold(a) == fold(b)
}

fn tag(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(plain(text).to_owned()).filter(|tag| !tag.is_empty()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Adds a tag; `None` if it is present.
///
/// # Errors
/// See [`set`].
pub(crate) fn add_tag(text: &str, tag: &str) -> Result<Option<String>, MalformedFrontMatter> {
    let Some((block, mapping)) = parsed(text)? else {
        return set(text, KEY, &Value::from(vec![tag])).map(Some);
    };
    let has = tags_of(&mapping.values());
    if has.iter().any(|one| same(one, tag)) {
        return Ok(None);
    }
    let entry = mapping.find(KEY).filter(|_| !mapping.flow);
    let Some(Value::Array(items)) = entry.map(|entry| &entry.node.value) else {
        let all: Vec<_> = has.iter().map(String::as_str).chain([tag]).collect();
        return set(text, KEY, &Value::from(all)).map(Some);
    };
    let all: Vec<_> = items.iter().cloned().chain([tag.into()]).collect();
    let edit = Edit { text: text.to_owned(), block: &block };
    let inserted = entry.and_then(|entry| insert(edit, entry, &mapping, tag, &all));
    inserted.map_or_else(|| set(text, KEY, &Value::from(all)), Ok).map(Some)
}

/// Removes a tag from the front matter; `None` if it is absent.
///
/// # Errors
/// See [`set`].
pub(crate) fn remove_tag(text: &str, tag: &str) -> Result<Option<String>, MalformedFrontMatter> {
    let Some((block, mapping)) = parsed(text)? else { return Ok(None) };
    let has = tags_of(&mapping.values());
    if !has.iter().any(|one| same(one, tag)) {
        return Ok(None);
    }
    let entry = mapping.find(KEY).filter(|_| !mapping.flow);
    let Some(Value::Array(items)) = entry.map(|entry| &entry.node.value) else {
        let all: Vec<_> = has.iter().filter(|one| !same(one, tag)).map(String::as_str).collect();
        return set(text, KEY, &Value::from(all)).map(Some);
    };
    let is_it = |value: &Value| self::tag(value).is_some_and(|one| same(&one, tag));
    let all: Vec<_> = items.iter().filter(|item| !is_it(item)).cloned().collect();
    let edit = Edit { text: text.to_owned(), block: &block };
    let removed = entry
        .filter(|_| !all.is_empty())
        .and_then(|entry| take(edit, entry, &mapping, &is_it, &all));
    removed.map_or_else(|| set(text, KEY, &Value::from(all)), Ok).map(Some)
}

/// Appends an item to a list; `None` if the list has to be rewritten.
fn insert(
    mut edit: Edit<'_>,
    entry: &Entry,
    mapping: &Mapping,
    tag: &str,
    all: &[Value],
) -> Option<String> {
    match &entry.node.shape {
        Shape::BlockList(items) => {
            let last = items.last()?;
            let dash = dash(&edit, last.start)?;
            let after = edit.line_end(last.end?);
            let line = format!("{dash}{}{}", yaml::string(tag), edit.block.line_end);
            edit.put(after, after, &line);
        }
        Shape::FlowList(items) => match items.last() {
            Some(last) => {
                let end = last.end?;
                edit.put(end, end, &format!(", {}", yaml::string(tag)));
            }
            None => return None,
        },
        _ => return None,
    }
    let values = expected(mapping, KEY, Some(&Value::from(all)));
    checked(edit.text, &values, 1).ok()
}

/// Removes items from a list; `None` if the list has to be rewritten.
fn take(
    mut edit: Edit<'_>,
    entry: &Entry,
    mapping: &Mapping,
    is_it: &dyn Fn(&Value) -> bool,
    all: &[Value],
) -> Option<String> {
    // Ranges to cut, in order; offsets are those of the text before.
    let cuts: Vec<_> = match &entry.node.shape {
        Shape::BlockList(items) => {
            let lines = items.iter().filter(|item| is_it(&item.value)).map(|item| {
                dash(&edit, item.start)?;
                Some((edit.line_start(item.start), edit.line_end(item.end?)))
            });
            lines.collect::<Option<_>>()?
        }
        Shape::FlowList(items) => {
            let kept = items.iter().position(|item| !is_it(&item.value))?;
            // Each item is cut with the comma before it; items before the first one kept, with the
            // comma after.
            let head = (items[0].start, items[kept].start);
            let after = items[kept..].windows(2).filter(|pair| is_it(&pair[1].value));
            let after = after.map(|pair| Some((pair[0].end?, pair[1].end?)));
            std::iter::once(Some(head)).chain(after).collect::<Option<_>>()?
        }
        _ => return None,
    };
    edit.cut_all(&cuts);
    let values = expected(mapping, KEY, Some(&Value::from(all)));
    checked(edit.text, &values, 1).ok()
}

/// Prefix of an item's line, if that is a dash alone.
fn dash(edit: &Edit<'_>, item: usize) -> Option<String> {
    let start = edit.line_start(item);
    let before = &edit.block.yaml(&edit.text)[start..item];
    let inner = before.trim_start_matches(' ');
    let alone = inner.starts_with('-') && inner[1..].chars().all(|c| c == ' ') && inner.len() > 1;
    alone.then(|| before.to_owned())
}
