use hivekeep_kernel::{
    Addressing, Effect, RateClass, Risk, Tier, ToolSpec,
    tool::{one_token, own_timeout},
};
use schemars::{Schema, json_schema};
use serde_json::json;

use super::*;
use crate::test_util::toy_tools;

fn toys() -> Catalogue {
    Catalogue::new(toy_tools()).expect("the toys are declared well")
}

pub(crate) const SPEC: ToolSpec = ToolSpec {
    name: "odd_tool",
    title: "Odd",
    family: "odd",
    source: None,
    effect: Effect::Read,
    concurrency_safe: true,
    open_world: false,
    risk: Risk::Low,
    tier: Tier::User,
    access: hivekeep_kernel::Access::Any,
    rate: RateClass::Default,
    rate_of: hivekeep_kernel::tool::rate_as_declared,
    addressing: Addressing::Singleton("odd"),
    timeout_secs: 1,
    limit_secs: own_timeout,
    result_budget_bytes: 100,
    weight: one_token,
    told_by: None,
    keyed: false,
    content: hivekeep_kernel::tool::plain_result,
};

fn object() -> Schema {
    json_schema!({ "type": "object", "description": "Odd." })
}

/// A catalogue of one tool with this effect and input.
pub(crate) fn catalogue_of(effect: Effect, input: fn() -> Schema) -> Catalogue {
    let spec = ToolSpec { effect, ..SPEC };
    let info = Box::leak(Box::new(ToolInfo { spec, input, output: object }));
    Catalogue::new([&*info]).expect("declared well")
}

/// The error of a catalogue with one tool made from these.
fn refusal(
    spec: ToolSpec,
    input: fn() -> Schema,
    output: fn() -> Schema,
) -> Option<CatalogueError> {
    let info = Box::leak(Box::new(ToolInfo { spec, input, output }));
    Catalogue::new([&*info]).err()
}

#[test]
fn a_dotted_tool_answers_to_both_names() {
    let toys = toys();
    for name in ["toy.admin", "toy_admin"] {
        assert_eq!(toys.find(name).expect("found").name(), "toy.admin");
    }
    assert!(toys.find("toy.echo").is_none(), "an underscore is not a dot");
}

#[test]
fn two_declarations_of_one_name_are_refused() {
    let info = |name, family| -> &'static ToolInfo {
        Box::leak(Box::new(ToolInfo {
            spec: ToolSpec { name, family, ..SPEC },
            input: object,
            output: object,
        }))
    };
    for (one, other) in [
        (info("a_tool", "one"), info("a_tool", "one")),
        (info("a.tool", "one"), info("a_tool", "other")),
        (info("a_tool", "one"), info("a.tool", "other")),
        (info("a.tool_b", "one"), info("a_tool.b", "one")),
    ] {
        let error = Catalogue::new([one, other]).expect_err("twice");
        assert!(matches!(error, CatalogueError::TwiceNamed(_)), "{error}");
    }
}

#[test]
fn a_family_may_declare_a_dotted_name_and_its_underscore_form() {
    let info = |name| -> &'static ToolInfo {
        Box::leak(Box::new(ToolInfo {
            spec: ToolSpec { name, ..SPEC },
            input: object,
            output: object,
        }))
    };
    for tools in [["a.tool", "a_tool"], ["a_tool", "a.tool"]] {
        let catalogue = Catalogue::new(tools.map(info)).expect("two names of one thing");
        for name in tools {
            assert_eq!(catalogue.find(name).expect("found").name(), name);
        }
        let names = |names| {
            let view = ToolView { names, ..ToolView::operator() };
            catalogue.visible(&view).map(|entry| entry.name()).collect::<Vec<_>>()
        };
        assert_eq!(names(NameStyle::AsDeclared), tools);
        assert_eq!(names(NameStyle::Underscored), ["a_tool"]);
    }
}

#[test]
fn defective_declarations_are_refused_each_for_its_reason() {
    assert_eq!(refusal(SPEC, object, object), None);
    for name in ["ab", "Upper", "with-dash", "with space", ""] {
        let error = refusal(ToolSpec { name, ..SPEC }, object, object);
        assert!(matches!(error, Some(CatalogueError::BadName(_))), "{name}");
    }
    let text = || json_schema!({ "type": "string", "description": "x" });
    let either = || json_schema!({ "description": "x", "type": "object", "oneOf": [{}, {}] });
    let bare = || json_schema!({ "description": "x", "type": "object", "properties": { "a": {} } });
    let silent = || json_schema!({ "type": "object" });
    assert!(matches!(
        refusal(SPEC, text, object),
        Some(CatalogueError::BadSchema { side: "input", .. })
    ));
    assert!(matches!(
        refusal(SPEC, object, text),
        Some(CatalogueError::BadSchema { side: "output", .. })
    ));
    assert!(matches!(refusal(SPEC, either, object), Some(CatalogueError::BadSchema { .. })));
    assert!(matches!(refusal(SPEC, bare, object), Some(CatalogueError::Undescribed { .. })));
    assert!(matches!(refusal(SPEC, silent, object), Some(CatalogueError::Undescribed { .. })));
    let untitled = refusal(ToolSpec { title: " ", ..SPEC }, object, object);
    assert!(matches!(untitled, Some(CatalogueError::Undescribed { .. })));
}

#[test]
fn outputs_may_be_one_of_several_objects() {
    let objects = || {
        json_schema!({ "anyOf": [{ "$ref": "#/$defs/A" }, { "type": "object" }],
            "$defs": { "A": { "type": "object" } } })
    };
    let mixed = || json_schema!({ "anyOf": [{ "type": "object" }, { "type": "null" }] });
    assert_eq!(refusal(SPEC, object, objects), None);
    assert!(matches!(refusal(SPEC, object, mixed), Some(CatalogueError::BadSchema { .. })));
}

#[test]
fn listed_tools_are_what_strict_clients_take() {
    let toys = toys();
    let view = ToolView { output_schemas: true, ..ToolView::operator() };
    let listing = mcp_listing(&toys, &view);
    assert_eq!(listing.len(), toy_tools().len());
    for tool in &listing {
        for side in ["inputSchema", "outputSchema"] {
            assert_eq!(tool[side]["type"], "object", "{tool}");
            assert!(tool[side]["properties"].is_object());
            assert!(tool[side].get("$schema").is_none() && tool[side].get("title").is_none());
        }
        assert!(!tool["description"].as_str().expect("a text").is_empty());
        assert_eq!(tool["annotations"]["title"], tool["title"]);
        let text = tool.to_string();
        assert!(!text.contains("\"format\":\"uint"), "{text}");
    }
    let echo = listing.iter().find(|tool| tool["name"] == "toy_echo").expect("listed");
    assert_eq!(echo["inputSchema"]["additionalProperties"], false);
    assert_eq!(echo["inputSchema"]["required"], json!(["text"]));
    assert!(echo["inputSchema"]["properties"]["times"].get("maximum").is_none(), "it says nothing");
    let lean = mcp_listing(&toys, &ToolView::operator());
    assert!(lean.iter().all(|tool| tool.get("outputSchema").is_none()), "not asked for");
    let hints = |name: &str| {
        let tool = listing.iter().find(|tool| tool["name"] == name).expect("listed");
        ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"]
            .map(|hint| tool["annotations"][hint].as_bool().expect("said"))
    };
    assert_eq!(hints("toy_echo"), [true, false, true, false]);
    assert_eq!(hints("toy_wait"), [false, false, true, false]);
    assert_eq!(hints("toy_fail"), [false, false, false, false]);
    assert_eq!(hints("toy_panic"), [false, true, false, false]);
}

#[test]
fn a_view_shows_its_families_its_tier_and_its_names() {
    let toys = toys();
    let names = |view: &ToolView| -> Vec<String> {
        let listing = mcp_listing(&toys, view);
        listing.iter().map(|tool| tool["name"].as_str().expect("a text").to_owned()).collect()
    };
    let user = names(&ToolView::default());
    assert!(user.contains(&"toy_echo".to_owned()) && !user.contains(&"toy.admin".to_owned()));
    assert!(names(&ToolView::operator()).contains(&"toy.admin".to_owned()));
    let boxes = ToolView { toolsets: Some(vec!["Toy-Boxes".to_owned()]), ..ToolView::default() };
    assert_eq!(names(&boxes), ["toy.look"]);
    let underscored = ToolView { names: NameStyle::Underscored, ..boxes.clone() };
    assert_eq!(names(&underscored), ["toy_look"]);
    assert_eq!(names(&ToolView { names: NameStyle::Dotted, ..boxes.clone() }), ["toy.look"]);
    assert_eq!(toys.check(&boxes), Ok(()));
    let wrong = ToolView { toolsets: Some(vec!["cars".to_owned()]), ..ToolView::default() };
    assert_eq!(toys.check(&wrong).expect_err("no cars").code, "unknown_toolset");
    assert_eq!(names(&wrong), [""; 0]);
}

#[test]
fn the_nearest_names_are_of_the_view() {
    let toys = toys();
    assert_eq!(toys.nearest("toy_ecko", &ToolView::default())[0], "toy_echo");
    assert_eq!(toys.nearest("toy-admin", &ToolView::operator())[0], "toy.admin");
    assert!(!toys.nearest("toy_admin", &ToolView::default()).contains(&"toy.admin".to_owned()));
    assert_eq!(toys.nearest("zzzz", &ToolView::operator()), [""; 0]);
}

#[test]
fn the_pages_name_every_tool_and_parameter() {
    let toys = toys();
    let pages = docs(&toys);
    let names: Vec<_> = pages.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["README.md", "toys.md", "toy-boxes.md"]);
    for entry in toys.entries() {
        let page =
            pages.iter().find(|(_, text)| text.contains(&format!("\n## {}\n", entry.name())));
        let (_, page) = page.expect("a page with the tool");
        let properties = entry.input_schema["properties"].as_object().expect("an object");
        for name in properties.keys() {
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
        }
        assert!(pages[0].1.contains(&format!("`{}`", entry.name())));
    }
    assert!(pages[1].1.contains("Default: `1`."));
}
