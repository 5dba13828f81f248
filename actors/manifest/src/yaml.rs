//! YAML reader: the documents of a text as trees whose values know their places, within a budget.

use std::{collections::HashSet, fmt};

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::{Budget, Error, Location, MessageFormatter as _, Spanned, UserMessageFormatter};

/// Size of a text that is read.
pub const MAX_TEXT_BYTES: usize = 256 * 1024;
/// Nesting of values: types of a step that holds steps take much of a stack.
const MAX_DEPTH: usize = 40;
/// Values of a text, with those that aliases repeat counted each time.
const MAX_VALUES: usize = 20_000;
/// Bytes of values, with those that aliases repeat counted each time.
const MAX_VALUE_BYTES: usize = 1024 * 1024;
/// Aliases of a text.
const MAX_ALIASES: usize = 1_000;
/// Documents of a text.
const MAX_DOCUMENTS: usize = 64;

/// Place in a text: line and column, each from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TextPosition {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl TextPosition {
    pub(crate) const START: Self = Self { line: 1, column: 1 };

    fn of(location: Location) -> Self {
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).max(1);
        Self { line: number(location.line()), column: number(location.column()) }
    }
}

/// Value with its place. What an alias or a merge repeats has the place where it is repeated.
#[derive(Debug, Clone)]
pub(crate) struct YamlNode {
    pub(crate) at: TextPosition,
    pub(crate) content: YamlContent,
}

#[derive(Debug, Clone)]
pub(crate) enum YamlContent {
    Scalar(Value),
    List(Vec<YamlNode>),
    /// Keys with their places.
    Map(Vec<(String, TextPosition, YamlNode)>),
}

impl YamlNode {
    /// Value without places.
    pub(crate) fn to_value(&self) -> Value {
        match &self.content {
            YamlContent::Scalar(value) => value.clone(),
            YamlContent::List(items) => items.iter().map(Self::to_value).collect(),
            YamlContent::Map(entries) => {
                let values = entries.iter().map(|(key, _, node)| (key.clone(), node.to_value()));
                Value::Object(values.collect())
            }
        }
    }

    /// Place of the value at a path of keys and indices, or of the last part of it that is there. With
    /// `key` the place of the last step's key.
    pub(crate) fn place(&self, path: &[String], key: bool) -> TextPosition {
        let Some((step, rest)) = path.split_first() else { return self.at };
        match &self.content {
            YamlContent::Map(entries) => match entries.iter().find(|(name, ..)| name == step) {
                Some((_, at, _)) if key && rest.is_empty() => *at,
                Some((_, at, node)) if rest.is_empty() && node.is_null() => *at,
                Some((_, _, node)) => node.place(rest, key),
                None => self.at,
            },
            YamlContent::List(items) => {
                let item = step.parse::<usize>().ok().and_then(|index| items.get(index));
                item.map_or(self.at, |item| item.place(rest, key))
            }
            YamlContent::Scalar(_) => self.at,
        }
    }

    /// Value at a path of keys and indices.
    pub(crate) fn node(&self, path: &[String]) -> Option<&Self> {
        path.iter().try_fold(self, |node, step| match &node.content {
            YamlContent::Map(entries) => {
                entries.iter().find(|(name, ..)| name == step).map(|(_, _, node)| node)
            }
            YamlContent::List(items) => items.get(step.parse::<usize>().ok()?),
            YamlContent::Scalar(_) => None,
        })
    }

    /// Keys of a mapping with their places and values; none of anything else.
    pub(crate) fn entries(&self) -> &[(String, TextPosition, Self)] {
        match &self.content {
            YamlContent::Map(entries) => entries,
            _ => &[],
        }
    }

    /// True for an empty value, whose place the parser cannot tell.
    fn is_null(&self) -> bool {
        matches!(self.content, YamlContent::Scalar(Value::Null))
    }
}

/// Value of a text with one document.
///
/// # Errors
/// Place and reason, where it is not YAML or beyond its budget.
pub fn read_yaml(text: &str) -> Result<Value, String> {
    match read(text) {
        Ok(documents) => match &documents[..] {
            [] => Ok(Value::Null),
            [document] => Ok(document.to_value()),
            _ => Err("the text holds several documents".to_owned()),
        },
        Err((at, reason)) => Err(format!("line {}, column {}: {reason}", at.line, at.column)),
    }
}

/// Reads the documents of a text.
///
/// # Errors
/// Place and reason, where it is not YAML or beyond its budget.
pub(crate) fn read(text: &str) -> Result<Vec<YamlNode>, (TextPosition, String)> {
    if text.len() > MAX_TEXT_BYTES {
        let message = format!("the text is larger than {} KiB", MAX_TEXT_BYTES / 1024);
        return Err((TextPosition::START, message));
    }
    let documents =
        serde_saphyr::from_multiple_with_options::<Spanned<YamlContent>>(text, options());
    documents.map(|documents| documents.into_iter().map(YamlNode::from).collect()).map_err(told)
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: budget(),
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_VALUES },
        // `on` and `yes` are texts, as in YAML 1.2.
        strict_booleans: true,
        with_snippet: false,
    }
}

fn budget() -> Option<Budget> {
    serde_saphyr::budget! {
        max_depth: MAX_DEPTH,
        max_nodes: MAX_VALUES,
        max_events: 4 * MAX_VALUES,
        max_aliases: MAX_ALIASES,
        max_anchors: MAX_ALIASES,
        max_documents: MAX_DOCUMENTS,
        max_total_scalar_bytes: MAX_VALUE_BYTES,
        max_recorded_anchor_bytes: MAX_VALUE_BYTES,
    }
}

fn told(error: Error) -> (TextPosition, String) {
    let place = error.location().map_or(TextPosition::START, TextPosition::of);
    let message = UserMessageFormatter.format_message(error.without_snippet());
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    (place, message.chars().map(plain).take(300).collect())
}

impl From<Spanned<YamlContent>> for YamlNode {
    fn from(node: Spanned<YamlContent>) -> Self {
        Self { at: TextPosition::of(node.referenced), content: node.value }
    }
}

impl<'de> Deserialize<'de> for YamlContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = YamlContent;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, truth: bool) -> Result<YamlContent, E> {
        Ok(YamlContent::Scalar(truth.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<YamlContent, E> {
        Ok(YamlContent::Scalar(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<YamlContent, E> {
        Ok(YamlContent::Scalar(number.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<YamlContent, E> {
        // JSON Schema takes 5.0 for an integer, and serde does not.
        if number.fract() == 0.0 && number.abs() < 9e15 {
            return Ok(YamlContent::Scalar((number as i64).into()));
        }
        let number = serde_json::Number::from_f64(number);
        let number = number.ok_or_else(|| E::custom("a number has to be finite"))?;
        Ok(YamlContent::Scalar(number.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<YamlContent, E> {
        Ok(YamlContent::Scalar(text.into()))
    }

    fn visit_unit<E>(self) -> Result<YamlContent, E> {
        Ok(YamlContent::Scalar(Value::Null))
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<YamlContent, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<YamlContent, D::Error> {
        YamlContent::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<YamlContent, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element::<Spanned<YamlContent>>()? {
            items.push(item.into());
        }
        Ok(YamlContent::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<YamlContent, A::Error> {
        let mut entries: Vec<(String, TextPosition, YamlNode)> = Vec::new();
        let mut names = HashSet::new();
        while let Some((key, node)) = map.next_entry::<Spanned<String>, Spanned<YamlContent>>()? {
            if !names.insert(key.value.clone()) {
                return Err(A::Error::custom(format!("the key `{}` is there twice", key.value)));
            }
            entries.push((key.value, TextPosition::of(key.referenced), node.into()));
        }
        Ok(YamlContent::Map(entries))
    }
}
