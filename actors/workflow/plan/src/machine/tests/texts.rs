use hivekeep_runtime::template::MAX_RENDERED_BYTES;
use serde_json::json;

use super::*;
use crate::machine::{MAX_BLACKBOARD_BYTES, MAX_BLACKBOARD_KEYS, MachineScope, final_output};

const SPEC: &str = "
  context: { limit: 2 }
  states:
    A: { kind: System, command: x, transitions: [{ condition: always, target: B }] }
    B: { kind: Human, prompt: x, transitions: [{ condition: always, target: C }] }
    C: { kind: Subworkflow, workflow_id: x, result_key: child, transitions: [] }
";

/// Calls with the scope of `B`, behind `A`, on its second visit and with feedback.
fn scoped<T>(manifest: &WorkflowManifest, see: impl FnOnce(MachineScope<'_>) -> T) -> T {
    let mut blackboard =
        begun(manifest, json!({ "extra": { "a": [1, { "b": "<x>" }] } })).expect("it fits");
    blackboard.put_output("A", &manifest.spec.states["A"], &command(0)).expect("it fits");
    blackboard.put_output("B", &manifest.spec.states["B"], &human("no")).expect("it fits");
    let visits = BTreeMap::from([("A".to_owned(), 1), ("B".to_owned(), 2)]);
    let view = MachineView {
        spec: &manifest.spec,
        blackboard: &blackboard,
        state: "B",
        visits: &visits,
        transitions: 3,
        feedback: Some("once more"),
    };
    see(view.scope())
}

#[test]
fn templates_name_what_the_run_has() {
    let manifest = workflow(SPEC);
    scoped(&manifest, |scope| {
        for (template, text) in [
            ("{{A.stdout}}|{{{A.output.stderr}}}|{{A.exit_code}}", "out\n|err|0"),
            ("{{limit}}|{{blackboard.limit}}|{{workflow.context.limit}}", "2|2|2"),
            ("{{workflow.name}} {{workflow.version}} {{workflow.execution_id}}", "x 1.2.3 run"),
            ("{{workflow.task}}|{{input.task}}|{{intent}}|{{tenant_id}}", "write|write|do it|t"),
            (
                "{{state.name}} {{state.visit}} {{state.feedback}}|{{feedback}}",
                "B 2 once more|once more",
            ),
            ("{{human.feedback}}|{{B.response}}|{{keys input}}", "no|no|task, n"),
            ("{{extra}}|{{blackboard.extra.a.1.b}}", r#"{"a":[1,{"b":"<x>"}]}|<x>"#),
            ("{{#if C}}a{{else}}b{{/if}}{{#if blackboard.C}}a{{/if}}{{default child 'c'}}", "bc"),
        ] {
            assert_eq!(scope.render(template).as_deref(), Ok(text), "{template}");
        }
        for (template, said) in [
            ("{{C.output}}", "there is no `C.output`"),
            ("{{A.absent}}", "there is no `A.absent`"),
            ("{{absent}}", "there is no `absent`"),
            ("{{#each extra.a}}x{{/each}}", "is not taken"),
            ("{{json blackboard", "line 1"),
        ] {
            let told = scope.render(template).expect_err(template);
            assert!(told.contains(said), "{template}: {told}");
        }
        let handler = scope.render_handler("{{A.exit_code}} {{output}}", &json!({ "a": 1 }));
        assert_eq!(handler.as_deref(), Ok(r#"0 {"a":1}"#));
        assert_eq!(scope.input("do").as_deref(), Ok("do\n\nonce more"));
        assert_eq!(scope.input("{{state.feedback}}!").as_deref(), Ok("once more!"));
        assert_eq!(scope.child_input("{{extra.a}}"), Ok(json!([1, { "b": "<x>" }])));
        assert_eq!(scope.child_input(r#"{ "n": {{limit}} }"#), Ok(json!({ "n": 2 })));
        assert_eq!(scope.child_input("{{limit}}!"), Ok(json!({ "input": "2!" })));
        let env = [("n", "{{state.visit}}"), ("t", "v{{limit}}")];
        let env = env.map(|(key, text)| (key.to_owned(), text.to_owned())).into();
        assert_eq!(scope.update(&env).map(Value::Object), Ok(json!({ "n": 2, "t": "v2" })));
    });
}

#[test]
fn keys_of_the_run_are_not_set_by_others() {
    let manifest = workflow(SPEC);
    let taken = [
        "instruction",
        "input",
        "iteration_number",
        "previous_error",
        "context",
        "workflow",
        "tenant_id",
        "state",
        "human",
        "blackboard",
        "feedback",
        "intent",
        "A",
    ];
    for key in taken {
        let told = begun(&manifest, json!({ key: 1 })).expect_err(key);
        assert!(told.contains(key), "{told}");
    }
    let mut blackboard = begun(&manifest, json!({ "limit": 5 })).expect("it fits");
    assert_eq!(blackboard.values()["limit"], 5);
    let update = |key: &str| {
        let values = [(key.to_owned(), json!(1))].into_iter().collect();
        let result = StateResult::Update { values };
        StateOutput { status: StateStatus::Succeeded, error: None, result }
    };
    let state = &manifest.spec.states["A"];
    assert!(blackboard.put_output("A", state, &update("workflow")).is_err());
    blackboard.put_output("A", state, &update("rounds")).expect("it may");
    assert_eq!(blackboard.values()["rounds"], 1);
    let result =
        StateResult::Subworkflow { execution_id: "e".to_owned(), output: Some(json!([1])) };
    let output = StateOutput { status: StateStatus::Succeeded, error: None, result };
    blackboard.put_output("C", &manifest.spec.states["C"], &output).expect("it fits");
    assert_eq!(blackboard.values()["child"], json!([1]));
    assert_eq!(blackboard.values()["C"]["execution_id"], "e");
}

#[test]
fn a_blackboard_is_bounded_in_bytes_and_keys() {
    let manifest = workflow(SPEC);
    let mut blackboard = begun(&manifest, json!({})).expect("it fits");
    let half = json!("x".repeat(MAX_BLACKBOARD_BYTES / 2 + 1));
    blackboard.set("a", half.clone()).expect("it fits");
    blackboard.set("a", half.clone()).expect("it is in place of the other");
    assert!(blackboard.set("b", half).expect_err("too much").contains("bytes"));
    blackboard.set("a", json!(1)).expect("less fits");
    let set = |blackboard: &mut Blackboard| {
        (0..).find_map(|n| blackboard.set(&format!("k{n}"), json!(1)).err())
    };
    assert!(set(&mut blackboard).expect("a bound").contains("keys"));
    assert_eq!(blackboard.values().as_object().map(|it| it.len()), Some(MAX_BLACKBOARD_KEYS));
}

#[test]
fn a_final_output_is_as_its_schema_wants_it() {
    let mut manifest = workflow(SPEC);
    let object = |value: Value| value.as_object().cloned();
    let metadata = |manifest: &mut WorkflowManifest, template: Value, schema: Value| {
        manifest.metadata.output_template = object(template);
        manifest.metadata.output_schema = object(schema);
        scoped(manifest, |scope| final_output(&manifest.metadata, &scope))
    };
    let template = json!({
        "code": "{{A.exit_code}}", "n": "{{limit}}0", "text": "{{extra.a}}", "is": "tr{{default child 'ue'}}",
        "list": ["{{state.visit}}"], "o": "{{json extra}}", "id": "{{limit}}", "kept": 7,
    });
    let wants = |kind: &str| json!({ "type": kind });
    let schema = json!({ "type": "object", "required": ["code"], "properties": {
        "code": wants("integer"), "n": wants("integer"), "text": wants("string"), "is": wants("boolean"),
        "list": { "type": "array", "items": wants("integer") }, "o": wants("object"), "id": wants("string"),
    } });
    let output = metadata(&mut manifest, template.clone(), schema).expect("it fits");
    assert_eq!(
        output,
        Some(json!({
            "code": 0, "n": 20, "text": r#"[1,{"b":"<x>"}]"#, "is": true, "list": [2],
            "o": { "a": [1, { "b": "<x>" }] }, "id": "2", "kept": 7,
        }))
    );
    let plain = metadata(&mut manifest, template, Value::Null).expect("it fits");
    assert_eq!(plain.map(|it| it["n"].clone()), Some(json!("20")));
    assert_eq!(metadata(&mut manifest, Value::Null, Value::Null), Ok(None));
    let wrong = json!({ "properties": { "a": wants("integer") } });
    let told = metadata(&mut manifest, json!({ "a": "x{{limit}}" }), wrong).expect_err("no number");
    assert!(told.contains("/a") && !told.contains("x2"), "{told}");
    let told = metadata(&mut manifest, json!({ "a": ["{{C.output}}"] }), Value::Null);
    assert!(told.expect_err("it is not there").contains("`C.output`"));
}

#[test]
fn hostile_texts_are_refused_and_cost_little() {
    let manifest = workflow(SPEC);
    let large = "x".repeat(MAX_RENDERED_BYTES / 2 + 1);
    scoped(&manifest, |scope| {
        for template in [
            "{{".repeat(100_000),
            "{{#if input}}".repeat(100_000),
            format!("{{{{{}}}}}", "a.".repeat(100_000)),
            format!("{{{{json {}x{}}}}}", "(".repeat(100), ")".repeat(100)),
            format!("{large}{{{{feedback}}}}{large}"),
            "{{> (lookup . 'x')}}".to_owned(),
            "{{#*inline 'a'}}{{/inline}}".to_owned(),
            "{{\u{0}}}".to_owned(),
        ] {
            assert!(scope.render(&template).is_err(), "{template:.40}");
        }
        let text = "$(rm -rf /) `x` \"' \\ {{{{";
        assert!(scope.render(text).is_err());
        assert_eq!(
            scope.render("$(rm -rf /) `x` \"' }} {").as_deref(),
            Ok("$(rm -rf /) `x` \"' }} {")
        );
    });
}
