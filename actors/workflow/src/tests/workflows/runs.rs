//! Runs of workflows by their tools, over the engine.

use hivekeep_testkit::eventually;
use serde_json::{Value, json};

use super::family::Stage;

/// A workflow that asks a person, and says what was answered.
const ASKS: &str = "\
apiVersion: 100monkeys.ai/v1
kind: Workflow
metadata:
  name: asks
  version: 1.9.0
  input_schema: { type: object, required: [n], properties: { n: { type: integer } } }
  output_template: { said: '{{ASK.output}}', n: '{{input.n}}' }
spec:
  initial_state: COUNT
  context: { seen: 'no' }
  states:
    COUNT:
      kind: System
      command: update_blackboard
      env: { seen: '{{input.n}}' }
      transitions: [{ condition: always, target: ASK }]
    ASK:
      kind: Human
      prompt: 'Is {{seen}} right?'
      transitions:
      - { condition: input_equals_yes, target: DONE }
      - { condition: input_equals_no, target: COUNT }
    DONE: { kind: System, command: update_blackboard, env: { done: 'true' }, transitions: [] }
";

async fn asking(stage: &Stage) -> String {
    stage.good("create", json!({ "manifest_yaml": ASKS })).await;
    let newer = ASKS.replace("1.9.0", "1.10.0");
    stage.good("create", json!({ "manifest_yaml": newer })).await;
    let begun = stage.good("run", json!({ "name": "asks", "input": { "n": 7 } })).await;
    assert_eq!((&begun["status"], &begun["version"]), (&json!("started"), &json!("1.10.0")));
    assert_ne!(begun["execution_id"], begun["workflow_id"], "the run's own id");
    let id = begun["execution_id"].as_str().expect("an id").to_owned();
    eventually("it asks", async || {
        stage.good("status", json!({ "execution_id": id })).await["current_state"] == "ASK"
    })
    .await;
    id
}

#[tokio::test]
async fn a_run_is_answered_by_its_own_id_waited_for_and_removed() {
    let mut stage = Stage::new().await;
    let id = asking(&stage).await;
    let of = |more: Value| {
        let mut args = json!({ "execution_id": id });
        args.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
        args
    };
    let waited = stage.good("wait", of(json!({ "timeout_seconds": 1 }))).await;
    assert_eq!(waited["timed_out"], true, "{waited}");
    assert_eq!((&waited["status"], &waited["current_state"]), (&json!("running"), &json!("ASK")));
    let whole = stage.good("executions.get", of(json!({}))).await;
    assert_eq!((&whole["input"], &whole["blackboard"]["seen"]), (&json!({ "n": 7 }), &json!(7)));
    assert_eq!(whole["state_outputs"]["COUNT"]["output"], json!({ "seen": 7 }));
    let listed = stage.good("executions.list", json!({ "workflow_id": "asks", "limit": 1 })).await;
    assert_eq!(
        (&listed["total"], &listed["executions"][0]["execution_id"]),
        (&json!(1), &json!(id))
    );
    let past = stage.good("executions.list", json!({ "offset": 1 })).await;
    assert_eq!((&past["total"], &past["executions"]), (&json!(1), &json!([])));
    for tool in ["status", "executions.get", "wait", "logs", "cancel"] {
        let refused = stage.as_other(tool, of(json!({}))).await.expect_err(tool);
        assert_eq!(refused.code, "run_not_found", "{tool}");
    }
    let removed = stage.as_operator("remove", of(json!({}))).await.expect("answered");
    assert_eq!((&removed["removed"], removed["error"].is_string()), (&json!(false), true));
    let wrong = stage.good("signal", of(json!({ "response": "perhaps" }))).await;
    assert_eq!(
        (&wrong["signalled"], &wrong["tool"]),
        (&json!(false), &json!("aegis.workflow.signal"))
    );
    assert!(wrong["error"].as_str().is_some_and(|why| why.contains("ASK")), "{wrong}");

    stage.rig = stage.rig.crashed().await;
    assert_eq!(stage.good("signal", of(json!({ "response": "yes" }))).await["signalled"], true);
    let over = stage.good("wait", of(json!({}))).await;
    assert_eq!(
        (&over["status"], &over["timed_out"]),
        (&json!("completed"), &json!(false)),
        "{over}"
    );
    assert_eq!(over["final_output"], json!({ "said": "yes", "n": 7 }));
    assert_eq!(over["blackboard"]["done"], "true", "{over}");
    let cancelled = stage.good("cancel", of(json!({}))).await;
    assert_eq!((&cancelled["cancelled"], cancelled["error"].is_string()), (&json!(false), true));
    let late = stage.good("signal", of(json!({ "response": "yes" }))).await;
    assert_eq!(late["signalled"], false);
    let logs = stage.good("logs", of(json!({ "limit": 200 }))).await;
    let events = logs["events"].as_array().expect("events");
    assert_eq!(logs["total"], events.len());
    let sequences: Vec<_> = events.iter().map(|event| event["sequence"].as_u64()).collect();
    assert_eq!(sequences, (1..=events.len() as u64).map(Some).collect::<Vec<_>>());
    let entered = events.iter().filter(|event| event["event_type"] == "state_entered");
    let entered: Vec<_> = entered
        .map(|event| (event["state_name"].clone(), event["iteration_number"].clone()))
        .collect();
    assert_eq!(entered, ["COUNT", "ASK", "DONE"].map(|state| (json!(state), json!(1))));
    let removed = stage.as_operator("remove", of(json!({}))).await.expect("answered");
    assert_eq!(removed["removed"], true);
    assert_eq!(stage.refused("status", of(json!({}))).await.code, "run_not_found");
}

#[tokio::test]
async fn a_run_that_is_cancelled_or_does_not_begin_is_told() {
    let stage = Stage::new().await;
    let id = asking(&stage).await;
    let of = || json!({ "execution_id": id });
    assert_eq!(stage.good("cancel", of()).await["cancelled"], true);
    assert_eq!(stage.good("wait", of()).await["status"], "cancelled");
    for args in [
        json!({ "name": "asks" }),
        json!({ "name": "asks", "input": { "n": "seven" } }),
        json!({ "name": "asks", "input": { "n": 7 }, "blackboard": { "workflow": 1 } }),
        json!({ "name": "asks", "input": { "n": 7 }, "blackboard": { "ASK": 1 } }),
    ] {
        assert_eq!(stage.refused("run", args.clone()).await.code, "workflow_invalid", "{args}");
    }
    let missing = json!({ "name": "asks", "version": "7.0.0" });
    assert_eq!(stage.refused("run", missing).await.code, "manifest_version_not_found");
    for asked in ["run_0", "", "run_00000000000000000000000000000000"] {
        let refused = stage.refused("status", json!({ "execution_id": asked })).await;
        assert_eq!(refused.code, "run_not_found");
    }
    assert_eq!(stage.good("executions.list", json!({})).await["total"], 1);
}

async fn pipeline(stage: &Stage, args: Value) -> Value {
    let mut asked = json!({ "intent": "count" });
    asked.as_object_mut().expect("one").extend(args.as_object().expect("one").clone());
    let begun = stage.good("aegis.execute.intent", asked).await;
    let id = begun["pipeline_execution_id"].clone();
    let url = format!("/api/runs/{}/events", id.as_str().expect("an id"));
    assert_eq!((&begun["status"], &begun["stream_url"]), (&json!("started"), &json!(url)));
    let waited = stage.good("aegis.execute.wait", json!({ "execution_id": id })).await;
    assert_eq!(waited["timed_out"], false, "{waited}");
    stage.good("aegis.execute.status", json!({ "pipeline_execution_id": id })).await
}

/// The fake runs containers on this host, so programs are of a shell that is there in any case.
#[tokio::test]
async fn a_program_that_is_given_is_run_without_a_model() {
    let stage = Stage::new().await;
    stage.agents.forget_models();
    let code = "import os; print(os.environ['INTENT_INPUTS'])";
    let inputs = json!({ "code": code, "n": 7 });
    let told = pipeline(&stage, json!({ "inputs": inputs, "timeout_seconds": 30 })).await;
    assert_eq!(told["status"], "completed", "{told}");
    assert_eq!(told["final_result"], "{\"n\":7}\n", "{told}");
    assert_eq!(told["reused_existing_agent"], false);
    assert!(told["duration_ms"].is_u64() && told.get("reason").is_none(), "{told}");
    let machine = stage.guest.called().into_iter().find(|(tool, _)| tool == "workspace_create");
    let (_, machine) = machine.expect("a machine");
    assert_eq!(machine["base_image"], "docker.io/python:3.13");
    assert_eq!(machine["allow_internet"], false);
    let failed = json!({ "inputs": { "code": "import sys; sys.exit(3)" } });
    let told = pipeline(&stage, failed).await;
    assert_eq!(
        (&told["status"], &told["failed_at_state"]),
        (&json!("failed"), &json!("RUN_GIVEN"))
    );
    assert!(told["reason"].is_string() && told.get("final_result").is_none(), "{told}");
}

#[tokio::test]
async fn a_program_is_written_mended_run_and_told() {
    let stage = Stage::new().await;
    let told = pipeline(&stage, json!({ "inputs": { "n": 7 } })).await;
    assert_eq!(told["status"], "completed", "{told}");
    assert_eq!(told["final_result"], "It is 14.");
    assert_eq!(told["reused_existing_agent"], true);
    let asked = stage.agents.questions();
    assert_eq!(asked[0]["feedback"], "");
    assert!(
        asked.iter().any(|it| it["feedback"].as_str().is_some_and(|it| it.contains("status 3"))),
        "{asked:?}"
    );
    let workflow = stage.good("run", json!({ "name": "workflow-generator", "intent": "x" })).await;
    let other = json!({ "pipeline_execution_id": workflow["execution_id"] });
    assert_eq!(stage.refused("aegis.execute.status", other).await.code, "run_not_found");
}
