//! Template of a prompt: names and conditions of Handlebars, without escaping, in which a name that is not there is
//! an error.
//!
//! Whoever deploys an agent writes its template, and the daemon renders it. So what may run for long, grow without
//! a bound or nest without one is refused: loops, partials, decorators, expressions in parentheses, and more than
//! [`MAX_BLOCKS`] blocks.

use std::io::{self, Write};

use handlebars::{
    Context, Handlebars, Helper, HelperResult, Output, RenderContext, RenderError,
    RenderErrorReason, no_escape,
};
use serde_json::{Map, Value};

/// Largest prompt in bytes.
pub(crate) const MAX_PROMPT_BYTES: usize = 1024 * 1024;
/// Most tags of a template, and bytes of one: the library's parser goes back and forth in them.
const MAX_TAGS: usize = 1000;
const MAX_TAG_BYTES: usize = 256;
/// Most blocks of a template, which may stand in one another.
const MAX_BLOCKS: usize = 64;
/// Helpers of the library that repeat a part, or give names another meaning in it.
const REFUSED: [&str; 2] = ["each", "with"];
/// Beginnings of conditions, in which the library takes a name that is not there for an empty value.
const CONDITIONS: [&str; 4] = ["#if ", "#unless ", "else if ", "else unless "];

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

/// Renders a template.
///
/// # Errors
/// In words, with the line where it is known: a name that is not there, syntax that is not taken, a prompt that is
/// too large.
pub(crate) fn render(template: &str, values: Vec<TemplateValue>) -> Result<String, String> {
    let names: Vec<_> = values.iter().map(|value| value.name).collect();
    check(template, &names)?;
    let mut registry = Handlebars::new();
    registry.set_strict_mode(true);
    registry.register_escape_fn(no_escape);
    REFUSED.iter().for_each(|name| registry.register_helper(name, Box::new(refused)));
    let mut data = Map::new();
    for TemplateValue { name, value, text } in values {
        if value.is_object() {
            // The library writes `[object]` for one.
            registry.register_helper(name, Box::new(written(text)));
        }
        data.insert(name.to_owned(), value);
    }
    let mut prompt = Prompt::default();
    let rendered = registry.render_template_to_write(template, &data, &mut prompt);
    if prompt.is_full {
        return Err(format!("it becomes larger than {MAX_PROMPT_BYTES} bytes"));
    }
    rendered.map_err(|error| told(&error, &names.join(", ")))?;
    String::from_utf8(prompt.bytes).map_err(|error| error.to_string())
}

/// Whether a template may name a value.
pub(crate) fn names(template: &str, name: &str) -> bool {
    tags(template).any(|tag| tag.contains(name))
}

/// Tags of a template without their first braces and blanks.
fn tags(template: &str) -> impl Iterator<Item = &str> {
    let inner = template.split("{{").skip(1).filter_map(|part| part.split("}}").next());
    let inner = inner.map(|tag| tag.trim_start_matches(['{', '~', ' ']));
    inner.filter(|tag| !tag.starts_with('!'))
}

/// Refuses what may recurse, as the library parses and renders a block within a block on the stack, and conditions
/// on unknown names.
fn check(template: &str, names: &[&str]) -> Result<(), String> {
    let count = template.matches("{{").count();
    if count > MAX_TAGS {
        return Err(format!("{count} tags; {MAX_TAGS} are allowed"));
    }
    if let Some(tag) = tags(template).find(|tag| tag.len() > MAX_TAG_BYTES) {
        return Err(format!("`{{{{{tag:.40}` is longer than {MAX_TAG_BYTES} bytes"));
    }
    let recursive = |tag: &&str| {
        tag.starts_with(['>', '*'])
            || tag.starts_with("#>")
            || tag.starts_with("#*")
            || tag.contains('(')
    };
    if let Some(tag) = tags(template).find(recursive) {
        return Err(format!(
            "`{{{{{tag:.40}}}}}` is not taken: write names, `#if`, `#unless`, `else` and comments"
        ));
    }
    let condition =
        |tag| CONDITIONS.iter().find_map(|word| str::strip_prefix(tag, word)).map(str::trim_start);
    let root = |path: &'_ str| path.split(['.', ' ', '~', '[']).next().map(str::to_owned);
    let unknown = |name: &String| !names.contains(&name.as_str());
    if let Some(name) = tags(template).filter_map(condition).filter_map(root).find(unknown) {
        return Err(no_name(&name, &names.join(", ")));
    }
    let is_block = |tag: &&str| tag.starts_with(['#', '^']) || tag.starts_with("else");
    match tags(template).filter(is_block).count() {
        count if count > MAX_BLOCKS => Err(format!("{count} blocks; {MAX_BLOCKS} are allowed")),
        _ => Ok(()),
    }
}

fn told(error: &RenderError, names: &str) -> String {
    let place = match error.reason() {
        RenderErrorReason::TemplateError(error) => error.pos().map(|(line, _)| line),
        _ => error.line_no,
    };
    let line = place.map(|line| format!("line {line}: ")).unwrap_or_default();
    match error.reason() {
        RenderErrorReason::TemplateError(error) => format!("{line}{}", error.reason()),
        RenderErrorReason::MissingVariable(Some(name)) => {
            format!("{line}{}", no_name(name, names))
        }
        reason => format!("{line}{reason}"),
    }
}

fn no_name(name: &str, names: &str) -> String {
    format!("there is no `{name:.80}`; names are {names}")
}

/// Helper in place of one of [`REFUSED`].
fn refused(
    helper: &Helper<'_>,
    _: &Handlebars<'_>,
    _: &Context,
    _: &mut RenderContext<'_, '_>,
    _: &mut dyn Output,
) -> HelperResult {
    let what = format!("`#{}` is not taken: write names and conditions", helper.name());
    Err(RenderErrorReason::Other(what).into())
}

/// Helper that writes a text.
fn written(
    text: String,
) -> impl Fn(
    &Helper<'_>,
    &Handlebars<'_>,
    &Context,
    &mut RenderContext<'_, '_>,
    &mut dyn Output,
) -> HelperResult {
    move |_, _, _, _, out| Ok(out.write(&text)?)
}

/// Text that is rendered, up to its bound.
#[derive(Default)]
struct Prompt {
    bytes: Vec<u8>,
    is_full: bool,
}

impl Write for Prompt {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_PROMPT_BYTES {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
        render(template, values.to_vec())
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
            ("{{#if previous_error}}{{#if input}}a{{else}}b{{/if}}{{else}}c{{/if}}", "c"),
            ("{{#if input.absent}}x{{/if}}", ""),
            ("{{! a }}b{{!-- {{c}} --}}d", "bd"),
            ("a\n{{#if input}}\nb\n{{/if}}", "a\nb\n"),
            ("{ {a} }", "{ {a} }"),
        ] {
            assert_eq!(rendered(template).as_deref(), Ok(text), "{template}");
        }
        assert!(names("x {{#if previous_error}}", "previous_error"));
        assert!(names("{{input.a}}", "input") && !names("{{!input}} input", "input"));
    }

    #[test]
    fn what_cannot_be_filled_in_is_an_error() {
        for (template, said) in [
            ("a\n{{intend}}", "line 2: there is no `intend`; names are instruction"),
            ("{{input.absent}}", "there is no `input.absent`"),
            ("{{#if nothing}}{{/if}}", "there is no `nothing`"),
            ("\n\n{{input", "line 3"),
            ("{{#if input}}", ""),
            ("{{/if}}", ""),
            ("{{#each input}}x{{/each}}", "`#each` is not taken"),
            ("{{#with input}}{{path}}{{/with}}", "`#with` is not taken"),
            ("{{#if input}}a{{else if nothing}}b{{/if}}", "there is no `nothing`"),
            ("{{> input}}", "is not taken"),
            ("{{~#*inline \"a\"}}{{> a}}{{/inline}}{{> a}}", "is not taken"),
            ("{{((((input))))}}", "is not taken"),
            ("{{}}", ""),
        ] {
            let error = rendered(template).expect_err(template);
            assert!(error.contains(said), "{template}: {error}");
        }
    }

    #[test]
    fn what_others_wrote_takes_neither_long_nor_much() {
        let long = TemplateValue::text("long", &"x".repeat(MAX_PROMPT_BYTES / 2));
        let grown = render(&"{{long}}".repeat(3), vec![long]);
        assert!(grown.expect_err("it grows").contains("larger"));
        for deep in ["{{#if input}}", "{{else if input}}", "{{^}}", "{{#a}}"] {
            let told = rendered(&deep.repeat(MAX_BLOCKS + 1)).expect_err(deep);
            assert!(told.contains("blocks"), "{told}");
            assert!(rendered(&deep.repeat(MAX_BLOCKS)).is_err());
        }
        let nested = "{{#if input}}".repeat(MAX_BLOCKS) + "x" + &"{{/if}}".repeat(MAX_BLOCKS);
        assert_eq!(rendered(&nested).as_deref(), Ok("x"));
        for many in [MAX_TAGS, MAX_TAGS + 1, 100_000] {
            assert!(rendered(&"{{".repeat(many)).is_err());
        }
        for bytes in [MAX_TAG_BYTES - 16, 100_000] {
            assert!(rendered(&format!("{{{{{}", "[".repeat(bytes))).is_err());
            assert!(rendered(&format!("{{{{input.{}}}}}", "a.".repeat(bytes / 2))).is_err());
        }
    }
}
