//! YAML parser: the block as a mapping with the position of each entry in the text.

use std::collections::HashMap;
use std::ops::Range;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput};
use serde_json::{Map, Value};

use super::{MalformedFrontMatter, yaml};

/// Maximum nesting depth of values.
const MAX_DEPTH: usize = 64;
/// Maximum number of values, with those that aliases repeat counted each time.
const MAX_VALUES: usize = 50_000;
/// Maximum size of texts that are copied for an anchor or an alias.
const MAX_REPEATED_BYTES: usize = 1024 * 1024;

/// Value and its position.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) shape: Shape,
    /// Start, in bytes of the block.
    pub(super) start: usize,
    /// End; `None` where the parser does not give it, after an empty value.
    pub(super) end: Option<usize>,
}

/// Syntax of a value.
#[derive(Debug, Clone)]
pub(super) enum Shape {
    /// No text at all.
    Empty,
    Scalar,
    /// Lines under a `|` or `>`; the position is theirs, without that sign.
    BlockText,
    /// List with one item per line, after dashes.
    BlockList(Vec<Node>),
    /// List in brackets.
    FlowList(Vec<Node>),
    /// Mapping, or list within another value: no part of either is changed alone.
    Whole,
    Alias,
}

/// Key of the block with its value.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) key: String,
    /// Range of the key, in bytes of the block.
    pub(super) key_at: Range<usize>,
    pub(super) node: Node,
}

/// Keys of the block in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Mapping {
    pub(super) entries: Vec<Entry>,
    /// True if written in braces; such a block is not edited.
    pub(super) flow: bool,
}

impl Mapping {
    pub(super) fn values(&self) -> Map<String, Value> {
        self.entries.iter().map(|entry| (entry.key.clone(), entry.node.value.clone())).collect()
    }

    pub(super) fn find(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }
}

/// Parses a block.
///
/// # Errors
/// Position of the error, where it is not a YAML mapping.
pub(super) fn parse(yaml: &str) -> Result<Mapping, MalformedFrontMatter> {
    let mut reader = Reader {
        yaml,
        events: Parser::new_from_str(yaml),
        bytes: yaml.char_indices().map(|(at, _)| at).chain([yaml.len()]).collect(),
        anchors: HashMap::new(),
        values: 0,
        repeated_bytes: 0,
    };
    let mut mapping = Mapping::default();
    let mut documents = 0;
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
            Event::StreamEnd => return Ok(mapping),
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    return Err(wrong(&span.start, "a second document begins here"));
                }
            }
            Event::MappingStart(..) => {
                mapping.flow = reader.past_properties(reader.byte(span.start)).starts_with('{');
                mapping.entries = reader.entries(0)?.0;
            }
            // Block of comments alone.
            Event::Scalar(text, ScalarStyle::Plain, 0, None) if text.is_empty() => {}
            _ => return Err(wrong(&span.start, "front matter has to be keys with values")),
        }
    }
}

struct Reader<'y> {
    yaml: &'y str,
    events: Parser<'y, StrInput<'y>>,
    /// Byte offset of each character.
    bytes: Vec<usize>,
    anchors: HashMap<usize, Anchor>,
    values: usize,
    repeated_bytes: usize,
}

/// Value of an anchor, and its size.
struct Anchor {
    value: Value,
    values: usize,
    text_bytes: usize,
    depth: usize,
}

impl<'y> Reader<'y> {
    fn next(&mut self) -> Result<(Event<'y>, Span), MalformedFrontMatter> {
        match self.events.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(wrong(error.marker(), error.info())),
            // The parser ends with an event of its own.
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn byte(&self, mark: Marker) -> usize {
        self.bytes.get(mark.index()).copied().unwrap_or(self.yaml.len())
    }

    fn count(&mut self, more: usize, at: &Span) -> Result<(), MalformedFrontMatter> {
        self.values += more;
        match self.values > MAX_VALUES {
            true => Err(wrong(&at.start, "it has too many values")),
            false => Ok(()),
        }
    }

    /// Accounts for a value that is copied once more.
    fn repeat(&mut self, text_bytes: usize, at: &Span) -> Result<(), MalformedFrontMatter> {
        self.repeated_bytes += text_bytes;
        match self.repeated_bytes > MAX_REPEATED_BYTES {
            true => Err(wrong(&at.start, "its aliases repeat too much text")),
            false => Ok(()),
        }
    }

    /// Value of an anchor, if the limits allow a copy.
    fn alias(&mut self, id: usize, depth: usize, at: &Span) -> Result<Value, MalformedFrontMatter> {
        let Some(anchor) = self.anchors.get(&id) else {
            return Err(wrong(&at.start, "an alias stands for what it is a part of"));
        };
        if depth + anchor.depth > MAX_DEPTH {
            return Err(wrong(&at.start, "it is nested too deep"));
        }
        let (values, text_bytes) = (anchor.values, anchor.text_bytes);
        self.count(values, at)?;
        self.repeat(text_bytes, at)?;
        Ok(self.anchors[&id].value.clone())
    }

    /// Text after the anchor and the tag of a value.
    fn past_properties(&self, start: usize) -> &'y str {
        let mut rest = &self.yaml[start..];
        while rest.starts_with(['&', '!']) {
            rest = rest.trim_start_matches(|c: char| !c.is_whitespace()).trim_start();
        }
        rest
    }

    /// End of a scalar. For a quoted one the parser gives an end that extends to the line's end.
    fn end_of_scalar(&self, style: ScalarStyle, start: usize, end: usize) -> usize {
        let text = self.past_properties(start);
        let at = self.yaml.len() - text.len();
        let bytes = text.as_bytes();
        let mut next = 1;
        while next < bytes.len() {
            match (style, bytes[next]) {
                (ScalarStyle::DoubleQuoted, b'\\') => next += 1,
                (ScalarStyle::DoubleQuoted, b'"') => return at + next + 1,
                (ScalarStyle::SingleQuoted, b'\'') if bytes.get(next + 1) == Some(&b'\'') => {
                    next += 1
                }
                (ScalarStyle::SingleQuoted, b'\'') => return at + next + 1,
                (ScalarStyle::DoubleQuoted | ScalarStyle::SingleQuoted, _) => {}
                _ => return end,
            }
            next += 1;
        }
        end
    }

    /// Entries of a mapping whose start was read, and the position of its end.
    fn entries(&mut self, depth: usize) -> Result<(Vec<Entry>, usize), MalformedFrontMatter> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut keys = std::collections::HashSet::new();
        loop {
            let (event, span) = self.next()?;
            let mut key_at = self.byte(span.start)..self.byte(span.end);
            let key = match event {
                Event::MappingEnd => return Ok((entries, key_at.start)),
                Event::Scalar(text, style, ..) => {
                    key_at.end = self.end_of_scalar(style, key_at.start, key_at.end);
                    text.into_owned()
                }
                _ => return Err(wrong(&span.start, "a key has to be a text")),
            };
            if !keys.insert(key.clone()) {
                return Err(wrong(&span.start, &format!("the key `{key}` is there twice")));
            }
            let mut node = self.node(depth + 1)?;
            if matches!(node.shape, Shape::Empty) {
                // The parser gives some position after it.
                node.start = key_at.end;
            }
            entries.push(Entry { key, key_at, node });
        }
    }

    fn node(&mut self, depth: usize) -> Result<Node, MalformedFrontMatter> {
        let (event, span) = self.next()?;
        if depth > MAX_DEPTH {
            return Err(wrong(&span.start, "it is nested too deep"));
        }
        self.count(1, &span)?;
        let before = self.values;
        let (start, end) = (self.byte(span.start), self.byte(span.end));
        let (anchor, mut node) = match event {
            Event::Alias(id) => {
                let value = self.alias(id, depth, &span)?;
                return Ok(Node { value, shape: Shape::Alias, start, end: Some(end) });
            }
            Event::Scalar(text, style, anchor, tag) => {
                let texts = tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
                let plain = style == ScalarStyle::Plain && !texts;
                let value = if plain { yaml::resolved(&text) } else { text.as_ref().into() };
                let empty = plain && text.is_empty();
                let shape = match style {
                    _ if empty => Shape::Empty,
                    ScalarStyle::Literal | ScalarStyle::Folded => Shape::BlockText,
                    _ => Shape::Scalar,
                };
                let end = (!empty).then(|| self.end_of_scalar(style, start, end));
                (anchor, Node { value, shape, start, end })
            }
            Event::SequenceStart(anchor, _) => (anchor, self.list(start, depth)?),
            Event::MappingStart(anchor, _) => (anchor, self.mapping(start, depth)?),
            _ => return Err(wrong(&span.start, "a value is missing")),
        };
        if anchor > 0 {
            let (text_bytes, depth) = measure(&node.value);
            self.repeat(text_bytes, &span)?;
            let (value, values) = (node.value.clone(), self.values - before + 1);
            self.anchors.insert(anchor, Anchor { value, values, text_bytes, depth });
        }
        // A block's scalar includes the line ends after it.
        if let Some(end) = &mut node.end {
            let text = self.yaml.get(node.start..*end).unwrap_or_default();
            *end = node.start + text.trim_end().len();
        }
        Ok(node)
    }

    fn list(&mut self, start: usize, depth: usize) -> Result<Node, MalformedFrontMatter> {
        let flow = self.past_properties(start).starts_with('[');
        let mut items = Vec::new();
        let end = loop {
            let next = match self.events.peek() {
                Some(Ok((Event::SequenceEnd, span))) => Some(*span),
                _ => None,
            };
            if let Some(span) = next {
                let _end = self.next()?;
                // End of the bracket; the parser's span extends to the line's end.
                break self.byte(span.start) + 1;
            }
            items.push(self.node(depth + 1)?);
        };
        let end = if flow { Some(end) } else { items.last().and_then(|item: &Node| item.end) };
        let (value, shape) = match (depth, flow) {
            // The value of a key: its items are changed one by one.
            (1, true) => (values(&items), Shape::FlowList(items)),
            (1, false) => (values(&items), Shape::BlockList(items)),
            _ => (items.into_iter().map(|item| item.value).collect(), Shape::Whole),
        };
        Ok(Node { value, shape, start, end })
    }

    fn mapping(&mut self, start: usize, depth: usize) -> Result<Node, MalformedFrontMatter> {
        let flow = self.past_properties(start).starts_with('{');
        let (entries, brace) = self.entries(depth)?;
        let end = match flow {
            true => Some(brace + 1),
            false => entries.last().and_then(|entry| entry.node.end),
        };
        let values = entries.into_iter().map(|entry| (entry.key, entry.node.value));
        Ok(Node { value: Value::Object(values.collect()), shape: Shape::Whole, start, end })
    }
}

fn values(items: &[Node]) -> Value {
    items.iter().map(|item| item.value.clone()).collect()
}

/// Size of the texts in a value, and its nesting depth.
fn measure(value: &Value) -> (usize, usize) {
    let below = |(bytes, depth): (usize, usize), (more, deeper): (usize, usize)| {
        (bytes + more, depth.max(deeper + 1))
    };
    match value {
        Value::String(text) => (text.len(), 0),
        Value::Array(items) => items.iter().map(measure).fold((0, 0), below),
        Value::Object(map) => map.iter().fold((0, 0), |sum, (key, value)| {
            let (bytes, depth) = measure(value);
            below(sum, (bytes + key.len(), depth))
        }),
        _ => (0, 0),
    }
}

/// Makes an error; the block begins on the note's second line.
fn wrong(at: &Marker, why: &str) -> MalformedFrontMatter {
    MalformedFrontMatter { line: at.line() + 1, column: at.col() + 1, why: why.to_owned() }
}
