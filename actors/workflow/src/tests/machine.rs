//! Runs of workflows: a scene of each kind of state, and what becomes of them when the daemon dies.

mod agents;
mod corpus;
pub(super) mod random;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use hivekeep_kernel::{RunId, SessionId, ToolError, User, WorkflowId, lock};
use hivekeep_manifest::{parse_workflow, workflow::WorkflowManifest};
use hivekeep_ports::{ExecutionResult, Executions, OutputScore};
use hivekeep_runtime::runs::RunStatus::{self, Cancelled, Completed, Failed};
use serde_json::{Value, json};

use self::agents::{Asked, ScriptedAgents, completed};
use super::{ALL, Stage};
use crate::{MachineRequest, MachineStatus, RunTrigger, Workflows};

/// Stage with agents.
pub(super) struct MachineStage {
    pub(super) stage: Stage,
    agents: ScriptedAgents,
}

impl MachineStage {
    pub(super) async fn new(agents: ScriptedAgents) -> Self {
        let offered = agents.clone();
        let offer = move |ports: &hivekeep_runtime::Ports| {
            ports.offer::<dyn Executions>(Arc::new(offered.clone()));
            ports.offer::<dyn Workflows>(Arc::new(offered.clone()));
        };
        Self { stage: Stage::offering(offer).await, agents }
    }

    pub(super) async fn begin(
        &self,
        manifest: &WorkflowManifest,
        input: Value,
    ) -> Result<RunId, ToolError> {
        let id = RunId::new();
        let request = MachineRequest {
            id,
            user: User::Uid(0),
            session: SessionId::new(),
            workflow_id: WorkflowId::new(),
            manifest: Box::new(manifest.clone()),
            intent: Some("do it".to_owned()),
            input,
            blackboard: Default::default(),
            trigger: RunTrigger::Start,
        };
        self.stage.runs().begin_machine(request).await.map(|()| id)
    }

    async fn over(&self, id: RunId) -> MachineStatus {
        self.stage.over(id).await;
        self.stage.runs().machine(ALL, id).await.expect("it is there")
    }

    pub(super) async fn signal(&self, id: RunId, response: &str) -> bool {
        self.stage.runs().signal(ALL, id, response.to_owned()).await.expect("it is told")
    }

    /// Waits for an event.
    async fn event(&self, id: RunId, name: &str) {
        while !self.events(id).await.iter().any(|(found, _)| found == name) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn events(&self, id: RunId) -> Vec<(String, Value)> {
        let page = self.stage.runs().events(ALL, id, 0, 1_000).await.expect("they are read");
        page.events
            .into_iter()
            .map(|it| (it.event.event_type.to_owned(), it.event.payload))
            .collect()
    }

    /// Names of the states in the order in which they were entered.
    async fn path(&self, id: RunId) -> String {
        let events = self.events(id).await;
        let entered = events.iter().filter(|(name, _)| name == "state_entered");
        let names: Vec<_> = entered.filter_map(|(_, it)| it["state_name"].as_str()).collect();
        names.join(" ")
    }
}

/// Workflow of states in YAML, the first of which is `A`.
pub(super) fn workflow(head: &str, states: &str) -> WorkflowManifest {
    let text = format!(
        "apiVersion: 100monkeys.ai/v1\nkind: Workflow\nmetadata:\n  name: w\n{head}spec:\n  initial_state: A\n{states}"
    );
    parse_workflow(&text).unwrap_or_else(|problems| panic!("{problems:?}\n{text}"))
}

fn scored(text: &str, score: f64) -> ExecutionResult {
    let judged = OutputScore { score, confidence: 0.9, scores: vec![score] };
    ExecutionResult::Completed { output: text.to_owned(), judged: Some(judged) }
}

/// Answers of the agents of all scenes.
fn script(asked: &Asked, before: usize) -> ExecutionResult {
    match asked.agent.as_str() {
        "writer" => scored("text", if before == 0 { 0.2 } else { 0.9 }),
        "strict" => completed(r#"{ "valid": false }"#),
        "low" => completed(r#"{ "score": 0.1, "confidence": 1 }"#),
        "high" => completed("```json\n{ \"score\": 0.9, \"confidence\": 1 }\n```"),
        "fails" => {
            let error = ToolError::invalid("no luck");
            ExecutionResult::Failed { error, judged: None }
        }
        _ => completed("done"),
    }
}

/// States, answers in their order, the end, the path, and a part of the blackboard.
const SCENES: [(&str, &str, RunStatus, &str, &str); 22] = [
    (
        "A: { kind: Agent, agent: writer, input: 'write {{input.n}}', judges: [{ agent_id: j }], transitions: [{ condition: score_below, threshold: 0.5, target: A, feedback: 'better than {{A.score}}' }, { condition: score_above, threshold: 0.5, target: B }] }\n    B: { kind: System, command: 'echo {{A.output}} {{A.score}}', transitions: [] }",
        "",
        Completed,
        "A A B",
        r#"{ "B": { "output": { "stdout": "text 0.9\n", "exit_code": 0 } } }"#,
    ),
    (
        "A: { kind: Agent, agent: writer, input: x, pre_execution_validator: strict, transitions: [{ condition: on_success, target: B }, { condition: on_failure, target: A }], max_state_visits: 2 }\n    B: { kind: System, command: x, transitions: [] }",
        "",
        Failed,
        "A A",
        r#"{ "A": { "status": "failed", "output": { "valid": false } } }"#,
    ),
    (
        "A: { kind: Agent, agent: missing, input: x, transitions: [{ condition: on_failure, target: B }] }\n    B: { kind: System, command: 'true', transitions: [] }",
        "",
        Completed,
        "A B",
        r#"{ "A": { "status": "failed", "error": "there is no agent `missing`" } }"#,
    ),
    (
        "A: { kind: Agent, agent: a, input: x, output_handler: { type: agent, agent_id: fails, input_template: 'got {{output}}', required: true }, transitions: [] }",
        "",
        Failed,
        "A",
        r#"{ "A": { "status": "failed", "output": "done" } }"#,
    ),
    (
        "A: { kind: System, command: 'pwd; echo $X >&2; exit 3', env: { X: '{{intent}}' }, workdir: /, transitions: [{ condition: exit_code, value: 3, target: B }] }\n    B: { kind: System, command: update_blackboard, env: { k: '{{A.exit_code}}', l: '{{input}}' }, transitions: [] }",
        "",
        Completed,
        "A B",
        r#"{ "A": { "stdout": "/\n", "stderr": "do it\n", "exit_code": 3 }, "k": 3, "l": { "n": 1 } }"#,
    ),
    (
        "A: { kind: System, command: sleep 30, timeout: 100ms, transitions: [{ condition: on_failure, target: B }] }\n    B: { kind: System, command: 'true', transitions: [] }",
        "",
        Completed,
        "A B",
        r#"{ "A": { "error": "its time is over" } }"#,
    ),
    (
        "A: { kind: System, command: 'exit 2', transitions: [{ condition: on_success, target: A }, { condition: exit_code_zero, target: B }] }\n    B: { kind: System, command: x, transitions: [] }",
        "",
        Failed,
        "A",
        "{}",
    ),
    (
        "A: { kind: System, command: 'true', max_state_visits: 3, transitions: [{ condition: exit_code_non_zero, target: B }, { condition: always, target: A }] }\n    B: { kind: System, command: x, transitions: [] }",
        "",
        Failed,
        "A A A",
        "{}",
    ),
    (
        "A: { kind: Human, prompt: 'is {{input.n}} right?', transitions: [{ condition: input_equals_yes, target: B }, { condition: input_equals_no, target: A }] }\n    B: { kind: System, command: 'echo {{human.response}}', transitions: [] }",
        "No Approve",
        Completed,
        "A A B",
        r#"{ "A": { "response": "Approve", "timed_out": false } }"#,
    ),
    (
        "A: { kind: Human, prompt: x, timeout: 50ms, default_response: go, transitions: [{ condition: input_equals, value: go, target: B }] }\n    B: { kind: System, command: 'true', transitions: [] }",
        "",
        Completed,
        "A B",
        r#"{ "A": { "response": "go", "timed_out": true } }"#,
    ),
    (
        "A: { kind: Human, prompt: x, timeout: 50ms, transitions: [] }",
        "",
        Failed,
        "A",
        r#"{ "A": { "status": "failed", "timed_out": true } }"#,
    ),
    (
        "A: { kind: ParallelAgents, agents: [{ agent: high, input: x, weight: 2 }, { agent: high, input: y }, { agent: fails, input: z }], consensus: { strategy: weighted_average, min_judges_required: 2 }, transitions: [{ condition: consensus, threshold: 0.8, target: B }] }\n    B: { kind: System, command: 'true', transitions: [] }",
        "",
        Completed,
        "A B",
        r#"{ "A": { "status": "succeeded", "individual_scores": [0.9, 0.9, null], "consensus": { "pass_votes": 2 } } }"#,
    ),
    (
        "A: { kind: ParallelAgents, agents: [{ agent: low, input: x }, { agent: never, input: y, timeout_seconds: 1 }], consensus: { strategy: majority, min_judges_required: 2 }, transitions: [{ condition: on_failure, target: B }] }\n    B: { kind: System, command: 'true', transitions: [] }",
        "",
        Completed,
        "A B",
        r#"{ "A": { "error": "1 of 2 agents gave a score" } }"#,
    ),
    (
        "A: { kind: ParallelAgents, agents: [{ agent: writer, input: x }, { agent: writer, input: y }], judges_for_parallel: [{ agent_id: j }], consensus: { strategy: best_of_n, n: 1 }, transitions: [] }",
        "",
        Completed,
        "A",
        r#"{ "A": { "score": 0.9, "individual_scores": [0.2, 0.9] } }"#,
    ),
    (
        "A: { kind: ContainerRun, name: c, image: 'img:{{input.n}}', command: [sh, -c, 'echo x >> n; echo \"$AS_USER $INTENT_INPUTS\"; test $(wc -l < n) -ge 2'], retry: { max_attempts: 3, backoff: 1ms }, run_as_user: '65534:65534', read_only_root_filesystem: true, network_mode: none, volumes: [{ name: workspace, mount_path: /workspace, read_only: true }], resources: { cpu: 500, memory: 256Mi, timeout: 10s }, output_handler: { type: agent, agent_id: a }, transitions: [] }",
        "",
        Completed,
        "A",
        r#"{ "A": { "attempts": 2, "output": { "stdout": "65534:65534 {\"n\":1}\n" } } }"#,
    ),
    (
        "A: { kind: ParallelContainerRun, steps: [{ name: a, image: i, command: ['echo $((1 + 1))'], shell: true }, { name: b, image: i, command: [sh, -c, 'exit 4'] }], completion: any_succeed, transitions: [{ condition: exit_code_zero, target: B }] }\n    B: { kind: System, command: 'true', transitions: [] }",
        "",
        Completed,
        "A B",
        r#"{ "A": { "output": { "a": { "stdout": "2\n" }, "b": { "exit_code": 4 } } } }"#,
    ),
    (
        "A: { kind: Subworkflow, workflow_id: child, result_key: r, input: '{\"n\": {{input.n}}}', transitions: [{ condition: on_success, target: B }] }\n    B: { kind: System, command: 'echo {{r.got}}', transitions: [] }",
        "",
        Completed,
        "A B",
        r#"{ "r": { "got": 1 }, "B": { "stdout": "1\n" } }"#,
    ),
    (
        "A: { kind: Subworkflow, workflow_id: broken, result_key: r, transitions: [{ condition: on_failure, target: B }] }\n    B: { kind: System, command: 'true', transitions: [] }",
        "",
        Completed,
        "A B",
        r#"{ "A": { "error": "no condition of `A` holds for its output" } }"#,
    ),
    (
        "A: { kind: Subworkflow, workflow_id: forever, result_key: r, timeout: 100ms, transitions: [{ condition: on_failure, target: B }] }\n    B: { kind: System, command: 'true', transitions: [] }",
        "",
        Completed,
        "A B",
        r#"{ "A": { "error": "its time is over" } }"#,
    ),
    (
        "A: { kind: Subworkflow, workflow_id: child, mode: fire_and_forget, input: '{\"n\": 2}', transitions: [] }",
        "",
        Completed,
        "A",
        r#"{ "A": { "status": "succeeded", "output": null } }"#,
    ),
    (
        "A: { kind: Subworkflow, workflow_id: missing, result_key: r, transitions: [{ condition: on_failure, target: B }] }\n    B: { kind: System, command: 'true', transitions: [] }",
        "",
        Completed,
        "A B",
        r#"{ "A": { "error": "there is no workflow `missing`" } }"#,
    ),
    (
        r#"A: { kind: System, command: update_blackboard, env: { k: "$(echo x) \"'" }, transitions: [{ condition: always, target: B }] }
    B: { kind: System, command: 'echo "{{k}}"', transitions: [{ condition: always, target: C }] }
    C: { kind: ContainerRun, name: c, image: i, command: [bash, -ec, 'echo {{k}}'], transitions: [] }"#,
        "",
        Completed,
        "A B C",
        r#"{ "B": { "output": { "stdout": "$(echo x) \"'\n" } }, "C": { "output": { "stdout": "$(echo x) \"'\n" } } }"#,
    ),
];

fn offer_children(agents: &ScriptedAgents) {
    let children = [
        (
            "child",
            workflow(
                "  output_template: { got: '{{input.n}}' }\n",
                "  states:\n    A: { kind: System, command: 'echo child >> done', transitions: [] }",
            ),
        ),
        (
            "broken",
            workflow(
                "",
                "  states:\n    A: { kind: System, command: 'true', transitions: [{ condition: exit_code_non_zero, target: B }] }\n    B: { kind: System, command: x, transitions: [] }",
            ),
        ),
        ("forever", workflow("", "  states:\n    A: { kind: Human, prompt: x, transitions: [] }")),
    ];
    let known = children.map(|(name, it)| (name.to_owned(), (WorkflowId::new(), it)));
    *lock(&agents.workflows) = BTreeMap::from(known);
}

/// Whether a value has everything that is wanted of it.
fn has(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(value), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| value.get(key).is_some_and(|it| has(it, wanted)))
        }
        _ => value == wanted,
    }
}

#[tokio::test]
async fn a_scene_of_each_kind_ends_as_it_should() {
    for (states, answers, status, path, wanted) in SCENES {
        let agents = ScriptedAgents::new(script);
        offer_children(&agents);
        let stage = MachineStage::new(agents).await;
        let manifest = workflow("", &format!("  states:\n    {states}"));
        let id = stage.begin(&manifest, json!({ "n": 1 })).await.expect(states);
        for answer in answers.split_whitespace() {
            assert!(stage.signal(id, answer).await, "{answer}: {states}");
        }
        let over = stage.over(id).await;
        assert_eq!(over.status, status, "{over:#?}\n{states}");
        assert_eq!(stage.path(id).await, path, "{states}");
        let wanted: Value = serde_json::from_str(wanted).expect("JSON");
        assert!(has(&over.blackboard, &wanted), "{:#}\n{states}", over.blackboard);
        assert_eq!(over.error.is_some(), status == Failed, "{states}");
    }
}

#[tokio::test]
async fn what_agents_and_containers_are_told() {
    let stage = MachineStage::new(ScriptedAgents::new(script)).await;
    let states = |at: usize| workflow("", &format!("  states:\n    {}", SCENES[at].0));
    let id = stage.begin(&states(0), json!({ "n": 1 })).await.expect("begun");
    stage.over(id).await;
    let asked = |prompt: &str| {
        let (agent, prompt) = ("writer".to_owned(), prompt.to_owned());
        Asked { agent, prompt, judges: 1 }
    };
    assert_eq!(stage.agents.asked(), [asked("write 1"), asked("write 1\n\nbetter than 0.2")]);
    let failed = stage.begin(&states(6), json!({ "n": 1 })).await.expect("begun");
    let error = stage.over(failed).await.error.expect("it failed");
    assert_eq!(
        (&*error.code, &error.details["failure"]),
        ("no_transition", &json!("no_transition"))
    );
    let before = stage.stage.guest.called().len();
    let id = stage.begin(&states(14), json!({ "n": 1 })).await.expect("begun");
    stage.over(id).await;
    let name = format!("run-{}-0-1-0", id.uuid().simple());
    let called = stage.stage.guest.called().split_off(before);
    let volume = format!("{id}-workspace");
    assert_eq!(
        called,
        [
            (
                "aegis.volume.create".to_owned(),
                json!({ "label": volume, "size_limit_bytes": 256 << 20, "ttl_hours": 1 }),
            ),
            (
                "workspace_create".to_owned(),
                json!({
                    "name": name, "base_image": "img:1", "isolation": "sandbox", "allow_internet": false,
                    "vcpus": 1, "memory_mb": 256, "lifetime_secs": 3_610, "at_end": "destroy",
                    "volumes": [{ "volume": volume, "path": "/workspace", "read_only": true }],
                }),
            ),
            ("workspace_destroy".to_owned(), json!({ "workspace_id": name })),
        ]
    );
}

#[tokio::test]
async fn what_no_run_obeys_is_refused_by_its_name() {
    let stage = MachineStage::new(ScriptedAgents::new(script)).await;
    let container = "A: { kind: ContainerRun, name: c, image: i, command: [x], transitions: [], ";
    for (state, input, why) in [
        (
            "A: { kind: Agent, agent: a, input: x, isolation: docker, transitions: [] }",
            json!({}),
            "`isolation` of the state `A`",
        ),
        (&format!("{container}registry_credentials: x }}"), json!({}), "`registry_credentials`"),
        (&format!("{container}network_mode: host }}"), json!({}), "`network_mode`"),
        (&format!("{container}image_pull_policy: Always }}"), json!({}), "`image_pull_policy`"),
        (
            &format!("{container}read_only_root_filesystem: true }}"),
            json!({}),
            "`read_only_root_filesystem`",
        ),
        (
            &format!("{container}read_only_root_filesystem: true, run_as_user: '0:7' }}"),
            json!({}),
            "`read_only_root_filesystem`",
        ),
        (
            &format!("{container}output_handler: {{ type: webhook, url: 'http://a.test' }} }}"),
            json!({}),
            "`output_handler: webhook`",
        ),
        (
            "A: { kind: System, command: x, transitions: [] }",
            json!({ "n": "x" }),
            "the input at `/n`",
        ),
    ] {
        let head =
            "  input_schema: { type: object, properties: { n: { type: integer, default: 7 } } }\n";
        let manifest = workflow(head, &format!("  states:\n    {state}"));
        let error = stage.begin(&manifest, input).await.expect_err(state);
        assert!(error.code == "workflow_invalid" && error.message.contains(why), "{error}");
    }
}

/// Answers are kept for the state that takes them, and those that none takes are told.
#[tokio::test]
async fn answers_wait_for_their_state_and_wrong_ones_are_told() {
    let stage = MachineStage::new(ScriptedAgents::new(script)).await;
    let manifest = workflow(
        "",
        "  states:\n    A: { kind: System, command: 'until test -f go; do sleep 0.01; done', transitions: [{ condition: always, target: B }] }\n    B: { kind: Human, prompt: 'b?', transitions: [{ condition: input_equals, value: b, target: C }] }\n    C: { kind: Human, prompt: 'c?', transitions: [{ condition: input_equals, value: c, target: D }, { condition: input_equals, value: again, target: B }] }\n    D: { kind: System, command: 'true', transitions: [] }",
    );
    let id = stage.begin(&manifest, Value::Null).await.expect("begun");
    stage.event(id, "state_entered").await;
    let taken = [("b", true), ("x", false), ("again", true), ("d", false)];
    for (answer, taken) in taken {
        assert_eq!(stage.signal(id, answer).await, taken, "{answer}");
    }
    let mut stage = stage;
    stage.stage.rig = stage.stage.rig.crashed().await;
    std::fs::write(stage.stage.guest.folder().join("go"), "").expect("written");
    stage.event(id, "human_input_requested").await;
    let now = stage.stage.runs().machine(ALL, id).await.expect("it is there");
    assert_eq!((now.status, now.current_state.as_deref()), (RunStatus::Running, Some("B")));
    assert!(!stage.signal(id, "c").await, "the state that waits does not take it");
    assert!(stage.signal(id, "b").await);
    assert!(stage.signal(id, "c").await);
    assert_eq!(stage.over(id).await.status, Completed);
    assert_eq!(stage.path(id).await, "A B C B C D");
    assert!(!stage.signal(id, "c").await, "it is over");
    let alone =
        workflow("", "  states:\n    A: { kind: System, command: 'true', transitions: [] }");
    let id = stage.begin(&alone, Value::Null).await.expect("begun");
    assert!(!stage.signal(id, "yes").await, "nobody is asked");
    stage.over(id).await;
    let (listed, total) = stage.stage.runs().machines(ALL, None, 1, 0);
    assert_eq!((listed[0].0, listed[0].1.status, total), (id, Completed, 2));
    assert!(stage.stage.runs().remove(ALL, id).await.expect("written"));
    assert_eq!(stage.stage.runs().machines(ALL, None, 9, 1).1, 1);
}

#[tokio::test]
async fn a_run_that_is_cancelled_cuts_what_its_state_does() {
    for (state, event) in [
        ("A: { kind: System, command: sleep 60, transitions: [] }", "state_entered"),
        ("A: { kind: Agent, agent: never, input: x, transitions: [] }", "state_entered"),
        ("A: { kind: Human, prompt: x, transitions: [] }", "human_input_requested"),
        (
            "A: { kind: Subworkflow, workflow_id: forever, result_key: r, transitions: [] }",
            "child_begun",
        ),
    ] {
        let agents = ScriptedAgents::new(script);
        offer_children(&agents);
        let mut stage = MachineStage::new(agents).await;
        let manifest = workflow("", &format!("  states:\n    {state}"));
        let id = stage.begin(&manifest, Value::Null).await.expect("begun");
        stage.event(id, event).await;
        if state.contains("never") {
            while stage.agents.asked().is_empty() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        assert!(stage.stage.runs().stop(ALL, id).await.expect("written"), "{state}");
        stage.stage.rig = stage.stage.rig.crashed().await;
        assert_eq!(stage.over(id).await.status, Cancelled, "{state}");
        assert_eq!(stage.agents.cancelled(), usize::from(state.contains("never")), "{state}");
        let last = stage.events(id).await;
        assert!(last.iter().any(|(name, _)| name == "workflow_execution_cancelled"), "{last:?}");
    }
}

/// Workflow with a state of each kind.
const WHOLE: &str = r#"  states:
    A: { kind: Agent, agent: writer, input: "write {{feedback}}", judges: [{ agent_id: j }], transitions: [{ condition: score_below, threshold: 0.5, target: A, feedback: better }, { condition: score_above, threshold: 0.5, target: B }] }
    B: { kind: System, command: "echo B >> done", transitions: [{ condition: on_success, target: C }] }
    C: { kind: ParallelAgents, agents: [{ agent: high, input: x }, { agent: low, input: y }], consensus: { strategy: best_of_n, n: 1 }, transitions: [{ condition: always, target: D }] }
    D: { kind: ContainerRun, name: d, image: i, command: [sh, -c, "echo D >> done; test $(grep -c D done) -ge 2"], retry: { max_attempts: 2 }, transitions: [{ condition: exit_code_zero, target: E }] }
    E: { kind: ParallelContainerRun, steps: [{ name: e, image: i, command: [sh, -c, "echo E1 >> done"] }, { name: f, image: i, command: [sh, -c, "echo E2 >> done"] }], transitions: [{ condition: on_success, target: F }] }
    F: { kind: Subworkflow, workflow_id: child, result_key: r, input: '{"n": 5}', transitions: [{ condition: on_success, target: G }] }
    G: { kind: System, command: update_blackboard, env: { k: "{{r.got}}" }, transitions: [{ condition: on_success, target: H }] }
    H: { kind: Human, prompt: "{{k}}?", transitions: [{ condition: input_equals_yes, target: I }, { condition: input_equals_no, target: H }] }
    I: { kind: Subworkflow, workflow_id: child, mode: fire_and_forget, transitions: [] }
"#;

/// Part of an answered state that is the same whatever died.
fn lasting(status: &MachineStatus) -> (RunStatus, Option<Value>, Value) {
    let mut outputs = status.state_outputs.clone();
    for name in ["F", "I"] {
        outputs[name]["execution_id"] = Value::Null;
    }
    (status.status, status.final_output.clone(), outputs)
}

#[tokio::test]
async fn a_daemon_that_dies_at_any_record_leads_to_the_same_end() {
    let head = "  output_template: { all: '{{k}} {{human.response}} {{B.stdout}}' }\n";
    let manifest = workflow(head, WHOLE);
    let (mut behind, mut whole, mut total) = (0, None, usize::MAX);
    while behind < total {
        let agents = ScriptedAgents::new(script);
        offer_children(&agents);
        let mut stage = MachineStage::new(agents).await;
        let id = stage.begin(&manifest, json!({})).await.expect("begun");
        assert!(stage.signal(id, "no").await && stage.signal(id, "yes").await);
        if behind > 0 {
            while stage.events(id).await.len() < behind {
                tokio::task::yield_now().await;
            }
            stage.stage.rig = stage.stage.rig.crashed().await;
        }
        let over = stage.over(id).await;
        let (_, wanted) = whole.get_or_insert_with(|| ((), lasting(&over)));
        assert_eq!(&lasting(&over), wanted, "behind {behind}");
        assert_eq!(over.status, Completed, "{over:#?}");
        assert_eq!(stage.path(id).await, "A A B C D E F G H H I", "behind {behind}");
        assert_eq!(stage.agents.asked().len(), 4, "behind {behind}");
        let started = stage.stage.guest.started();
        let unique: std::collections::BTreeSet<_> = started.iter().collect();
        assert_eq!(unique.len(), started.len(), "a command was run twice");
        let done = stage.stage.file("done").unwrap_or_default();
        let count = |line: &str| done.lines().filter(|it| *it == line).count();
        assert_eq!((count("B"), count("D"), count("E1"), count("E2")), (1, 2, 1, 1), "{done}");
        assert!((1..=2).contains(&count("child")), "one is not waited for: {done}");
        if behind == 0 {
            total = stage.events(id).await.len();
            assert!(total >= 40, "{total}");
        }
        behind += 1;
    }
}
