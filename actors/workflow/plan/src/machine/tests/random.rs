use proptest::prelude::*;
use serde_json::json;

use super::*;

const CONDITIONS: [&str; 9] = [
    "always",
    "on_success",
    "on_failure",
    "exit_code_zero",
    "exit_code, value: 2",
    "input_equals_yes",
    "score_above, threshold: 0.5",
    "custom, expression: 'status == \"succeeded\"'",
    "custom, expression: 'output.score > 0.5'",
];

fn output() -> impl Strategy<Value = StateOutput> {
    prop_oneof![
        (0..4_i64).prop_map(command),
        prop::sample::select(vec!["yes", "no", "what"]).prop_map(human),
        (0..=10_u8).prop_map(|tenths| {
            let text = json!({ "score": f64::from(tenths) / 10.0 }).to_string();
            StateOutput::agent(&text, None, Vec::new())
        }),
        Just(StateOutput::agent("x", None, Vec::new()).failed("it did not")),
    ]
}

/// States with their transitions and bounds; a last one ends the run, and each has a way to it.
fn machine() -> impl Strategy<Value = (String, u64)> {
    let ways = prop::collection::vec((0..CONDITIONS.len(), 0..6_usize), 0..4);
    (prop::collection::vec((ways, 1..5_u64), 1..6), 1..20_u64).prop_map(|(states, most)| {
        let mut text = format!("  max_total_transitions: {most}\n  states:\n");
        let count = states.len();
        let name = |at: usize| if at == 0 { "A".to_owned() } else { format!("S{at}") };
        for (at, (ways, visits)) in states.into_iter().enumerate() {
            text.push_str(&format!(
                "    {}:\n      kind: Human\n      prompt: x\n      max_state_visits: {visits}\n      transitions:\n",
                name(at)
            ));
            for (condition, target) in ways.into_iter().filter(|(condition, _)| *condition > 0) {
                let (condition, target) = (CONDITIONS[condition], name(target % (count + 1)));
                text.push_str(&format!("        - {{ condition: {condition}, target: {target} }}\n"));
            }
            text.push_str(&format!("        - {{ condition: exit_code_non_zero, target: {} }}\n", name(at + 1)));
            text.push_str(&format!("        - {{ condition: always, target: {} }}\n", name(at + 1)));
        }
        text.push_str(&format!("    {}: {{ kind: Human, prompt: x, transitions: [] }}\n", name(count)));
        (text, most)
    })
}

type Trace = (Vec<MachineNext>, BTreeMap<String, u64>, u64);

fn run(manifest: &WorkflowManifest, outputs: &[StateOutput]) -> Trace {
    let mut blackboard = begun(manifest, json!({})).expect("it fits");
    let (mut state, mut feedback, mut transitions) = ("A".to_owned(), None, 0);
    let mut visits = BTreeMap::from([(state.clone(), 1)]);
    let mut trace = Vec::new();
    for output in outputs.iter().cycle() {
        blackboard.put_output(&state, &manifest.spec.states[&state], output).expect("it fits");
        let view = MachineView {
            spec: &manifest.spec,
            blackboard: &blackboard,
            state: &state,
            visits: &visits,
            transitions,
            feedback: feedback.as_deref(),
        };
        let next = next(&view, output);
        trace.push(next.clone());
        let MachineNext::Enter { state: entered, feedback: said } = next else { break };
        (state, feedback) = (entered, said);
        *visits.entry(state.clone()).or_default() += 1;
        transitions += 1;
    }
    (trace, visits, transitions)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever its states answer, a machine ends within its bounds, and the same outputs lead the same way.
    #[test]
    fn each_machine_ends_within_its_bounds(
        (text, most) in machine(),
        outputs in prop::collection::vec(output(), 1..8),
    ) {
        let manifest = workflow(&text);
        let (trace, visits, transitions) = run(&manifest, &outputs);
        prop_assert!(transitions <= most, "{transitions} of {most}\n{text}");
        prop_assert_eq!(trace.len() as u64, transitions + 1);
        for (name, visits) in &visits {
            let state = &manifest.spec.states[name];
            prop_assert!(*visits <= state.max_state_visits(), "{name}: {visits}\n{text}");
        }
        prop_assert_eq!(run(&manifest, &outputs).0, trace);
    }
}
