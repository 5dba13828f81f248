//! Declarations of servers as tables: what is published, as what, and what is left out.

use std::sync::Arc;

use hivekeep_kernel::Effect;
use hivekeep_runtime::FamilyOptions;
use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Value, json};

use crate::{
    Options, ServerName, ServerOptions,
    declare::{Declarations, MAX_TOOLS},
};

fn tool(name: impl Into<String>) -> Tool {
    let Value::Object(schema) = json!({ "type": "object" }) else { unreachable!("an object") };
    Tool::new(name.into(), "Does it.", Arc::new(schema))
}

fn server() -> ServerName {
    ServerName::try_from("files".to_owned()).expect("a name")
}

fn declarations() -> Declarations {
    Declarations::new(&server(), "source/files")
}

#[test]
fn names_are_the_registrys_or_the_tool_is_left_out() {
    for (raw, published) in [
        ("read", Some("mcp__files__read")),
        ("Read-File.v2", Some("mcp__files__read_file_v2")),
        ("a_b", Some("mcp__files__a_b")),
        ("", None),
        ("2nd", None),
        ("a__b", None),
        ("a_", None),
        ("a b", None),
        ("é", None),
        (&"x".repeat(52), Some(&*format!("mcp__files__{}", "x".repeat(52)))),
        (&"x".repeat(53), None),
    ] {
        let (tools, left_out) =
            declarations().judge(&ServerOptions::default(), vec![tool(raw.to_owned())]);
        let name = tools.first().map(|tool| tool.spec.name);
        assert_eq!((name, left_out.len()), (published, usize::from(published.is_none())), "{raw}");
    }
}

#[test]
fn two_of_one_name_are_both_kept_from_being_called() {
    let (tools, left_out) =
        declarations().judge(&ServerOptions::default(), vec![tool("a-b"), tool("a.b"), tool("c")]);
    assert_eq!(tools.len(), 2);
    assert_eq!((tools[0].raw_name.as_str(), tools[0].conflict.as_deref()), ("a-b", Some("a.b")));
    assert_eq!(tools[1].conflict, None);
    assert_eq!(left_out[0].raw_name, "a.b");
}

#[test]
fn what_a_server_says_of_itself_counts_where_it_is_trusted() {
    let says = |annotations| tool("x").with_annotations(annotations);
    let all = || {
        [
            (says(ToolAnnotations::new().read_only(true).open_world(false)), Effect::Read, false),
            (says(ToolAnnotations::new().read_only(true)), Effect::Read, true),
            (
                says(ToolAnnotations::new().destructive(false).idempotent(true)),
                Effect::Idempotent,
                true,
            ),
            (says(ToolAnnotations::new().destructive(false)), Effect::Write, true),
            (says(ToolAnnotations::new()), Effect::Destroy, true),
            (tool("x"), Effect::Destroy, true),
        ]
    };
    for trust_annotations in [true, false] {
        let options = ServerOptions { trust_annotations, ..ServerOptions::default() };
        for (declared, effect, open_world) in all() {
            let (tools, _) = declarations().judge(&options, vec![declared]);
            let spec = tools[0].spec;
            let wanted =
                if trust_annotations { (effect, open_world) } else { (Effect::Destroy, true) };
            assert_eq!((spec.effect, spec.open_world), wanted);
            assert_eq!(spec.concurrency_safe, spec.effect == Effect::Read);
            assert_eq!((spec.source, spec.family), (Some("files"), "mcp__files"));
        }
    }
}

#[test]
fn a_server_that_never_says_the_same_twice_comes_to_an_end() {
    let (declarations, options) = (declarations(), ServerOptions::default());
    let mut left_out = 0;
    for round in 0..5 {
        let tools = (0..MAX_TOOLS).map(|nth| tool(format!("t{round}x{nth}"))).collect();
        left_out = declarations.judge(&options, tools).1.len();
    }
    assert_eq!(left_out, MAX_TOOLS);
    // What it declared before stays as it was.
    assert_eq!(declarations.judge(&options, vec![tool("t0x0")]).0.len(), 1);
}

#[test]
fn options_that_cannot_work_are_named() {
    let wrong = |more: Value| -> Vec<String> {
        let mut server = json!({ "command": ["x"] });
        server.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
        let read = serde_json::from_value::<Options>(json!({ "servers": { "a": server } }));
        let problems = read.expect("reads").problems().into_iter();
        problems.map(|(key, why)| format!("{key}: {why}")).collect()
    };
    assert_eq!(wrong(json!({})), [""; 0]);
    for (more, part) in [
        (json!({ "command": [] }), "give `command` or `url`"),
        (json!({ "url": "http://x/mcp" }), "either"),
        (json!({ "command": [], "url": "http://user@x/" }), "valid http"),
        (json!({ "folders": ["/"] }), "below `/`"),
        (json!({ "folders": ["/a/../b:ro"] }), "below `/`"),
        (json!({ "token_file": "token" }), "absolute"),
        (json!({ "env": { "A=B": "x" } }), "variable"),
        (json!({ "timeout_secs": 0 }), "between 1 and 3600"),
    ] {
        let found = wrong(more.clone());
        assert!(found.iter().any(|text| text.contains(part)), "{more}: {found:?}");
    }
    for name in ["", "A", "a__b", "a_", "1a", "a-b", &"a".repeat(25)] {
        assert!(ServerName::try_from(name.to_owned()).is_err(), "{name}");
    }
}
