//! The tools of workflows over a real journal, for two users and an operator.

mod family;
mod runs;

use serde_json::{Value, json};

use self::family::{Stage, create, manifest};

/// Rows of a list without what is shipped with the daemon.
fn own_rows(mut listed: Value) -> Vec<Value> {
    let Value::Array(mut rows) = listed["workflows"].take() else { panic!("{listed}") };
    rows.retain(|row| !row["id"].as_str().expect("an id").starts_with("workflow_000000000000"));
    rows
}

#[tokio::test]
async fn each_version_is_exported_byte_for_byte_and_imports_again() {
    let mut stage = Stage::new().await;
    assert_eq!(stage.refused("update", create("w", "1.9.0")).await.code, "workflow_not_found");
    let first = stage.good("create", create("w", "1.9.0")).await;
    assert_eq!((&first["deployed"], &first["version"]), (&json!(true), &json!("1.9.0")));
    assert_eq!(first["semantic_validation"], "skipped");
    assert!(first["reason"].as_str().is_some_and(|why| why.contains("judge_agents")), "{first}");
    assert_eq!(stage.refused("create", create("w", "1.9.0")).await.code, "version_exists");
    let second = stage.good("update", create("w", "1.10.0")).await;
    assert_eq!(second["workflow_id"], first["workflow_id"]);
    stage.rig = stage.rig.crashed().await;
    let exported = stage.good("export", json!({ "name": "w" })).await;
    let expected = json!({
        "manifest_yaml": manifest("w", "1.10.0"), "id": first["workflow_id"], "name": "w",
        "version": "1.10.0",
    });
    assert_eq!(exported, expected, "the latest is the highest number");
    let row = own_rows(stage.good("list", json!({})).await).remove(0);
    let expected = json!({
        "id": first["workflow_id"], "name": "w", "version": "1.10.0", "initial_state": "WORK",
        "description": "Does it", "labels": { "team": "core" }, "scope": "user", "owner": "uid:0",
    });
    assert_eq!(row, expected);
    let deleted = stage.as_operator("delete", json!({ "name": first["workflow_id"] })).await;
    let expected = json!({ "workflow_id": first["workflow_id"], "deleted": true });
    assert_eq!(deleted.expect("gone"), expected);
    assert!(own_rows(stage.good("list", json!({})).await).is_empty());
    let again = json!({ "manifest_yaml": exported["manifest_yaml"] });
    let again = stage.good("create", again).await;
    assert_ne!(again["workflow_id"], first["workflow_id"]);
    let text = stage.good("export", json!({ "name": "w" })).await["manifest_yaml"].clone();
    assert_eq!(text, exported["manifest_yaml"]);
}

#[tokio::test]
async fn a_text_without_a_version_is_its_first() {
    let stage = Stage::new().await;
    let text = manifest("w", "1.0.0").replace(", version: 1.0.0", "");
    let made = stage.good("create", json!({ "manifest_yaml": text })).await;
    assert_eq!(made["version"], "1.0.0");
    assert_eq!(stage.good("run", json!({ "name": "w" })).await["version"], "1.0.0");
}

#[tokio::test]
async fn the_credential_says_who_moves_what_and_no_argument_does() {
    let stage = Stage::new().await;
    let own = stage.good("create", create("w", "1.0.0")).await["workflow_id"].clone();
    for (tool, args) in [
        ("export", json!({ "name": "w" })),
        ("export", json!({ "name": own })),
        ("run", json!({ "name": own })),
        ("update", create("w", "1.1.0")),
    ] {
        let refused = stage.as_other(tool, args).await.expect_err(tool);
        assert_eq!(refused.code, "workflow_not_found", "{tool}");
    }
    for tool in ["promote", "demote"] {
        let refused = stage.refused(tool, json!({ "name": own })).await;
        assert_eq!(refused.code, "scope_unfit", "{tool}");
        let claims = json!({ "name": own, "role": "admin" });
        assert_eq!(stage.refused(tool, claims).await.code, "invalid_input", "{tool}");
    }
    let scope = async |name: &str| {
        let listed = stage.as_operator("list", json!({})).await.expect("listed");
        let row = own_rows(listed).into_iter().find(|row| row["name"] == name);
        row.map(|row| (row["scope"].clone(), row["owner"].clone()))
    };
    let promoted = stage.as_operator("promote", json!({ "name": "w" })).await.expect("it goes up");
    let expected =
        json!({ "workflow_id": own, "name": "w", "promoted": true, "target_scope": "global" });
    assert_eq!(promoted, expected);
    assert_eq!(scope("w").await, Some((json!("global"), Value::Null)));
    stage.as_other("export", json!({ "name": "w" })).await.expect("everybody's");
    stage.as_operator("update", create("w", "1.1.0")).await.expect("an operator's to update");
    let refused = stage.refused("update", create("w", "1.2.0")).await;
    assert_eq!(refused.code, "workflow_not_found", "a user's own is another");

    stage.as_operator("create", create("w", "2.0.0")).await.expect("the tenant's");
    let taken = stage.as_operator("demote", json!({ "name": "w" })).await.expect_err("two");
    assert_eq!(taken.code, "scope_name_taken");
    let to_other = json!({ "name": "w", "target_scope": "user", "user_id": "uid:1" });
    let demoted = stage.as_operator("demote", to_other).await.expect("it goes down");
    let expected = json!({
        "workflow_id": taken.details["id"], "name": "w", "demoted": true, "target_scope": "user",
    });
    assert_eq!(demoted, expected, "the one that is next to the target");
    let seen = stage.as_other("export", json!({ "name": "w" })).await.expect("its own");
    assert_eq!(seen["version"], "2.0.0");
    assert_eq!(stage.good("export", json!({ "name": "w" })).await["version"], "1.1.0");
    let scopes =
        async |args| own_rows(stage.as_operator("list", args).await.expect("listed")).len();
    assert_eq!(scopes(json!({ "scope": "user", "user_id": "uid:1" })).await, 1);
    assert_eq!(scopes(json!({ "scope": "tenant" })).await, 0);
    assert_eq!(scopes(json!({ "scope": "global" })).await, 1);
    let others = stage.refused("list", json!({ "user_id": "uid:1" })).await;
    assert_eq!(others.code, "invalid_input");
    for (tool, args) in [
        ("list", json!({ "tenant_id": "other" })),
        ("promote", json!({ "name": "w", "tenant_id": "other" })),
        ("search", json!({ "query": "w", "tenant_id": "other" })),
        ("run", json!({ "name": "w", "tenant_id": "other" })),
    ] {
        assert_eq!(stage.refused(tool, args).await.code, "tenant_not_found", "{tool}");
    }
}

#[tokio::test]
async fn what_is_shipped_is_everybodys_and_stays() {
    let stage = Stage::new().await;
    for name in ["intent-to-execution", "workflow-generator"] {
        let exported = stage.as_other("export", json!({ "name": name })).await.expect("shipped");
        let check = json!({ "manifest_yaml": exported["manifest_yaml"] });
        let checked = stage.good("validate", check).await;
        assert_eq!(checked, json!({ "valid": true, "errors": [] }), "{name}");
        for tool in ["delete", "demote"] {
            let refused = stage.as_operator(tool, json!({ "name": name })).await.expect_err(tool);
            assert_eq!(refused.code, "workflow_not_found", "{tool}");
        }
        stage.good("create", create(name, "1.0.0")).await;
        let taken = stage.as_operator("promote", json!({ "name": name })).await.expect_err(name);
        assert_eq!((&*taken.code, &taken.details["id"]), ("scope_name_taken", &exported["id"]));
    }
}

#[tokio::test]
async fn a_manifest_is_refused_by_its_problems() {
    let stage = Stage::new().await;
    let problems = async |text: String| {
        let checked = stage.good("validate", json!({ "manifest_yaml": text })).await;
        let refused = stage.refused("create", json!({ "manifest_yaml": text })).await;
        assert_eq!((&checked["valid"], &*refused.code), (&json!(false), "manifest_invalid"));
        assert_eq!(checked["errors"], refused.details["problems"]);
        checked["errors"].as_array().expect("problems").clone()
    };
    let agent = |name: &str, transitions: &str| {
        manifest("w", "1.0.0").replace(
            "kind: System, command: 'true', transitions: []",
            &format!("kind: Agent, agent: {name}, input: x, transitions: {transitions}"),
        )
    };
    let found = problems(agent("codr", "[]")).await;
    assert_eq!(found[0]["path"], "spec.states.WORK.agent");
    assert!(found[0]["message"].as_str().expect("text").contains("did you mean `coder`"));
    let endless = "[{ condition: always, target: WORK }]";
    let found = problems(agent("coder", endless)).await;
    assert!(found[0]["message"].as_str().expect("text").contains("never ends"), "{found:?}");
    let refine = "[{ condition: score_below, threshold: 0.8, target: WORK }, \
         { condition: score_between, min: 0.8, max: 1, target: DONE }] }\n    DONE: { kind: System, \
         command: 'true', transitions: []";
    stage.good("create", json!({ "manifest_yaml": agent("coder", refine) })).await;
    let anchors: String =
        (1..4_000).map(|n| format!("a{n}: &a{n} [*a{}, *a{}]\n", n - 1, n - 1)).collect();
    for text in [format!("a0: &a0 [x, x]\n{anchors}"), String::new(), "\u{0}".to_owned()] {
        assert_eq!(problems(text).await.len(), 1);
    }
}

#[tokio::test]
async fn judges_are_asked_where_that_is_wanted_and_decide() {
    let stage = Stage::new().await;
    let asks = |name: &str, more: Value| {
        let mut asked = create(name, "1.0.0");
        asked.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
        asked
    };
    let passed = stage.good("create", asks("a", json!({ "task_context": "count" }))).await;
    assert_eq!(
        (&passed["semantic_validation"], &passed["reason"]),
        (&json!("passed"), &Value::Null)
    );
    let judge = json!([{
        "agent": "manifest-judge", "score": 0.9, "confidence": 0.8, "reasoning": "Good.",
    }]);
    assert_eq!(passed["judgment"]["judges"], judge);
    assert_eq!(stage.agents.questions()[0]["task"], "count");
    let two = json!({ "judge_agents": ["manifest-judge", "strict"] });
    let refused = stage.refused("create", asks("b", two)).await;
    assert_eq!(refused.code, "workflow_rejected");
    let scores = &refused.details["judgment"]["judges"];
    assert_eq!((&scores[0]["score"], &scores[1]["score"]), (&json!(0.9), &json!(0.1)));
    let mild = json!({ "judge_agents": ["strict"], "min_score": 0.1, "min_confidence": 0 });
    stage.good("create", asks("b", mild)).await;
    for (judge, code) in [("vague", "workflow_rejected"), ("missing", "agent_not_found")] {
        let refused = stage.refused("create", asks("c", json!({ "judge_agents": [judge] }))).await;
        assert_eq!(refused.code, code);
        assert!(refused.message.contains(judge), "{refused}");
    }
    stage.agents.forget_models();
    let refused = stage.refused("create", asks("c", json!({ "min_score": 0.5 }))).await;
    assert_eq!(refused.code, "llm_not_configured");
    assert_eq!(stage.refused("export", json!({ "name": "c" })).await.code, "workflow_not_found");
    stage.good("create", create("c", "1.0.0")).await;
}

#[tokio::test]
async fn a_search_has_the_best_first_and_filters() {
    let stage = Stage::new().await;
    for name in ["resizer", "reviewer"] {
        stage.good("create", create(name, "1.0.0")).await;
    }
    let found = async |query: &str, labels: Value| {
        let asked = json!({
            "query": query, "labels": labels, "include_platform_templates": false,
        });
        let found = stage.good("search", asked).await;
        assert_eq!(
            (&found["tool"], &found["search_mode"]),
            (&json!("aegis.workflow.search"), &json!("lexical"))
        );
        let rows = found["results"].as_array().expect("rows").iter();
        rows.map(|row| row["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found("reviewer", Value::Null).await, ["reviewer"]);
    assert_eq!(found("work", Value::Null).await, ["resizer", "reviewer"], "by a state");
    assert_eq!(found("work", json!({ "team": "x" })).await, Vec::<String>::new());
    let all = stage.good("search", json!({ "query": "program" })).await;
    assert_eq!(all["results"][0]["name"], "intent-to-execution");
}

#[tokio::test]
async fn a_workflow_whose_agents_have_no_model_begins_nothing() {
    let stage = Stage::new().await;
    let text = manifest("w", "1.0.0")
        .replace("kind: System, command: 'true'", "kind: Agent, agent: coder, input: x");
    stage.good("create", json!({ "manifest_yaml": text })).await;
    stage.agents.forget_models();
    for (tool, args) in [
        ("run", json!({ "name": "w" })),
        ("generate", json!({ "input": "count to ten" })),
        ("aegis.execute.intent", json!({ "intent": "count to ten" })),
    ] {
        let refused = stage.refused(tool, args).await;
        assert_eq!(refused.code, "llm_not_configured", "{tool}");
        let state = refused.details["states"][0].as_str().expect("a field");
        assert!(state.starts_with("spec.states."), "{state}");
    }
}

#[tokio::test]
async fn a_program_of_an_unknown_language_or_form_is_refused() {
    let stage = Stage::new().await;
    let large = "x".repeat(96 * 1024 + 1);
    for (args, code) in [
        (json!({ "language": "cobol" }), "invalid_input"),
        (json!({ "language": "bash" }), "runtime_missing"),
        (json!({ "inputs": { "code": 1 } }), "invalid_input"),
        (json!({ "inputs": { "code": "" } }), "invalid_input"),
        (json!({ "inputs": { "code": large } }), "invalid_input"),
        (json!({ "tenant_id": "other" }), "tenant_not_found"),
    ] {
        let mut asked = json!({ "intent": "count" });
        asked.as_object_mut().expect("one").extend(args.as_object().expect("one").clone());
        assert_eq!(stage.refused("aegis.execute.intent", asked).await.code, code, "{args:.80}");
    }
}
