//! Template of a prompt: a text with names in braces, which are filled in without escaping.
//!
//! ```text
//! {{name}}  {{{name}}}  {{name.key}}                  a value: texts as they are, others as JSON
//! {{#if name}} … {{else}} … {{/if}}  {{#unless …}}    a part that is there, or not, by whether a value is empty
//! {{! comment }}
//! ```
//! The syntax is a part of Handlebars', without loops, partials and helpers: a text is read once, from its beginning
//! to its end, so that no template runs for long or grows beyond its bound. A name that is not there is an error.

use serde_json::Value;

/// Largest prompt in bytes.
pub(crate) const MAX_PROMPT_BYTES: usize = 1024 * 1024;

/// Value that a template may name.
#[derive(Debug, Clone)]
pub(crate) struct TemplateValue {
    pub(crate) name: &'static str,
    /// Value that conditions look at and that keys are looked up in.
    pub(crate) value: Value,
    /// Text that stands for the name alone.
    pub(crate) text: String,
}

impl TemplateValue {
    pub(crate) fn text(name: &'static str, text: &str) -> Self {
        Self { name, value: Value::String(text.to_owned()), text: text.to_owned() }
    }
}

enum Tag<'t> {
    Value(&'t str),
    /// `#if` and, inverted, `#unless`.
    Open {
        word: &'static str,
        name: &'t str,
    },
    Else,
    Close(&'t str),
    Comment,
}

/// Block that is not closed yet.
struct Block {
    word: &'static str,
    /// Whether what is around the block is shown.
    around: bool,
    /// Whether the part that is read now is shown.
    shown: bool,
    in_else: bool,
    /// Line that the block begins in.
    line: usize,
}

/// Renders a template.
///
/// # Errors
/// In words, with the line: a name that is not there, syntax that is not taken, a prompt that is too large.
pub(crate) fn render(template: &str, values: &[TemplateValue]) -> Result<String, String> {
    let mut page = Page { text: String::new(), blocks: Vec::new(), values };
    let (mut from, mut line) = (0, 1);
    while let Some(at) = template[from..].find("{{").map(|at| from + at) {
        line += newlines(&template[from..at]);
        let in_line = |why: String| format!("line {line}: {why}");
        let (tag, end) = read(template, at).map_err(in_line)?;
        let (before, after) = match tag {
            Tag::Value(_) => (at, end),
            _ => alone(template, at, end),
        };
        page.add(&template[from..before]).map_err(in_line)?;
        page.apply(&tag, line).map_err(in_line)?;
        line += newlines(&template[at..after]);
        from = after;
    }
    page.add(&template[from..])?;
    match page.blocks.last() {
        None => Ok(page.text),
        Some(Block { word, line, .. }) => {
            Err(format!("line {line}: `{{{{#{word}}}}}` has no `{{{{/{word}}}}}`"))
        }
    }
}

/// Whether a template names a value. Behind a tag that cannot be read it names nothing.
pub(crate) fn names(template: &str, name: &str) -> bool {
    let mut from = 0;
    while let Some(at) = template[from..].find("{{").map(|at| from + at) {
        let Ok((tag, end)) = read(template, at) else { return false };
        match tag {
            Tag::Value(path) | Tag::Open { name: path, .. }
                if path.split('.').next() == Some(name) =>
            {
                return true;
            }
            _ => from = end,
        }
    }
    false
}

fn newlines(text: &str) -> usize {
    text.matches('\n').count()
}

/// Tag at a position, and the position behind it.
fn read(template: &str, at: usize) -> Result<(Tag<'_>, usize), String> {
    let rest = &template[at..];
    let (open, close) = match rest {
        _ if rest.starts_with("{{!--") => ("{{!--", "--}}"),
        _ if rest.starts_with("{{{") => ("{{{", "}}}"),
        _ => ("{{", "}}"),
    };
    let length = rest[open.len()..].find(close);
    let length = length.ok_or_else(|| format!("`{open}` has no `{close}`"))?;
    let inner = rest[open.len()..open.len() + length].trim();
    let end = at + open.len() + length + close.len();
    let word = inner.split_whitespace().next().unwrap_or_default();
    let name = inner[word.len()..].trim();
    let tag = match word {
        _ if open == "{{!--" || inner.starts_with('!') => Tag::Comment,
        "#if" => Tag::Open { word: "if", name: path(name)? },
        "#unless" => Tag::Open { word: "unless", name: path(name)? },
        "else" if name.is_empty() => Tag::Else,
        "/if" | "/unless" if name.is_empty() => Tag::Close(&word[1..]),
        _ => Tag::Value(path(inner)?),
    };
    Ok((tag, end))
}

/// A name, and keys below it.
fn path(text: &str) -> Result<&str, String> {
    let is_part = |part: &str| {
        let word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        !part.is_empty() && part.chars().all(word)
    };
    match text.split('.').all(is_part) {
        true => Ok(text),
        false => {
            let shown: String = text.chars().take(40).collect();
            Err(format!(
                "`{{{{{shown}}}}}` is not taken: a tag is a name, `#if` or `#unless` with a name, `else` or a comment"
            ))
        }
    }
}

/// Where the text before and after a tag ends and begins: a line that has nothing but the tag goes with it.
fn alone(template: &str, at: usize, end: usize) -> (usize, usize) {
    let blank = [' ', '\t', '\r'];
    let before = template[..at].trim_end_matches(blank);
    let after = template[end..].trim_start_matches(blank);
    let begins = before.is_empty() || before.ends_with('\n');
    match (begins, after.strip_prefix('\n')) {
        (true, Some(after)) => (before.len(), template.len() - after.len()),
        (true, None) if after.is_empty() => (before.len(), template.len()),
        _ => (at, end),
    }
}

struct Page<'v> {
    text: String,
    blocks: Vec<Block>,
    values: &'v [TemplateValue],
}

impl Page<'_> {
    fn shown(&self) -> bool {
        self.blocks.last().is_none_or(|block| block.shown)
    }

    fn add(&mut self, text: &str) -> Result<(), String> {
        if self.shown() {
            if self.text.len() + text.len() > MAX_PROMPT_BYTES {
                return Err(format!("the prompt is larger than {MAX_PROMPT_BYTES} bytes"));
            }
            self.text.push_str(text);
        }
        Ok(())
    }

    fn apply(&mut self, tag: &Tag<'_>, line: usize) -> Result<(), String> {
        match *tag {
            Tag::Comment => {}
            Tag::Value(name) => {
                let text = self.text_of(name)?;
                self.add(&text)?;
            }
            Tag::Open { word, name } => {
                let around = self.shown();
                let filled = self.find(name)?.is_some_and(|(value, _)| !is_empty(value));
                let shown = around && filled == (word == "if");
                self.blocks.push(Block { word, around, shown, in_else: false, line });
            }
            Tag::Else => match self.blocks.last_mut() {
                Some(block) if !block.in_else => {
                    (block.shown, block.in_else) = (block.around && !block.shown, true);
                }
                _ => return Err("`{{else}}` belongs to no `{{#if}}`".to_owned()),
            },
            Tag::Close(word) => match self.blocks.pop() {
                Some(block) if block.word == word => {}
                _ => return Err(format!("`{{{{/{word}}}}}` closes no `{{{{#{word}}}}}`")),
            },
        }
        Ok(())
    }

    /// Value of a path, with its text if it is a name alone; `None` if a key is missing.
    ///
    /// # Errors
    /// When there is no such name.
    fn find(&self, path: &str) -> Result<Option<(&Value, Option<&str>)>, String> {
        let mut parts = path.split('.');
        let name = parts.next().unwrap_or_default();
        let named = self.values.iter().find(|value| value.name == name).ok_or_else(|| {
            let known: Vec<_> = self.values.iter().map(|value| value.name).collect();
            format!("there is no name `{name:.40}`; names are {}", known.join(", "))
        })?;
        let Some(first) = parts.next() else {
            return Ok(Some((&named.value, Some(&named.text))));
        };
        let value = [first].into_iter().chain(parts).try_fold(&named.value, |at, key| at.get(key));
        Ok(value.map(|value| (value, None)))
    }

    fn text_of(&self, path: &str) -> Result<String, String> {
        match self.find(path)? {
            Some((_, Some(text))) => Ok(text.to_owned()),
            Some((Value::String(text), None)) => Ok(text.clone()),
            Some((Value::Null, None)) => Ok(String::new()),
            Some((value, None)) => Ok(value.to_string()),
            None => Err(format!("`{path:.80}` is not there")),
        }
    }
}

/// Whether a condition takes a value for one that is not there.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(is) => !is,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(keys) => keys.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rendered(template: &str) -> Result<String, String> {
        let input = json!({ "path": "a & b", "depth": 3, "none": null, "list": [1] });
        let values = [
            TemplateValue::text("instruction", "Do <it>."),
            TemplateValue::text("previous_error", ""),
            TemplateValue { name: "input", text: "INPUT".to_owned(), value: input },
        ];
        render(template, &values)
    }

    #[test]
    fn names_are_filled_in_and_parts_are_there_by_their_values() {
        for (template, text) in [
            ("", ""),
            ("{{instruction}}|{{{ instruction }}}", "Do <it>.|Do <it>."),
            ("{{input}}|{{input.path}}|{{input.depth}}|{{input.list}}", "INPUT|a & b|3|[1]"),
            ("{{input.none}}", ""),
            ("a{{#if input}}b{{else}}c{{/if}}d", "abd"),
            ("a{{#if previous_error}}b{{else}}c{{/if}}d", "acd"),
            ("{{#unless previous_error}}x{{else}}y{{/unless}}", "x"),
            ("{{#if input.absent}}x{{/if}}", ""),
            ("{{#if previous_error}}{{#if input}}a{{else}}b{{/if}}{{else}}c{{/if}}", "c"),
            ("{{! a }}b{{!-- {{c}} --}}d", "bd"),
            ("a\n  {{#if previous_error}}  \r\nb\n{{/if}}\nc", "a\nc"),
            ("a\n{{#if input}}\nb\n{{/if}}", "a\nb\n"),
            ("{ {a} }", "{ {a} }"),
        ] {
            assert_eq!(rendered(template).as_deref(), Ok(text), "{template}");
        }
        assert!(names("x {{#if previous_error}}", "previous_error"));
        assert!(names("{{input.a}}", "input") && !names("{{!input}} input", "input"));
    }

    #[test]
    fn what_cannot_be_filled_in_is_an_error_with_its_line() {
        for (template, told) in [
            ("a\n{{intend}}", "line 2: there is no name `intend`"),
            ("{{input.absent}}", "`input.absent` is not there"),
            ("{{#if nothing}}{{/if}}", "there is no name `nothing`"),
            ("\n\n{{input", "line 3: `{{` has no `}}`"),
            ("{{#if input}}\n{{#if input}}\n{{/if}}", "line 1: `{{#if}}` has no `{{/if}}`"),
            ("{{/if}}", "closes no"),
            ("{{#if input}}{{/unless}}", "closes no"),
            ("{{else}}", "belongs to no"),
            ("{{#if input}}{{else}}{{else}}{{/if}}", "belongs to no"),
            ("{{#each input}}{{/each}}", "is not taken"),
            ("{{> input}}", "is not taken"),
            ("{{}}", "is not taken"),
            ("{{((((input))))}}", "is not taken"),
        ] {
            let error = rendered(template).expect_err(template);
            assert!(error.contains(told), "{template}: {error}");
        }
        let huge = "{{instruction}}".repeat(MAX_PROMPT_BYTES / 8 + 1);
        assert!(rendered(&huge).expect_err("it grows").contains("larger"));
        let deep = format!("{}{}", "{{#if input}}".repeat(20_000), "{{/if}}".repeat(20_000));
        assert_eq!(rendered(&deep).as_deref(), Ok(""), "no recursion");
        assert!(rendered(&"{{".repeat(100_000)).is_err());
        assert!(!names(&"{{".repeat(100_000), "input"));
    }
}
