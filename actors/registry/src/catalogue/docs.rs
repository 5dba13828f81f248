//! The generated tool pages.

use std::fmt::Write;

use hivekeep_kernel::{Addressing, Effect, RateClass, Risk, Tier, ToolSpec};
use hivekeep_runtime::schema_kinds::{kind, resolve};
use serde_json::{Map, Value};

use super::{Catalogue, ToolEntry};

/// File names and Markdown: an index and one page per family.
pub fn docs(catalogue: &Catalogue) -> Vec<(String, String)> {
    let mut index = "# Tools\n\nGenerated from the declarations; do not edit.\n".to_owned();
    let mut pages = Vec::new();
    for family in catalogue.families() {
        let file = format!("{}.md", slug(family));
        let entries: Vec<_> =
            catalogue.entries().filter(|entry| entry.spec.family == family).collect();
        let _ = write!(index, "\n## [{family}]({file})\n\n| tool | what it does |\n|---|---|\n");
        let mut page = format!("# {family}\n\nGenerated from the declarations; do not edit.\n");
        for entry in entries {
            let (name, first) = (entry.name(), first_sentence(&entry.description));
            // A heading's anchor has no dots.
            let anchor = name.replace('.', "");
            let _ = writeln!(index, "| [`{name}`]({file}#{anchor}) | {} |", cell(first));
            tool(&mut page, entry);
        }
        pages.push((file, page));
    }
    pages.insert(0, ("README.md".to_owned(), index));
    pages
}

fn tool(page: &mut String, entry: &ToolEntry) {
    let spec = entry.spec;
    let _ = write!(page, "\n## {}\n\n**{}.** {}\n\n", spec.name, spec.title, entry.description);
    let _ = writeln!(page, "{}\n", facts(spec));
    table(page, "Input", &entry.input_schema, true);
    if let Some(schema) = &entry.output_schema {
        table(page, "Output", schema, false);
    }
}

fn facts(spec: &ToolSpec) -> String {
    let effect = match spec.effect {
        Effect::Read => "changes nothing",
        Effect::Write => "changes something each time",
        Effect::Idempotent => "may be repeated safely",
        Effect::Destroy => "may destroy data",
    };
    let risk = match spec.risk {
        Risk::Low => "low",
        Risk::Medium => "medium",
        Risk::High => "high",
    };
    let rate = match spec.rate {
        RateClass::Create => "create",
        RateClass::Exec => "exec",
        RateClass::File => "file",
        RateClass::Default => "default",
    };
    let served = match spec.addressing {
        Addressing::Singleton(name) => format!("served by `{name}`"),
        Addressing::Field { kind, field } => format!("served by the {kind} in `{field}`"),
    };
    let tier = match spec.tier {
        Tier::User => "",
        Tier::System => "; for agents of the system only",
        Tier::Operator => "; for operators only",
    };
    let (secs, kib) = (spec.timeout_secs, spec.result_budget_bytes / 1024);
    format!(
        "{effect}; risk {risk}; rate class {rate}; {served}; \
         limit {secs} s, result up to {kib} KiB{tier}."
    )
}

fn table(page: &mut String, title: &str, schema: &Value, input: bool) {
    let empty = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    if properties.is_empty() {
        let text = if input { "none" } else { "see the schema in `hivekeep tools --json`" };
        let _ = writeln!(page, "{title}: {text}.\n");
        return;
    }
    let required = schema.get("required").and_then(Value::as_array);
    let _ =
        write!(page, "{title}:\n\n| field | type | required | description |\n|---|---|---|---|\n");
    for (name, property) in properties {
        let must = required.is_some_and(|all| all.iter().any(|one| one == name));
        let mut text = description(property, schema).to_owned();
        if let Some(default) = property.get("default").filter(|default| !default.is_null()) {
            let _ = write!(text, " Default: `{default}`.");
        }
        let must = if must { "yes" } else { "no" };
        let _ =
            writeln!(page, "| `{name}` | {} | {must} | {} |", kind(property, schema), cell(&text));
    }
    page.push('\n');
}

fn description<'a>(property: &'a Value, root: &'a Value) -> &'a str {
    let text = |schema: &'a Value| schema.get("description").and_then(Value::as_str);
    text(property).or_else(|| text(resolve(property, root))).unwrap_or_default()
}

fn first_sentence(text: &str) -> &str {
    text.split_once(". ").map_or(text, |(first, _)| first).lines().next().unwrap_or_default()
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn slug(family: &str) -> String {
    let words = family.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}
