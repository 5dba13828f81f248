//! Parameters as whoever starts a run gives them: a text, words of a command line, or JSON.

use hivekeep_manifest::common::JsonObject;
use serde_json::Value;

use super::{TextField, TextScopes, TextTooLong, resolve, resolve_value, variables::is_variable};

/// Parameters that a caller gives, by name and by place.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GivenParams {
    /// By name; of two with a name the later counts.
    pub named: JsonObject,
    /// By place.
    pub positional: Vec<Value>,
}

impl GivenParams {
    /// Parameters of a text: JSON, or words as `a "b c" NAME=value`.
    pub fn from_text(text: &str) -> Self {
        Self::json(text).unwrap_or_else(|| Self::of_words(&words(text)))
    }

    /// Parameters that a step's text gives to the DAG that it runs. Words and JSON are told by the text as it
    /// is written, so a value stays in its place whatever it holds; a text that is one reference is read as
    /// the value.
    ///
    /// # Errors
    /// When the values become too long.
    pub fn from_step(text: &str, scopes: &TextScopes<'_>) -> Result<Self, TextTooLong> {
        let mut given = Self::from_text(text);
        if given.named.is_empty() && given.positional == [text.trim()] {
            return Ok(Self::from_text(&resolve(text, TextField::SubDag, scopes)?));
        }
        let resolved = |value: &Value| resolve_value(value, TextField::SubDag, scopes);
        for value in given.named.values_mut().chain(&mut given.positional) {
            *value = resolved(value)?;
        }
        Ok(given)
    }

    /// Parameters of words, each a value or `NAME=value`; a single one may be JSON.
    pub fn from_words(words: &[String]) -> Self {
        let json = match words {
            [word] => Self::json(word),
            _ => None,
        };
        json.unwrap_or_else(|| Self::of_words(words))
    }

    /// Parameters of JSON: an object, or a list whose objects are by name and whose other values are by
    /// place. Null is nothing given.
    pub fn from_json(value: Value) -> Self {
        let mut given = Self::default();
        match value {
            Value::Object(members) => given.named = members,
            Value::Array(items) => items.into_iter().for_each(|item| match item {
                Value::Object(members) => given.named.extend(members),
                Value::Null => {}
                item => given.positional.push(item),
            }),
            Value::Null => {}
            value => given.positional.push(value),
        }
        given.named.retain(|_, value| !value.is_null());
        given
    }

    fn json(text: &str) -> Option<Self> {
        let text = text.trim();
        let is_json = text.starts_with(['{', '[']);
        serde_json::from_str(text).ok().filter(|_| is_json).map(Self::from_json)
    }

    fn of_words(words: &[String]) -> Self {
        let mut given = Self::default();
        for word in words {
            match named(word) {
                Some((name, value)) => drop(given.named.insert(name.to_owned(), value.into())),
                None => given.positional.push(word.as_str().into()),
            }
        }
        given
    }
}

/// Name and value of `NAME=value`.
pub(super) fn named(word: &str) -> Option<(&str, &str)> {
    word.split_once('=').filter(|(name, _)| is_variable(name))
}

/// Words of a text: white space parts them, quotes keep it, a backslash within double quotes keeps a quote.
/// Text between backticks is one, with them.
pub(super) fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some('"'), '\\') if matches!(characters.peek(), Some('"' | '\\')) => {
                word.get_or_insert_default().extend(characters.next());
            }
            (Some(open), _) if open == c => {
                quote = None;
                word.get_or_insert_default().extend((c == '`').then_some(c));
            }
            (Some(_), _) => word.get_or_insert_default().push(c),
            (None, '"' | '\'' | '`') => {
                quote = Some(c);
                word.get_or_insert_default().extend((c == '`').then_some(c));
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
