//! What is refused, in which layer, and that nothing was made or said for it; refused messages are
//! limited, too.

use hivekeep_kernel::{Layer, SessionId};
use serde_json::{Value, json};

use super::stage::{Stage, plan, speech};
use crate::Options;

fn with(mut args: Value, changes: Value) -> Value {
    let Value::Object(changes) = changes else { panic!("an object") };
    args.as_object_mut().expect("an object").extend(changes);
    args
}

fn receive(agent: &str) -> Value {
    json!({ "action": "receive", "name": "crew", "agent": agent })
}

#[tokio::test]
async fn each_action_refuses_what_makes_no_sense_to_it() {
    let options = Options { max_nesting_depth: 0, max_vms_per_team: 3, ..Options::default() };
    let stage = Stage::with(options).await;
    stage.create("crew", &["a", "b"]).await;
    stage.create("single", &["a"]).await;
    let begun = stage.fake.with(|world| world.begun);
    let new = |members: &[&str]| plan("new", members);
    let role = |field: &str, value: Value| {
        let mut args = new(&["a"]);
        args["roles"][0][field] = value;
        args
    };
    let (long, large) = ("x".repeat(60), "x".repeat(4 * 1024 + 1));
    let huge = "x".repeat(256 * 1024 + 1);
    let say = |changes: Value| with(speech("a", "b", "x"), changes);
    let task =
        |content: &str| say(json!({ "message_type": "task_assignment", "content": content }));
    let cases = [
        ("invalid_input", Layer::Actor, json!({})),
        ("invalid_input", Layer::Actor, json!({ "action": "none" })),
        ("invalid_input", Layer::Actor, json!({ "action": "create", "name": "new" })),
        ("invalid_input", Layer::Actor, plan("-new", &["a"])),
        ("invalid_input", Layer::Actor, plan(&long, &["a"])),
        ("invalid_input", Layer::Actor, new(&["a", "a"])),
        ("invalid_input", Layer::Actor, new(&["a_b"])),
        ("invalid_input", Layer::Actor, role("role", json!("a b"))),
        ("invalid_input", Layer::Actor, role("unknown", json!(1))),
        ("invalid_input", Layer::Actor, role("description", json!(large))),
        ("invalid_input", Layer::Actor, role("skills", json!(vec!["x"; 65]))),
        ("name_taken", Layer::Actor, plan("crew", &["a"])),
        ("team_limit", Layer::Actor, new(&["a", "b", "c", "d"])),
        ("team_budget_exceeded", Layer::Actor, with(new(&["a", "b"]), json!({ "max_vms": 1 }))),
        ("team_not_found", Layer::Resolve, with(new(&["a"]), json!({ "parent_team": "nobody" }))),
        ("nesting_too_deep", Layer::Actor, with(new(&["a"]), json!({ "parent_team": "crew" }))),
        ("snapshot_not_found", Layer::Actor, with(new(&["a"]), json!({ "base_snapshot": "none" }))),
        (
            "workspace_not_found",
            Layer::Resolve,
            with(new(&["a"]), json!({ "golden_workspace": "nobody" })),
        ),
        ("invalid_input", Layer::Actor, json!({ "action": "destroy" })),
        ("team_not_found", Layer::Resolve, json!({ "action": "destroy", "name": "nobody" })),
        ("invalid_input", Layer::Actor, json!({ "action": "status", "name": null })),
        ("team_not_found", Layer::Resolve, json!({ "action": "status", "name": "nobody" })),
        ("invalid_input", Layer::Actor, json!({ "action": "message", "name": "crew" })),
        ("team_not_found", Layer::Resolve, say(json!({ "name": "nobody" }))),
        ("member_not_found", Layer::Actor, speech("nobody", "b", "x")),
        ("member_not_found", Layer::Actor, speech("a", "nobody", "x")),
        ("no_recipients", Layer::Actor, say(json!({ "name": "single", "to": "*" }))),
        ("message_too_large", Layer::Actor, speech("a", "b", &huge)),
        ("invalid_task", Layer::Schema, task("{}")),
        ("invalid_input", Layer::Actor, json!({ "action": "receive", "name": "crew" })),
        ("invalid_input", Layer::Actor, with(receive("b"), json!({ "confirm": "never" }))),
        ("invalid_input", Layer::Actor, with(receive("b"), json!({ "confirmed": ["1"] }))),
        ("team_not_found", Layer::Resolve, with(receive("b"), json!({ "name": "nobody" }))),
        ("member_not_found", Layer::Actor, receive("nobody")),
    ];
    for (code, layer, args) in cases {
        let error = stage.refused(args.clone()).await;
        let text: String = args.to_string().chars().take(200).collect();
        assert_eq!((error.code.as_ref(), error.layer), (code, layer), "{text}: {error}");
    }
    assert_eq!(stage.fake.with(|world| world.begun), begun, "nothing was made");
    assert_eq!(
        (stage.teams().await.len(), &stage.call(receive("b")).await["count"]),
        (2, &json!(0))
    );
}

#[tokio::test]
async fn each_action_on_a_team_is_its_sessions() {
    let stage = Stage::new().await;
    stage.create("golden", &["a"]).await;
    stage.create("crew", &["a", "b"]).await;
    let (other, begun) = (SessionId::new(), stage.fake.with(|world| world.begun));
    let golden = stage.fake.names().into_iter().find(|name| name.starts_with("golden-"));
    let forks = json!({ "golden_workspace": golden, "base_snapshot": "base" });
    for args in [
        with(plan("low", &["a"]), json!({ "parent_team": "crew" })),
        with(plan("forks", &["a"]), forks),
        json!({ "action": "destroy", "name": "crew" }),
        json!({ "action": "status", "name": "crew" }),
        speech("a", "b", "x"),
        receive("b"),
        with(receive("b"), json!({ "wait_secs": 1 })),
    ] {
        let error = stage.refused_as(other, args.clone()).await;
        assert_eq!((error.code.as_ref(), error.layer), ("not_owner", Layer::Policy), "{args}");
    }
    assert_eq!(stage.fake.with(|world| world.begun), begun, "nothing was made");
    let listed = stage.begin_as(other, json!({ "action": "list" })).answer().await.expect("listed");
    let owned = listed["teams"].as_array().expect("teams").iter().map(|team| &team["owned"]);
    assert_eq!(owned.collect::<Vec<_>>(), [false, false]);
    assert_eq!(stage.call(receive("b")).await["count"], 0, "nothing was said");
}

/// Three wrong ones at once, and one more in a minute.
async fn strict() -> Stage {
    let options = Options { message_burst: 3, messages_per_minute: 1, ..Options::default() };
    let stage = Stage::with(options).await;
    stage.create("crew", &["a", "b"]).await;
    stage
}

#[tokio::test]
async fn messages_to_a_foreign_team_are_limited_and_nothing_is_looked_at_for_them() {
    let stage = strict().await;
    let thief = SessionId::new();
    let tries = async || {
        let said = stage.begin_as(thief, speech("a", "b", "x")).answer().await;
        said.expect_err("it is another's")
    };
    for _ in 0..4 {
        assert_eq!(tries().await.code, "not_owner");
    }
    let lists = stage.fake.with(|world| world.lists);
    for _ in 0..3 {
        let error = tries().await;
        assert_eq!((error.code.as_ref(), error.retryable), ("rate_limited", true));
        assert!(error.retry_after_ms.is_some_and(|wait| wait > 0), "{error}");
    }
    assert_eq!(stage.fake.with(|world| world.lists), lists);
    // Others are not held up by it, and what is received is not counted.
    stage.say("a", "b", "x").await;
    stage.call(json!({ "action": "receive", "name": "crew", "agent": "b" })).await;
}

#[tokio::test]
async fn so_are_those_that_make_no_sense() {
    let stage = strict().await;
    let mut nowhere = speech("a", "b", "x");
    nowhere["name"] = json!("nobody");
    let mut task = speech("a", "b", "{}");
    task["message_type"] = json!("task_assignment");
    let codes = [
        (nowhere, "team_not_found"),
        (speech("nobody", "b", "x"), "member_not_found"),
        (speech("a", "nobody", "x"), "member_not_found"),
        (task, "invalid_task"),
        (speech("a", "b", "x"), "rate_limited"),
    ];
    for (args, code) in codes {
        assert_eq!(stage.refused(args.clone()).await.code, code, "{args}");
    }
}
