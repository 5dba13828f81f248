//! Templates in the notation of Handlebars: names, conditions and helpers, without escaping, in which a name that is
//! not there is an error.
//!
//! Strangers write templates, and the daemon renders them. So what may run for long, grow without a bound or nest
//! without one is refused: loops, partials, decorators, expressions in parentheses, and more than [`MAX_BLOCKS`]
//! blocks. The library parses, and rendering is a walk over its tree.

mod command;
#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use handlebars::{
    Path, PathSeg, Template, TemplateErrorReason,
    template::{HelperTemplate, Parameter, TemplateElement},
};
use serde_json::Value;

use self::command::CommandValues;

/// Largest text that a template becomes, in bytes.
pub const MAX_RENDERED_BYTES: usize = 1024 * 1024;
/// Most tags of a template, and bytes of one: the library's parser goes back and forth in them.
const MAX_TAGS: usize = 1000;
const MAX_TAG_BYTES: usize = 256;
/// Most blocks of a template, which may stand in one another.
const MAX_BLOCKS: usize = 64;
/// Helpers of values.
const HELPERS: [&str; 8] =
    ["json", "default", "length", "upper", "lower", "trim", "first_line", "keys"];
/// Most known names that a message lists.
const MAX_TOLD: usize = 24;

/// Helpers that a template may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateHelpers {
    /// None of them: names and conditions alone.
    None,
    /// Those of [`HELPERS`].
    Values,
}

/// Value that a template may name.
#[derive(Debug, Clone)]
pub struct TemplateValue<'v> {
    name: Cow<'v, str>,
    value: Cow<'v, Value>,
    text: Option<Cow<'v, str>>,
}

impl<'v> TemplateValue<'v> {
    /// Value that is written as it is, objects and lists as JSON.
    pub fn new(name: impl Into<Cow<'v, str>>, value: &'v Value) -> Self {
        Self { name: name.into(), value: Cow::Borrowed(value), text: None }
    }

    /// Value of a text.
    pub fn text(name: impl Into<Cow<'v, str>>, text: &str) -> Self {
        let value = Cow::Owned(Value::String(text.to_owned()));
        Self { name: name.into(), value, text: None }
    }

    /// Value that conditions look at and that keys are looked up in, and the text that stands for the name alone.
    pub fn shown(
        name: impl Into<Cow<'v, str>>,
        value: Value,
        text: impl Into<Cow<'v, str>>,
    ) -> Self {
        Self { name: name.into(), value: Cow::Owned(value), text: Some(text.into()) }
    }

    /// Name of the value.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Value that conditions look at and that keys are looked up in.
    pub fn value(&self) -> &Value {
        &self.value
    }
}

/// Template that is parsed, and calls nothing that it may not.
#[derive(Debug, Clone)]
pub struct TextTemplate {
    tree: Template,
    helpers: TemplateHelpers,
}

/// Renders a template whose names are those of `values`.
///
/// # Errors
/// In words, with the line where it is known: a name that is not there, syntax that is not taken, a text that
/// becomes too large.
pub fn render(
    text: &str,
    helpers: TemplateHelpers,
    values: &[TemplateValue<'_>],
) -> Result<String, String> {
    let template = TextTemplate::parse(text, helpers)?;
    let known = values.iter().map(TemplateValue::name).collect();
    template.check(&known)?;
    template.render(values)
}

/// Whether a template may name a value.
pub fn names(text: &str, name: &str) -> bool {
    tags(text).any(|tag| tag.contains(name))
}

/// Tags of a template without their first braces and blanks.
fn tags(text: &str) -> impl Iterator<Item = &str> {
    let inner = text.split("{{").skip(1).filter_map(|part| part.split("}}").next());
    let inner = inner.map(|tag| tag.trim_start_matches(['{', '~', ' ']));
    inner.filter(|tag| !tag.starts_with('!'))
}

/// Refuses what may recurse, as the library parses a block within a block on the stack.
fn check_size(text: &str) -> Result<(), String> {
    let count = text.matches("{{").count();
    if count > MAX_TAGS {
        return Err(format!("{count} tags; {MAX_TAGS} are allowed"));
    }
    if let Some(tag) = tags(text).find(|tag| tag.len() > MAX_TAG_BYTES) {
        return Err(format!("`{{{{{tag:.40}` is longer than {MAX_TAG_BYTES} bytes"));
    }
    if let Some(tag) = tags(text).find(|tag| tag.matches('(').count() > 1) {
        return Err(not_taken(tag));
    }
    let is_block = |tag: &&str| tag.starts_with(['#', '^']) || tag.starts_with("else");
    match tags(text).filter(is_block).count() {
        count if count > MAX_BLOCKS => Err(format!("{count} blocks; {MAX_BLOCKS} are allowed")),
        _ => Ok(()),
    }
}

fn not_taken(tag: &str) -> String {
    format!("`{{{{{tag:.40}}}}}` is not taken: write names, `#if`, `#unless`, `else` and comments")
}

/// Part of a template.
enum TemplatePart<'t> {
    Text(&'t str),
    Value(&'t Parameter),
    Helper(&'t str, &'t [Parameter]),
    Condition {
        negated: bool,
        value: &'t Parameter,
        then: Option<&'t Template>,
        otherwise: Option<&'t Template>,
    },
}

/// Reason why a template cannot be used, with the line where it is known.
struct TemplateFault(Option<usize>, String);

impl TemplateFault {
    fn told(self) -> String {
        match self {
            Self(Some(line), what) => format!("line {line}: {what}"),
            Self(None, what) => what,
        }
    }
}

/// Parts of a template with their lines.
fn parts<'t>(
    tree: &'t Template,
    helpers: TemplateHelpers,
) -> impl Iterator<Item = Result<(Option<usize>, TemplatePart<'t>), TemplateFault>> {
    let lines = tree.mapping.iter().map(|place| Some(place.0)).chain(std::iter::repeat(None));
    tree.elements.iter().zip(lines).filter_map(move |(element, line)| {
        let part = match element {
            TemplateElement::Comment(_) => return None,
            TemplateElement::RawString(text) => Ok(TemplatePart::Text(text)),
            TemplateElement::Expression(tag) | TemplateElement::HtmlExpression(tag) => {
                said(tag, helpers)
            }
            TemplateElement::HelperBlock(tag) => block(tag),
            TemplateElement::DecoratorExpression(tag) | TemplateElement::DecoratorBlock(tag) => {
                Err(not_taken(tag.name.as_name().unwrap_or_default()))
            }
            TemplateElement::PartialExpression(tag) | TemplateElement::PartialBlock(tag) => {
                Err(not_taken(tag.name.as_name().unwrap_or_default()))
            }
            _ => Err(not_taken("")),
        };
        Some(part.map(|part| (line, part)).map_err(|what| TemplateFault(line, what)))
    })
}

fn said(tag: &HelperTemplate, helpers: TemplateHelpers) -> Result<TemplatePart<'_>, String> {
    if tag.params.is_empty() && tag.hash.is_empty() {
        return Ok(TemplatePart::Value(&tag.name));
    }
    let name = tag.name.as_name().unwrap_or_default();
    if helpers == TemplateHelpers::None {
        return Err(not_taken(name));
    }
    if !HELPERS.contains(&name) {
        return Err(format!("there is no helper `{name:.40}`; helpers are {}", HELPERS.join(", ")));
    }
    let wanted = if name == "default" { 2 } else { 1 };
    if tag.params.len() != wanted || !tag.hash.is_empty() {
        return Err(format!("`{name}` takes this many values: {wanted}"));
    }
    Ok(TemplatePart::Helper(name, &tag.params))
}

fn block(tag: &HelperTemplate) -> Result<TemplatePart<'_>, String> {
    let name = tag.name.as_name().unwrap_or_default();
    match tag.params.as_slice() {
        [value]
            if ["if", "unless"].contains(&name)
                && tag.hash.is_empty()
                && tag.block_param.is_none() =>
        {
            let (then, otherwise) = (tag.template.as_ref(), tag.inverse.as_ref());
            Ok(TemplatePart::Condition { negated: name == "unless", value, then, otherwise })
        }
        _ => Err(format!("`#{name:.40}` is not taken: write names and conditions")),
    }
}

/// Keys from a root to a value.
fn keys(parameter: &Parameter) -> Result<Option<Vec<&str>>, String> {
    let Parameter::Path(path) = parameter else {
        return match parameter {
            Parameter::Literal(_) => Ok(None),
            other => Err(not_taken(other.as_name().unwrap_or("("))),
        };
    };
    let found = match path {
        Path::Relative((segments, _)) => segments
            .iter()
            .map(|segment| match segment {
                PathSeg::Named(name) => Some(name.as_str()),
                _ => None,
            })
            .collect::<Option<Vec<_>>>(),
        Path::Local(_) => None,
    };
    match found.filter(|keys| !keys.is_empty()) {
        Some(keys) => Ok(Some(keys)),
        None => Err(not_taken(parameter.as_name().unwrap_or_default())),
    }
}

fn no_name<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> String {
    let known: Vec<_> = known.take(MAX_TOLD).collect();
    format!("there is no `{name:.80}`; names are {}", known.join(", "))
}

impl TextTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// In words, with the line where it is known.
    pub fn parse(text: &str, helpers: TemplateHelpers) -> Result<Self, String> {
        check_size(text)?;
        let tree = Template::compile(text).map_err(|error| {
            let what = match error.reason() {
                TemplateErrorReason::InvalidSyntax(_) => {
                    "a tag is not closed, or holds more than names and helpers".to_owned()
                }
                reason => reason.to_string(),
            };
            TemplateFault(error.pos().map(|(line, _)| line), what).told()
        })?;
        let template = Self { tree, helpers };
        template.walk(&template.tree, &mut |_| Ok(())).map_err(TemplateFault::told)?;
        Ok(template)
    }

    /// Tells the first name that is not known, wherever it stands.
    ///
    /// # Errors
    /// In words, with its line.
    pub fn check(&self, known: &BTreeSet<&str>) -> Result<(), String> {
        let mut look = |keys: &[&str]| match keys.first() {
            Some(root) if !known.contains(root) => Err(no_name(root, known.iter().copied())),
            _ => Ok(()),
        };
        self.walk(&self.tree, &mut look).map_err(TemplateFault::told)
    }

    fn walk(
        &self,
        tree: &Template,
        look: &mut dyn FnMut(&[&str]) -> Result<(), String>,
    ) -> Result<(), TemplateFault> {
        for part in parts(tree, self.helpers) {
            let (line, part) = part?;
            let parameters = match &part {
                TemplatePart::Text(_) => continue,
                TemplatePart::Value(value) | TemplatePart::Condition { value, .. } => {
                    std::slice::from_ref(*value)
                }
                TemplatePart::Helper(_, parameters) => parameters,
            };
            for parameter in parameters {
                let looked = keys(parameter).and_then(|keys| look(&keys.unwrap_or_default()));
                looked.map_err(|what| TemplateFault(line, what))?;
            }
            if let TemplatePart::Condition { then, otherwise, .. } = part {
                for part in [then, otherwise].into_iter().flatten() {
                    self.walk(part, look)?;
                }
            }
        }
        Ok(())
    }

    /// Renders the template. For a name that is not among the values conditions do not hold, and `default` has its
    /// other value; it cannot be written.
    ///
    /// # Errors
    /// In words, with the line: a name that is not there, a helper for another kind of value, a text that becomes
    /// larger than `max_bytes`.
    pub fn render(&self, values: &[TemplateValue<'_>]) -> Result<String, String> {
        let mut rendering = Rendering::new(values, self.helpers);
        rendering.write(&self.tree).map_err(TemplateFault::told)?;
        Ok(rendering.text)
    }

    /// Renders a command of a POSIX shell. Its values are variables that are set in front of it, so they stay text;
    /// a template that is one tag alone, but for blanks around it, is the command itself.
    ///
    /// # Errors
    /// As [`Self::render`], and for a value in or behind a here-document.
    pub fn render_command(&self, values: &[TemplateValue<'_>]) -> Result<String, String> {
        let mut rendering = Rendering::new(values, self.helpers);
        let is_blank = |it: &&TemplateElement| matches!(it, TemplateElement::RawString(text) if text.trim().is_empty());
        let elements: Vec<_> = self.tree.elements.iter().filter(|it| !is_blank(it)).collect();
        let is_tag = matches!(
            elements[..],
            [TemplateElement::Expression(_) | TemplateElement::HtmlExpression(_)]
        );
        rendering.command = (!is_tag).then(CommandValues::default);
        rendering.write(&self.tree).map_err(TemplateFault::told)?;
        let assigned = rendering.command.map(|command| command.assigned).unwrap_or_default();
        Ok(assigned + &rendering.text)
    }

    /// Value of a template that is one name alone, the rendered text of any other.
    ///
    /// # Errors
    /// As [`Self::render`].
    pub fn value(&self, values: &[TemplateValue<'_>]) -> Result<Value, String> {
        use TemplateElement::{Expression, HtmlExpression};
        if let [Expression(tag) | HtmlExpression(tag)] = self.tree.elements.as_slice()
            && let Ok(TemplatePart::Value(name)) = said(tag, self.helpers)
        {
            return Rendering::new(values, self.helpers).there(name).cloned();
        }
        self.render(values).map(Value::String)
    }
}

/// Text that stands for a value.
fn plain(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Null => Cow::Borrowed(""),
        value => Cow::Owned(value.to_string()),
    }
}

/// Text that a template becomes.
struct Rendering<'v> {
    values: BTreeMap<&'v str, &'v TemplateValue<'v>>,
    helpers: TemplateHelpers,
    text: String,
    /// Values of a command, which its text names.
    command: Option<CommandValues>,
}

impl<'v> Rendering<'v> {
    fn new(values: &'v [TemplateValue<'v>], helpers: TemplateHelpers) -> Self {
        let values = values.iter().map(|value| (value.name(), value)).collect();
        Self { values, helpers, text: String::new(), command: None }
    }

    fn write(&mut self, tree: &Template) -> Result<(), TemplateFault> {
        for part in parts(tree, self.helpers) {
            let (line, part) = part?;
            let at = |what| TemplateFault(line, what);
            let value = match part {
                TemplatePart::Text(text) => {
                    self.command.iter_mut().for_each(|command| command.read(text));
                    self.push(Cow::Borrowed(text)).map_err(at)?;
                    continue;
                }
                TemplatePart::Value(name) => self.shown(name).map_err(at)?,
                TemplatePart::Helper(name, parameters) => {
                    Cow::Owned(self.helped(name, parameters).map_err(at)?)
                }
                TemplatePart::Condition { negated, value, then, otherwise } => {
                    let holds = self.find(value).map_err(at)?.is_some_and(is_something);
                    if let Some(part) = if holds != negated { then } else { otherwise } {
                        self.write(part)?;
                    }
                    continue;
                }
            };
            let text = match &mut self.command {
                Some(command) => Cow::Owned(command.variable(&value).map_err(at)?),
                None => value,
            };
            self.push(text).map_err(at)?;
        }
        Ok(())
    }

    fn push(&mut self, text: Cow<'_, str>) -> Result<(), String> {
        let assigned = self.command.as_ref().map_or(0, |command| command.assigned.len());
        if self.text.len() + assigned + text.len() > MAX_RENDERED_BYTES {
            return Err(format!("it becomes larger than {MAX_RENDERED_BYTES} bytes"));
        }
        self.text.push_str(&text);
        Ok(())
    }

    fn shown<'f>(&self, parameter: &'f Parameter) -> Result<Cow<'f, str>, String>
    where
        'v: 'f,
    {
        let alone = match keys(parameter)?.as_deref() {
            Some([root]) => self.values.get(root).and_then(|value| value.text.as_deref()),
            _ => None,
        };
        alone.map_or_else(|| self.there(parameter).map(plain), |text| Ok(Cow::Borrowed(text)))
    }

    fn find<'f>(&self, parameter: &'f Parameter) -> Result<Option<&'f Value>, String>
    where
        'v: 'f,
    {
        if let Parameter::Literal(value) = parameter {
            return Ok(Some(value));
        }
        let keys = keys(parameter)?.unwrap_or_default();
        let Some((root, keys)) = keys.split_first() else { return Ok(None) };
        let below = |value: &'v Value, key: &&str| match value {
            Value::Object(object) => object.get(*key),
            Value::Array(list) => list.get(key.parse::<usize>().ok()?),
            _ => None,
        };
        let root = self.values.get(root).map(|found| found.value());
        Ok(root.and_then(|value| keys.iter().try_fold(value, below)))
    }

    fn there<'f>(&self, parameter: &'f Parameter) -> Result<&'f Value, String>
    where
        'v: 'f,
    {
        self.find(parameter)?.ok_or_else(|| {
            let name = keys(parameter).ok().flatten().unwrap_or_default().join(".");
            no_name(&name, self.values.keys().copied())
        })
    }

    fn helped(&self, name: &str, parameters: &[Parameter]) -> Result<String, String> {
        let [first, rest @ ..] = parameters else { return Ok(String::new()) };
        if let [other] = rest {
            let found = self.find(first)?.map(plain).filter(|text| !text.is_empty());
            let text = found.map_or_else(|| self.there(other).map(plain), Ok)?;
            return Ok(text.into_owned());
        }
        let value = self.there(first)?;
        let text = plain(value);
        Ok(match (name, value) {
            ("json", value) => value.to_string(),
            ("upper", _) => text.to_uppercase(),
            ("lower", _) => text.to_lowercase(),
            ("trim", _) => text.trim().to_owned(),
            ("first_line", _) => text.lines().next().unwrap_or_default().to_owned(),
            ("length", Value::Array(list)) => list.len().to_string(),
            ("length", Value::Object(object)) => object.len().to_string(),
            ("length", Value::String(text)) => text.chars().count().to_string(),
            ("keys", Value::Object(object)) => {
                object.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
            }
            _ => return Err(format!("`{name}` is not for such a value: `{text:.40}`")),
        })
    }
}

/// Whether a condition holds for a value: 0, `false`, null and what is empty are nothing.
fn is_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(it) => *it,
        Value::Number(it) => it.as_f64().is_some_and(|it| it != 0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(object) => !object.is_empty(),
    }
}
