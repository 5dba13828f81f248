//! Templates in the notation of Go, as `template.render` has them, rendered as templates of the house: names, conditions
//! and a function of a value. What else Go has is refused by its name.

use std::collections::BTreeSet;

use hivekeep_runtime::template::{TemplateHelpers, TemplateValue, render};
use serde_json::{Map, Value};

/// Functions by their names in Go, and those of the house that do the same.
const FUNCTIONS: [(&str, &str); 9] = [
    ("json", "json"),
    ("toJson", "json"),
    ("toRawJson", "json"),
    ("count", "length"),
    ("len", "length"),
    ("upper", "upper"),
    ("lower", "lower"),
    ("trim", "trim"),
    ("keys", "keys"),
];

/// Renders a template with the members of an object. Text without tags of Go is a template of the house.
///
/// # Errors
/// In words: a name that is not there, what is not taken, a text that becomes too large.
pub fn render_go(text: &str, data: &Map<String, Value>) -> Result<String, String> {
    let translated = translated(text)?;
    let of_data = data.iter().map(|(name, value)| TemplateValue::new(name.as_str(), value));
    let optional = translated.optional.iter().filter(|name| !data.contains_key(**name));
    let optional = optional.map(|name| TemplateValue::new(*name, &Value::Null));
    let values: Vec<_> = of_data.chain(optional).collect();
    render(&translated.text, TemplateHelpers::Values, &values)
}

/// Template of the house.
#[derive(Default)]
struct Translated<'t> {
    text: String,
    /// Names that a default stands for where they are not there.
    optional: BTreeSet<&'t str>,
    /// Blocks that have not ended.
    open: usize,
}

fn translated(text: &str) -> Result<Translated<'_>, String> {
    let (mut out, mut rest) = (Translated::default(), text);
    while let Some((before, behind)) = rest.split_once("{{") {
        let Some((tag, behind)) = behind.split_once("}}") else {
            return Err("a tag has no `}}`".to_owned());
        };
        let trims = [tag.starts_with("- "), tag.ends_with(" -")];
        let inner = tag.strip_prefix('-').filter(|_| trims[0]).unwrap_or(tag);
        let inner = inner.strip_suffix('-').filter(|_| trims[1]).unwrap_or(inner).trim();
        out.text.push_str(if trims[0] { before.trim_end() } else { before });
        let tag = tag_of(inner, &mut out)?;
        out.text.push_str(&tag);
        rest = if trims[1] { behind.trim_start() } else { behind };
    }
    out.text.push_str(rest);
    match out.open {
        0 => Ok(out),
        _ => Err("a block has no `{{ end }}`".to_owned()),
    }
}

fn tag_of<'t>(tag: &'t str, to: &mut Translated<'t>) -> Result<String, String> {
    let shown: String = tag.chars().take(80).collect();
    let refused = |what: &str| {
        Err(format!("`{what}` is not here, in `{{{{ {shown} }}}}`: make the text by a command"))
    };
    if tag.starts_with("/*") || tag.starts_with('!') {
        return Ok(String::new());
    }
    if let Some(condition) = tag.strip_prefix("if ") {
        to.open += 1;
        return match path(condition.trim()) {
            Some(path) => Ok(format!("{{{{#if {path}}}}}")),
            None => refused(condition.trim()),
        };
    }
    match tag {
        "else" => return Ok("{{else}}".to_owned()),
        "end" => {
            to.open = to.open.saturating_sub(1);
            return Ok("{{/if}}".to_owned());
        }
        _ => {}
    }
    if !tag.starts_with(['.', '"', '(']) && !tag.contains(" .") {
        // A name, a helper or a condition of the house.
        let first = tag.split_whitespace().next().unwrap_or_default();
        return match ["range", "with", "define", "template", "block", "break"].contains(&first) {
            true => refused(first),
            false => Ok(format!("{{{{{tag}}}}}")),
        };
    }
    let (value, pipe) =
        tag.split_once('|').map_or((tag, None), |(value, pipe)| (value, Some(pipe)));
    let (value, call) = match value.trim().rsplit_once(' ') {
        Some((call, value)) if pipe.is_none() => (value, Some(call)),
        _ => (value.trim(), pipe.map(str::trim)),
    };
    let Some(value) = path(value) else { return refused(value) };
    let Some(call) = call else { return Ok(format!("{{{{{value}}}}}")) };
    if let Some(default) = call.strip_prefix("default ").map(str::trim)
        && is_literal(default)
    {
        to.optional.extend(value.split('.').next());
        return Ok(format!("{{{{default {value} {default}}}}}"));
    }
    match FUNCTIONS.iter().find(|(name, _)| *name == call) {
        Some((_, helper)) => Ok(format!("{{{{{helper} {value}}}}}")),
        None => refused(call),
    }
}

/// Path of a value below the root, as `.a.b`.
fn path(text: &str) -> Option<&str> {
    let path = text.strip_prefix('.')?;
    let part = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
    };
    path.split('.').all(part).then_some(path)
}

fn is_literal(text: &str) -> bool {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    inner.is_some_and(|inner| !inner.contains(['"', '\\'])) || text.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn templates_of_go_are_rendered_as_far_as_they_are_names_conditions_and_functions() {
        let data = json!({ "name": "Ann", "app": { "id": 7, "tags": ["a", "b"] }, "no": false });
        let data = data.as_object().cloned().unwrap_or_default();
        for (text, rendered) in [
            ("Hello, {{ .name }}!", "Hello, Ann!"),
            ("${X} `y` {{.app.id}} <b>", "${X} `y` 7 <b>"),
            ("{{ .name | upper }}{{ lower .name }}", "ANNann"),
            ("{{ .app.tags | toJson }} {{ .app.tags | count }}", "[\"a\",\"b\"] 2"),
            ("{{ if .no }}x{{ else }}y{{ end }}{{/* aside */}}", "y"),
            ("a  {{- .name -}}  b", "aAnnb"),
            ("a {{- \" \" }}", "!"),
            ("{{name}} {{upper name}}", "Ann ANN"),
            ("{{ .missing | default \"none\" }}", "none"),
            ("{{ default 7 .app.missing }}", "7"),
            ("{{ .missing }}", "!"),
            ("{{ range .app.tags }}{{ end }}", "!"),
            ("{{ .name | replace \"a\" \"b\" }}", "!"),
            ("{{ .name | upper | lower }}", "!"),
            ("{{ . }}", "!"),
            ("{{ if .no }}x", "!"),
            ("{{ .name", "!"),
        ] {
            let got = render_go(text, &data);
            match rendered {
                "!" => assert!(got.is_err(), "{text}: {got:?}"),
                _ => assert_eq!(got.as_deref(), Ok(rendered), "{text}"),
            }
        }
    }
}
