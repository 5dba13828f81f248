//! Plans of small DAGs of both generations.

use hivekeep_manifest::read_dag;
use serde_json::json;

use super::*;

fn lowered(text: &str) -> Result<RunPlan<StepWork>, LowerError> {
    let file = read_dag(text, None).unwrap_or_else(|problems| panic!("{text}: {problems:?}"));
    lower_dag(&file.documents[0], &|text| Some(text.replace("${params.n}", "3")))
}

fn plan(text: &str) -> RunPlan<StepWork> {
    lowered(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Each node with what it follows, as `name<before,before`.
fn order(plan: &RunPlan<StepWork>) -> Vec<String> {
    let NodeOrder::Graph { follows } = &plan.order else { panic!("a graph") };
    let name = |at: &NodeIndex| plan.node(*at).expect("a node").name.as_str();
    let line = |(node, before): (&PlanNode<StepWork>, &Vec<NodeIndex>)| {
        format!("{}<{}", node.name, before.iter().map(name).collect::<Vec<_>>().join(","))
    };
    plan.nodes.iter().zip(follows).map(line).collect()
}

#[test]
fn steps_follow_one_another_as_their_text_says() {
    for (text, expected) in [
        (
            "type: chain\nsteps: [{ run: a }, { run: b }, { id: c, run: d }]",
            "step_1< step_2<step_1 c<step_2",
        ),
        ("steps: [{ run: a }, { id: c, run: d }, { run: b, depends: c }]", "step_1< c< step_3<c"),
        (
            "steps: [a, [b, { name: c, command: d }], e]",
            "step_1< step_2<step_1 c<step_1 step_4<step_2,c",
        ),
        (
            "type: graph\nsteps:\n- { id: a, run: a }\n- { id: b, name: B, run: b, depends: a }\n\
             - { name: c, run: c, depends: [B, a] }\n- { name: d, run: d, depends: [] }",
            "a< B<a c<a,B d<",
        ),
        (
            "type: graph\nsteps:\n- { name: r, action: router.route, with: { value: x, routes: { x: [a], y: b } } }\n\
             - { name: a, run: a }\n- { name: b, run: b, depends: [a] }",
            "r< a<r b<a,r",
        ),
        ("type: chain\nsteps: [{ name: step_2, run: a }, { run: b }]", "step_2< step_2_<step_2"),
    ] {
        assert_eq!(order(&plan(text)).join(" "), expected, "{text}");
    }
}

#[test]
fn both_generations_are_the_same_actions() {
    for (old, new) in [
        ("{ name: s, command: echo hi }", "{ name: s, run: echo hi }"),
        ("{ name: s, script: \"a\\nb\" }", "{ name: s, run: \"a\\nb\" }"),
        ("{ name: s, command: [a, b] }", "{ name: s, run: [a, b] }"),
        (
            "{ name: s, exec: { command: ls, args: [-l] } }",
            "{ name: s, action: exec, with: { command: ls, args: [-l] } }",
        ),
        (
            "{ name: s, call: child, params: \"a=1\" }",
            "{ name: s, action: dag.run, with: { dag: child, params: \"a=1\" } }",
        ),
        (
            "{ name: s, type: http, command: GET https://x.test/, config: { timeout: 3 } }",
            "{ name: s, action: http.request, with: { method: GET, url: https://x.test/, timeout: 3 } }",
        ),
        (
            "{ name: s, type: jq, command: .a, script: '{}' }",
            "{ name: s, action: jq.filter, with: { filter: .a } }",
        ),
    ] {
        let of = |step: &str| {
            let mut plan = plan(&format!("steps: [{step}]"));
            let StepWork { action, with, lines, .. } = plan.nodes.remove(0).action;
            (action, with, lines)
        };
        assert_eq!(of(old), of(new), "{old}");
    }
}

#[test]
fn policies_defaults_handlers_and_bounds_are_those_of_the_text() {
    let text = "
type: graph
max_active_steps: 2
timeout_sec: 60
delay_sec: 1
preconditions: [\"true\"]
retry_policy: { limit: 1, interval_sec: 2 }
params: [{ name: n, type: integer, default: 3 }]
defaults: { retry_policy: { limit: \"${params.n}\", interval_sec: 2, backoff: true }, env: [{ A: 1 }] }
handler_on: { exit: { run: bye }, failure: { run: oh } }
steps:
- { id: a, run: a, continue_on: { exit_code: [3], mark_success: true }, env: [{ B: 2 }] }
- { id: b, run: b, continue_on: failed, retry_policy: { limit: 9, interval_sec: 1 } }
- { id: c, run: c, repeat_policy: { repeat: while, condition: \"true\", interval_sec: 1, limit: 4 } }
- { id: d, run: d, depends: a, approval: { prompt: ok } }
- { id: e, run: e, depends: d, approval: { prompt: ok, rewind_to: a } }
";
    let plan = plan(text);
    assert_eq!(
        plan.bounds,
        PlanBounds { active_nodes: 2, timeout_ms: Some(60_000), delay_ms: 1_000 }
    );
    assert!(plan.gated && plan.attempts.is_some());
    let node = |name: &str| plan.nodes.iter().find(|node| node.name == name).expect(name);
    let attempts = |name: &str| node(name).attempts.clone().expect(name);
    assert_eq!((attempts("a").limit, attempts("a").pause_ms(2, Some(1))), (3, Some(4_000)));
    assert_eq!(attempts("b").limit, 9);
    assert!(
        node("a").failure.goes_on(Some(3), false) && !node("a").failure.goes_on(Some(4), false)
    );
    assert!(node("a").failure.counts_as_success && node("b").failure.failed);
    assert_eq!(node("c").repeats.as_ref().and_then(|it| it.rounds), Some(4));
    assert_eq!((node("d").back_to, node("e").back_to), (Some(NodeIndex(3)), Some(NodeIndex(0))));
    let env = node("a").action.step.env.as_ref().map(|env| json!(env.pairs()));
    assert_eq!(env, Some(json!([["A", "1"], ["B", "2"]])));
    assert_eq!(node("handler_on.failure").role, NodeRole::Failure);
    assert_eq!(node("handler_on.exit").role, NodeRole::Exit);
}

#[test]
fn a_number_that_is_none_is_told() {
    let text = "steps: [{ run: a, retry_policy: { limit: \"${params.x}\", interval_sec: 1 } }]";
    let error = lowered(text).expect_err(text);
    assert!(matches!(error, LowerError::Count(_)), "{error}");
}
