use hivekeep_manifest::{
    common::{AttemptLimit, TimeSpan},
    workflow::WorkflowState,
};
use serde_json::json;

use super::*;
use crate::machine::{MachineFailure, PanelAnswer};

const PANEL: &str = "
  states:
    A:
      kind: ParallelAgents
      agents: [{ agent: a, input: x }, { agent: b, input: x }]
      consensus: { strategy: weighted_average, threshold: 0.7, min_judges_required: 2 }
      transitions: []
";

fn panel(answers: &[Option<&str>]) -> StateOutput {
    let manifest = workflow(PANEL);
    let WorkflowState::ParallelAgents { consensus, .. } = &manifest.spec.states["A"] else {
        panic!("a panel")
    };
    let answers = answers.iter().map(|text| PanelAnswer::new("a", 1.0, *text));
    StateOutput::panel(consensus, answers.collect())
}

/// Whether `A` goes on by a condition; `None` if an expression fails.
fn holds(condition: &str, output: &StateOutput) -> Option<bool> {
    let manifest = workflow(&format!(
        "
  context: {{ limit: 2, done: true }}
  states:
    A: {{ kind: Human, prompt: x, transitions: [{{ condition: {condition}, target: B }}] }}
    B: {{ kind: Human, prompt: x, transitions: [] }}
"
    ));
    match after(&manifest, json!({ "rounds": 2 }), output) {
        MachineNext::Enter { state, feedback: None } if state == "B" => Some(true),
        MachineNext::Failed { failure: MachineFailure::NoTransition, .. } => Some(false),
        MachineNext::Failed { failure: MachineFailure::ExpressionFailed, .. } => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn conditions_hold_for_outputs() {
    let agent = |text| StateOutput::agent(text, None, Vec::new());
    let outputs = [
        ("exit 0", command(0)),
        ("exit 3", command(3)),
        ("failed", agent("x").failed("too often")),
        ("score .7", agent(r#"{ "score": 0.7, "confidence": 0.9, "ok": true }"#)),
        ("score 1.5", agent(r#"{ "score": 1.5, "ok": "x" }"#)),
        ("panel", panel(&[Some(r#"{ "score": 0.8 }"#), Some(r#"{ "score": 0.8 }"#)])),
        ("apart", panel(&[Some(r#"{ "score": 1 }"#), Some(r#"{ "score": 0.5 }"#)])),
        ("one", panel(&[Some(r#"{ "score": 1 }"#), None])),
        ("yes", human(" YES\n")),
        ("reject", human("reject")),
        ("3", human("3")),
    ];
    let rows: [(&str, &[&str]); 30] = [
        (
            "on_success",
            &["exit 0", "score .7", "score 1.5", "panel", "apart", "yes", "reject", "3"],
        ),
        ("on_failure", &["exit 3", "failed", "one"]),
        ("exit_code_zero", &["exit 0"]),
        ("exit_code_non_zero", &["exit 3"]),
        ("exit_code, value: 3", &["exit 3"]),
        ("score_above, threshold: 0.7", &["panel", "apart", "one"]),
        ("score_above, threshold: 0.69", &["score .7", "panel", "apart", "one"]),
        ("score_below, threshold: 0.7", &[]),
        ("score_below, threshold: 0.71", &["score .7"]),
        ("score_between, min: 0.7, max: 0.7", &["score .7"]),
        ("score_between, min: 0.71, max: 0.8", &["panel", "apart"]),
        ("confidence_above, threshold: 0.9", &["panel", "one"]),
        ("confidence_above, threshold: 0.89", &["score .7", "panel", "one"]),
        ("score_and_confidence_above, threshold: 0.69", &["score .7", "panel", "apart", "one"]),
        (
            "score_and_confidence_above, score_threshold: 0.6, confidence_threshold: 0.9",
            &["panel", "one"],
        ),
        ("consensus, threshold: 0.75", &["panel", "apart", "one"]),
        ("consensus, threshold: 0.75, agreement: 0.9", &["panel", "one"]),
        ("all_approved", &["panel"]),
        ("any_rejected", &["apart"]),
        ("input_equals, value: reject", &["reject"]),
        ("input_equals, value: 3", &["3"]),
        ("input_equals_yes", &["yes"]),
        ("input_equals_no", &["reject"]),
        ("custom, expression: 'status == \"failed\"'", &["exit 3", "failed", "one"]),
        (
            "custom, expression: '{{ blackboard.rounds >= limit }}'",
            &[
                "exit 0",
                "exit 3",
                "failed",
                "score .7",
                "score 1.5",
                "panel",
                "apart",
                "one",
                "yes",
                "reject",
                "3",
            ],
        ),
        ("custom, expression: 'has(state_output.exit_code) && exit_code + 1 == 4'", &["exit 3"]),
        ("custom, expression: 'blackboard.A.output == \"3\" && A.response == \"3\"'", &["3"]),
        ("custom, expression: 'has(state_output.score) && score < 0.75'", &["score .7"]),
        ("custom, expression: 'workflow.task == \"write\" && input.n == 4'", &[]),
        (
            "custom, expression: 'has(state_output.agents) && state_output.agents.all(x, x.score > 0.7)'",
            &["panel"],
        ),
    ];
    for (condition, wanted) in rows {
        let holding = outputs.iter().filter(|(_, output)| holds(condition, output) == Some(true));
        let holding: Vec<_> = holding.map(|(name, _)| *name).collect();
        assert_eq!(holding, wanted, "{condition}");
    }
}

#[test]
fn an_expression_without_an_answer_fails_the_run() {
    for expression in
        ["output.absent", "score > 0.5", "output", "blackboard.absent == 1", "B.output == 1"]
    {
        let condition = format!("custom, expression: '{expression}'");
        assert_eq!(holds(&condition, &command(0)), None, "{expression}");
    }
}

#[test]
fn words_are_a_yes_or_a_no() {
    for (word, yes, no) in [
        ("y", true, false),
        ("1", true, false),
        ("True", true, false),
        ("approve", true, false),
        ("n", false, true),
        ("0", false, true),
        ("false", false, true),
        ("No ", false, true),
        ("maybe", false, false),
        ("yes, but", false, false),
        ("", false, false),
    ] {
        let found = |condition| holds(condition, &human(word));
        let found = (found("input_equals_yes"), found("input_equals_no"));
        assert_eq!(found, (Some(yes), Some(no)), "{word}");
    }
}

#[test]
fn the_first_condition_that_holds_is_taken() {
    let manifest = workflow(
        "
  max_total_transitions: 1
  states:
    A:
      kind: System
      command: x
      max_state_visits: 1
      transitions:
        - { condition: exit_code, value: 7, target: A }
        - { condition: on_success, target: B, feedback: 'it said {{A.stdout}}' }
        - { condition: on_failure, target: B, feedback: '{{A.output.absent}}' }
        - { condition: always, target: C }
    B: { kind: Human, prompt: x, transitions: [] }
    C: { kind: Human, prompt: x, transitions: [] }
",
    );
    let entered = after(&manifest, json!({}), &command(0));
    let feedback = Some("it said out\n".to_owned());
    assert_eq!(entered, MachineNext::Enter { state: "B".to_owned(), feedback });
    let failure = |next| match next {
        MachineNext::Failed { failure, .. } => failure,
        other => panic!("{other:?}"),
    };
    assert_eq!(failure(after(&manifest, json!({}), &command(7))), MachineFailure::VisitsExceeded);
    assert_eq!(failure(after(&manifest, json!({}), &command(1))), MachineFailure::TemplateFailed);
    let blackboard = begun(&manifest, json!({})).expect("it fits");
    let visits = BTreeMap::new();
    let view = |state, transitions| MachineView {
        spec: &manifest.spec,
        blackboard: &blackboard,
        state,
        visits: &visits,
        transitions,
        feedback: None,
    };
    assert_eq!(failure(next(&view("A", 1), &command(0))), MachineFailure::TransitionsExceeded);
    assert_eq!(next(&view("B", 1), &human("x")), MachineNext::Completed);
    assert_eq!(
        failure(next(&view("B", 1), &human("x").failed("late"))),
        MachineFailure::StateFailed
    );
    let StateResult::Command(mut outcome) = command(3).result else { panic!("it is a command") };
    outcome.stderr = "at first\nno such file\n\n".to_owned();
    let MachineNext::Failed { message, .. } = next(&view("B", 1), &StateOutput::command(outcome))
    else {
        panic!("it failed");
    };
    assert!(
        message.contains("follows it: its command ended with status 3: no such file"),
        "{message}"
    );
}

#[test]
fn containers_succeed_by_their_completion() {
    use hivekeep_manifest::workflow::NodeCompletion::{AllSucceed, AnySucceed, BestEffort};
    let step = |code| match command(code).result {
        StateResult::Command(outcome) => outcome,
        other => panic!("{other:?}"),
    };
    for (completion, codes, succeeded, exit_code) in [
        (None, [0, 0], true, 0),
        (None, [0, 2], false, 2),
        (Some(AllSucceed), [1, 2], false, 1),
        (Some(AnySucceed), [1, 0], true, 0),
        (Some(AnySucceed), [1, 2], false, 1),
        (Some(BestEffort), [1, 2], true, 0),
    ] {
        let steps = ["a", "unit-test"].map(str::to_owned).into_iter().zip(codes.map(step));
        let output = StateOutput::containers(completion, steps.collect());
        assert_eq!(output.status == StateStatus::Succeeded, succeeded, "{completion:?} {codes:?}");
        assert_eq!(output.exit_code(), Some(exit_code), "{completion:?} {codes:?}");
        assert_eq!(output.to_value()["output"]["unit-test"]["stderr"], "err");
    }
}

#[test]
fn a_command_is_tried_again_within_its_limit() {
    let retry = AttemptLimit { max_attempts: 2, backoff: Some(TimeSpan::Secs(5)) };
    let again = |exit_code, attempts| {
        let StateResult::Command(outcome) = command(exit_code).result else { panic!("a command") };
        CommandOutcome { attempts, ..outcome }.retry_after(Some(&retry)).map(|it| it.as_secs())
    };
    assert_eq!([again(1, 1), again(1, 2), again(0, 1)], [Some(5), None, None]);
}

#[test]
fn outputs_stand_as_json() {
    let agent = |text: &str| StateOutput::agent(text, None, Vec::new()).to_value();
    for (text, output) in [
        (r#"{ "a": 1 }"#, json!({ "a": 1 })),
        ("```json\n[1]\n```", json!([1])),
        ("It is:\n```\nno\n```\nand\n```json\n{ \"score\": 2 }\n```\nend", json!({ "score": 2 })),
        ("7", json!("7")),
        ("```\nx\n```", json!("```\nx\n```")),
    ] {
        assert_eq!(agent(text), json!({ "status": "succeeded", "output": output }), "{text}");
    }
    let judged = StateOutput::agent(r#"{ "score": 1 }"#, Some((0.5, 0.25)), vec![0.5]).to_value();
    assert_eq!((&judged["score"], &judged["confidence"]), (&json!(0.5), &json!(0.25)));
    let ran = command(2).failed("it was late").to_value();
    let fields = json!({
        "exit_code": 2, "stdout": "out\n", "stderr": "err", "duration_ms": 5, "attempts": 1
    });
    let mut wanted = fields.clone();
    wanted["output"] = fields;
    wanted["status"] = json!("failed");
    wanted["error"] = json!("it was late");
    assert_eq!(ran, wanted);
    let panel = panel(&[Some(r#"{ "score": 0.8 }"#), None]).to_value();
    assert_eq!(
        panel["consensus"]["metadata"],
        json!({
            "total_judges": 2, "pass_votes": 1, "fail_votes": 0, "all_pass": false
        })
    );
    assert_eq!(panel["individual_scores"], json!([0.8, null]));
    assert_eq!(panel["error"], "1 of 2 agents gave a score");
    assert_eq!(panel["agents"][0]["output"]["score"], 0.8);
}
