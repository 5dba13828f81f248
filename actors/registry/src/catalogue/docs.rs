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

#[cfg(test)]
mod tests {
    use schemars::json_schema;

    use super::*;
    use crate::catalogue::tests::{SPEC, catalogue_of};

    #[test]
    fn a_page_tells_of_each_parameter_what_the_schema_says() {
        let input = || {
            json_schema!({
                "type": "object", "description": "Looks. Then it\ntells.", "required": ["many"],
                "properties": {
                    "kind": { "$ref": "#/$defs/Kind", "default": null, "description": "Which." },
                    "many": { "type": "integer", "description": "How many | at most.", "default": 3 },
                },
                "$defs": { "Kind": { "type": "string", "description": "A kind." } },
            })
        };
        let pages = docs(&catalogue_of(Effect::Read, input));
        let [(_, index), (file, page)] = pages.as_slice() else { panic!("{pages:?}") };
        assert_eq!(file, "odd.md");
        let row = "## [odd](odd.md)\n\n| tool | what it does |\n|---|---|\n| [`odd_tool`](odd.md#odd_tool) | Looks |\n";
        assert!(index.ends_with(row), "{index}");
        let expected = "# odd\n\nGenerated from the declarations; do not edit.\n\n## odd_tool\n\n\
            **Odd.** Looks. Then it\ntells.\n\n\
            changes nothing; risk low; rate class default; served by `odd`; limit 1 s, result up to 0 KiB.\n\n\
            Input:\n\n| field | type | required | description |\n|---|---|---|---|\n\
            | `kind` | string | no | Which. |\n\
            | `many` | integer | yes | How many \\| at most. Default: `3`. |\n\n\
            Output: see the schema in `hivekeep tools --json`.\n\n";
        assert_eq!(page, expected);
        let none = || json_schema!({ "type": "object", "description": "x" });
        assert!(docs(&catalogue_of(Effect::Read, none))[1].1.contains("Input: none.\n"));
    }

    #[test]
    fn each_fact_of_a_declaration_has_its_words() {
        let has = |spec: ToolSpec, words: &str| assert!(facts(&spec).contains(words), "{words}");
        for (effect, words) in [
            (Effect::Write, "changes something each time; "),
            (Effect::Idempotent, "may be repeated safely; "),
            (Effect::Destroy, "may destroy data; "),
        ] {
            has(ToolSpec { effect, ..SPEC }, words);
        }
        has(ToolSpec { risk: Risk::Medium, ..SPEC }, "risk medium;");
        has(ToolSpec { risk: Risk::High, ..SPEC }, "risk high;");
        for (rate, words) in
            [(RateClass::Create, "create"), (RateClass::Exec, "exec"), (RateClass::File, "file")]
        {
            has(ToolSpec { rate, ..SPEC }, &format!("rate class {words};"));
        }
        let addressing = Addressing::Field { kind: "team", field: "team_id" };
        has(ToolSpec { addressing, ..SPEC }, "served by the team in `team_id`;");
        has(ToolSpec { tier: Tier::System, ..SPEC }, " KiB; for agents of the system only.");
        let operator = ToolSpec { tier: Tier::Operator, result_budget_bytes: 3 * 1024, ..SPEC };
        has(operator, "up to 3 KiB; for operators only.");
    }

    #[test]
    fn names_of_files_are_plain_and_a_description_may_be_of_the_kind() {
        assert_eq!(slug("Host files -- of (users)"), "host-files-of-users");
        let root = serde_json::json!({ "$defs": { "A": { "description": "An a." } } });
        let used = serde_json::json!({ "$ref": "#/$defs/A" });
        assert_eq!(description(&used, &root), "An a.");
        assert_eq!(first_sentence("One line\nand another"), "One line");
    }
}
