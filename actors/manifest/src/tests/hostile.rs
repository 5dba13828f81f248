use proptest::prelude::*;

use super::{AGENT, WORKFLOW, told};
use crate::{
    MAX_PROBLEMS, MAX_TEXT_BYTES, ManifestKind, agent::AgentManifest, check, dag::DagManifest,
    read_dag,
};

#[test]
fn what_would_be_dear_is_refused() {
    let laughs: String =
        (1..40).map(|n| format!("a{n}: &a{n} [*a{m}, *a{m}, *a{m}, *a{m}]\n", m = n - 1)).collect();
    let text = "x".repeat(100_000);
    let long: String = (0..500).map(|_| "  - *a\n").collect();
    for hostile in [
        format!("a0: &a0 [x, x]\n{laughs}"),
        format!("a: &a {text}\nsteps:\n{long}"),
        "[".repeat(100_000),
        format!("steps: {}x{}", "[".repeat(70), "]".repeat(70)),
        "- ".repeat(50_000),
        "{a: ".repeat(50_000),
        format!("steps:\n{}", "  - x\n".repeat(30_000)),
        "---\nname: x\n".repeat(10_000),
        format!("steps: [{}]", "x".repeat(MAX_TEXT_BYTES)),
        "a: &a [*a]\n".to_owned(),
        "? [a, b]\n: c\n".to_owned(),
        "\u{0}".to_owned(),
        "a: .nan\nsteps: [x]\n".to_owned(),
    ] {
        for kind in ManifestKind::ALL {
            let told = told(kind, &hostile);
            assert!((1..=MAX_PROBLEMS).contains(&told.len()), "{}", told.len());
            let bytes: usize = told.iter().map(String::len).sum();
            assert!(bytes < MAX_PROBLEMS * 2048, "{bytes} bytes: {told:#?}");
        }
    }
}

#[test]
fn a_large_graph_is_walked() {
    let steps: String =
        (1..1_500).map(|n| format!("  s{n}: {{command: x, depends: s{}}}\n", n - 1)).collect();
    let text = format!("type: graph\nsteps:\n  s0: {{command: x}}\n{steps}");
    assert_eq!(told(ManifestKind::Dag, &text), Vec::<String>::new());
    let cycle = text.replacen("{command: x}", "{command: x, depends: s1499}", 1);
    let told = told(ManifestKind::Dag, &cycle);
    assert!(told.len() == 1 && told[0].contains("in a cycle") && told[0].len() < 500, "{told:?}");
}

#[test]
fn what_is_followed_is_followed_at_any_distance() {
    let chain: String = (1..1_500)
        .map(|n| format!("- {{id: s{n}, run: '${{steps.s0.outputs.o}}', depends: s{}}}\n", n - 1))
        .collect();
    let text = format!("steps:\n- {{id: s0, run: x, outputs: [{{name: o}}]}}\n{chain}");
    let notices = |text: &str| read_dag(text, None).expect("valid").notices;
    assert_eq!(notices(&text), []);
    let cut = notices(&text.replace(", depends: s699}", "}"));
    assert_eq!((cut.len(), &*cut[0].told.path), (100, "steps[700].run"));
}

/// Texts as large as can be are judged in a time that grows as they do: each takes seconds if it does not.
#[test]
fn what_is_large_is_judged_in_linear_time() {
    let many = |count: usize, step: &dyn Fn(usize) -> String| -> String {
        (0..count).map(step).collect::<Vec<_>>().concat()
    };
    let deep = |depth: usize| {
        let open = "{foreach: {items: [1], steps: [".repeat(depth);
        format!("steps: [{open}{{run: x}}{}]\n", "]}}".repeat(depth))
    };
    for (text, is_valid) in [
        (format!("steps:\n{}", many(10_000, &|_| "- x\n".to_owned())), true),
        (format!("steps:\n{}", many(10_000, &|_| "- run: x\n".to_owned())), false),
        (format!("steps:\n{}", many(3_500, &|n| format!("- {{id: s{n}, run: x}}\n"))), true),
        (
            format!(
                "steps:\n{}",
                many(3_000, &|n| format!("- {{id: s{n}, run: x, depends: none}}\n"))
            ),
            false,
        ),
        (
            format!(
                "steps:\n- {{id: s0, run: x}}\n{}",
                many(2_500, &|n| format!(
                    "- {{id: s{}, run: '${{steps.s0.outputs.a}}', depends: s{n}}}\n",
                    n + 1
                ))
            ),
            true,
        ),
        (
            format!(
                "steps:\n{}",
                many(1_200, &|n| format!(
                    "- {{id: s{n}, foreach: {{items: [1], steps: [{{id: b{n}, run: x}}]}}}}\n"
                ))
            ),
            true,
        ),
        (format!("steps:\n- run: '{}'\n", "${params.a".repeat(25_000)), true),
        (format!("steps:\n- run: '{}'\n", "${consts.a}".repeat(20_000)), true),
        (format!("params: '{}'\nsteps: [{{run: x}}]\n", "a=1 ".repeat(60_000)), true),
        (format!("steps: [{{action: {}}}]\n", "a.".repeat(100_000)), false),
        (format!("steps:\n{}", many(4_000, &|n| format!("- {{action: a{n} b}}\n"))), false),
        (deep(12), true),
        (deep(30), false),
    ] {
        let told = told(ManifestKind::Dag, &text);
        assert_eq!(told.is_empty(), is_valid, "{text:.200}: {told:#?}");
        assert!(told.len() <= MAX_PROBLEMS);
    }
}

#[test]
fn a_large_workflow_with_many_texts_is_walked() {
    let head = "apiVersion: 100monkeys.ai/v1\nkind: Workflow\nmetadata: {name: x}\nspec:\n  initial_state: s0\n  states:\n";
    let state = |at: usize, body: &str| format!("    s{at}: {body}\n");
    let way = |at: usize| format!("{{condition: custom, target: s{}, expression: s0.a}}", at + 1);
    let chain: String = (0..1_000)
        .map(|at| {
            state(
                at,
                &format!("{{kind: Human, prompt: '{{{{s{at}.a}}}}', transitions: [{}]}}", way(at)),
            )
        })
        .collect();
    let text = format!("{head}{chain}    s1000: {{kind: Human, prompt: x, transitions: []}}\n");
    assert_eq!(told(ManifestKind::Workflow, &text), Vec::<String>::new());
    for prompt in ["{{a}}", "{{#if input}}", "{{json (((", "{{{{"] {
        let prompt = prompt.repeat(100_000 / prompt.len());
        let text = format!("{head}    s0: {{kind: Human, prompt: '{prompt}', transitions: []}}\n");
        let told = told(ManifestKind::Workflow, &text);
        assert!(told.len() == 1 && told[0].len() < 500, "{told:?}");
    }
    for expression in ["a.", "(", "s0.all(x, ", "!", "s0 + ", "s0.a == "] {
        let expression = expression.repeat(100_000 / expression.len());
        let way = format!("{{condition: custom, target: s0, expression: '{expression}'}}");
        let text = format!("{head}    s0: {{kind: Human, prompt: x, transitions: [{way}]}}\n");
        let told = told(ManifestKind::Workflow, &text);
        assert!(told.len() == 1 && told[0].len() < 2048, "{told:?}");
    }
}

const SEEDS: [(ManifestKind, &str); 4] = [
    (ManifestKind::Agent, AGENT),
    (ManifestKind::Workflow, WORKFLOW),
    (
        ManifestKind::Dag,
        "type: graph\nsteps:\n  - {name: a, command: x}\n  - name: b\n    depends: [a]\n    script: |\n      y\n",
    ),
    (
        ManifestKind::Dag,
        "consts: [{a: 1}]\nsteps:\n  - {id: a, run: 'x ${consts.a}', outputs: [{name: o}]}\n  - foreach:\n      items: [1]\n      steps:\n        - {action: log.write, with: {message: '${steps.a.outputs.o}'}}\n    depends: a\n",
    ),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A valid text with pieces cut, doubled or replaced: each problem has a place in the text.
    #[test]
    fn every_problem_has_a_place(
        seed in 0..4usize,
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..12usize, "[-a-z0-9:,{}\\[\\]&*|>'\"#%@!\n \u{e4}]{0,6}"), 1..6),
    ) {
        let (kind, text) = SEEDS[seed];
        let mut chars: Vec<char> = text.chars().collect();
        for (at, cut, put) in edits {
            let from = at.index(chars.len() + 1);
            let to = (from + cut).min(chars.len());
            chars.splice(from..to, put.chars());
        }
        let text: String = chars.into_iter().collect();
        let problems = check(kind, &text);
        prop_assert_eq!(&problems, &check(kind, &text));
        let lines = text.lines().count() + 1;
        for problem in &problems {
            prop_assert!((1..=lines).contains(&problem.line) && problem.column >= 1, "{problem:?}\n{text}");
            prop_assert!(!problem.message.is_empty());
        }
        prop_assert!(problems.is_sorted_by_key(|problem| (problem.line, problem.column)));
    }

    /// What the schema takes its type takes: only rules may refuse it.
    #[test]
    fn the_schema_says_what_the_types_take(
        key in prop::sample::select(vec!["params", "env", "labels", "schedule", "container", "preconditions", "steps", "depends", "continue_on", "parallel", "output", "outputs", "routes", "value", "run", "action", "with", "foreach", "consts", "stdout", "retry_policy", "secrets", "llm", "defaults", "tasks"]),
        value in prop::sample::select(vec!["x", "1", "1.5", "true", "null", "[]", "{}", "[1]", "[x]", "[[x]]", "{a: 1}", "{a: null}", "[{a: 1}]", "'a=b'", "{a: [x]}", "5.0"]),
    ) {
        for text in [format!("{key}: {value}\nsteps: [x]\n"), format!("steps: [{{command: x, {key}: {value}}}]\n"), format!("steps: [{{run: x, {key}: {value}}}]\n")] {
            let problems = check(ManifestKind::Dag, &text);
            // The message of a type that does not fit is serde's.
            let foreign = problems.iter().find(|p| p.path.is_empty() && p.message.contains("data did not match"));
            prop_assert!(foreign.is_none(), "{text}: {foreign:?}");
        }
    }
}

#[test]
fn manifests_are_written_as_they_are_read() {
    let agent: AgentManifest = serde_saphyr::from_str(AGENT).expect("reads");
    let again: AgentManifest =
        serde_json::from_value(serde_json::to_value(&agent).expect("writes")).expect("reads");
    assert_eq!(agent, again);
    let dag: DagManifest = serde_saphyr::from_str(SEEDS[2].1).expect("reads");
    let again: DagManifest =
        serde_json::from_value(serde_json::to_value(&dag).expect("writes")).expect("reads");
    assert_eq!(dag, again);
}
