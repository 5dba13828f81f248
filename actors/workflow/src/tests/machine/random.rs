use std::collections::BTreeSet;

use hivekeep_plan::machine::{
    Blackboard, MachineFailure, MachineNext, MachineStart, MachineView, StateOutput, next,
};

use super::*;
use crate::{machine::MachineRecord, run::RunRecord};

const CONDITIONS: [&str; 9] = [
    "on_success",
    "on_failure",
    "exit_code_zero",
    "exit_code, value: 2",
    "input_equals_yes",
    "score_above, threshold: 0.5",
    "score_below, threshold: 0.5",
    "custom, expression: 'status == \"failed\"'",
    "custom, expression: 'state.visit > 2'",
];

/// Random machine, whose cycles are bounded.
pub(in crate::tests) fn machine(random: &mut fastrand::Rng) -> WorkflowManifest {
    let count = random.usize(1..6);
    let name = |at: usize| if at == 0 { "A".to_owned() } else { format!("S{at}") };
    let mut text = format!("  max_total_transitions: {}\n  states:\n", random.u8(1..20));
    for at in 0..count {
        let visits = random.u8(1..5);
        let work = match random.u8(0..5) {
            0 => "kind: Agent, agent: any, input: 'x {{feedback}}'".to_owned(),
            1 => "kind: Human, prompt: x, timeout: 5ms, default_response: 'yes'".to_owned(),
            2 => "kind: ParallelAgents, agents: [{ agent: any, input: x }, { agent: any, input: y }], \
                  consensus: { strategy: majority }"
                .to_owned(),
            3 => format!(
                "kind: System, command: update_blackboard, env: {{ k{at}: '{{{{state.visit}}}}' }}"
            ),
            _ => format!(
                "kind: System, command: 'echo {{{{state.visit}}}}; exit {}'",
                random.u8(0..4)
            ),
        };
        let mut ways = Vec::new();
        for _ in 0..random.usize(0..4) {
            let condition = CONDITIONS[random.usize(..CONDITIONS.len())];
            let (target, feedback) = (name(random.usize(0..=at + 1)), "'from {{state.name}}'");
            ways.push(format!(
                "{{ condition: {condition}, target: {target}, feedback: {feedback} }}"
            ));
        }
        ways.push(format!("{{ condition: exit_code_non_zero, target: {} }}", name(at + 1)));
        if random.bool() {
            ways.push(format!("{{ condition: always, target: {} }}", name(at + 1)));
        }
        let (name, ways) = (name(at), ways.join(", "));
        text.push_str(&format!(
            "    {name}: {{ {work}, max_state_visits: {visits}, transitions: [{ways}] }}\n"
        ));
    }
    text.push_str(&format!(
        "    {}: {{ kind: System, command: 'true', transitions: [] }}\n",
        name(count)
    ));
    workflow("", &text)
}

/// Ways that the pure machine goes on the outputs of a run.
fn expected(
    id: RunId,
    manifest: &WorkflowManifest,
    outputs: &[(String, StateOutput)],
) -> Vec<MachineNext> {
    let start = MachineStart {
        execution_id: id.to_string(),
        tenant_id: Some("local".to_owned()),
        input: json!({}),
        intent: Some("do it".to_owned()),
        ..MachineStart::default()
    };
    let mut blackboard = Blackboard::new(manifest, start).expect("it fits");
    let (mut visits, mut transitions) = (BTreeMap::new(), 0);
    let (mut feedback, mut ways) = (None::<String>, Vec::new());
    for (state, output) in outputs {
        *visits.entry(state.clone()).or_default() += 1;
        blackboard.put_output(state, &manifest.spec.states[state], output).expect("it fits");
        let view = MachineView {
            spec: &manifest.spec,
            blackboard: &blackboard,
            state,
            visits: &visits,
            transitions,
            feedback: feedback.as_deref(),
        };
        let mut way = next(&view, output);
        match (&mut way, &output.error) {
            (MachineNext::Enter { feedback: said, .. }, _) => {
                (transitions, feedback) = (transitions + 1, said.clone());
            }
            (
                MachineNext::Failed { failure: MachineFailure::NoTransition, message },
                Some(cause),
            ) => message.push_str(&format!(": {cause}")),
            _ => {}
        }
        ways.push(way);
    }
    ways
}

/// Records of a run as they are on the disk: ids of executions, outputs, and ways.
#[derive(Default)]
pub(in crate::tests) struct Recorded {
    entered: usize,
    executions: Vec<hivekeep_kernel::ExecutionId>,
    pub(in crate::tests) outputs: Vec<(String, StateOutput)>,
    ways: Vec<MachineNext>,
}

impl Recorded {
    fn take(&mut self, record: &MachineRecord) {
        match record {
            MachineRecord::Entered { executions, .. } => {
                self.entered += 1;
                self.executions.extend(executions);
            }
            MachineRecord::Ended { state, output, .. } => {
                self.outputs.push((state.clone(), (**output).clone()));
            }
            MachineRecord::Left { next, feedback, failure, .. } => {
                let (next, feedback) = (next.clone(), feedback.clone());
                self.ways.push(match (next, failure.clone()) {
                    (Some(state), _) => MachineNext::Enter { state, feedback },
                    (None, None) => MachineNext::Completed,
                    (None, Some((failure, message))) => MachineNext::Failed { failure, message },
                });
            }
            _ => {}
        }
    }
}

/// Agents whose answers make all conditions hold now and then.
pub(in crate::tests) fn agents() -> ScriptedAgents {
    ScriptedAgents::new(|_, before| match before % 4 {
        0 => completed(r#"{ "score": 0.8 }"#),
        1 => completed(r#"{ "score": 0.3 }"#),
        2 => completed("no score"),
        _ => ExecutionResult::Failed { error: ToolError::invalid("no"), judged: None },
    })
}

/// Checks that a run went the way of the pure machine on its outputs, and that each piece of work was done once.
pub(in crate::tests) async fn check_machine(
    stage: &MachineStage,
    id: RunId,
    manifest: &WorkflowManifest,
) -> Recorded {
    let over = stage.over(id).await;
    let (runs, mut recorded) = (stage.stage.runs(), Recorded::default());
    for record in runs.0.records(ALL, &id.to_string()).await.expect("they are read") {
        if let RunRecord::Moved { left: Some(left), .. } = record
            && let Some(machine) = &left.machine
        {
            recorded.take(machine);
        }
    }
    let Recorded { entered, executions, outputs, ways } = &recorded;
    let told = || format!("{id} of {manifest:#?}");
    assert_eq!(*ways, expected(id, manifest, outputs), "{}", told());
    let left = (ways.len(), ways.len());
    assert_eq!((*entered, outputs.len()), left, "each is left: {}", told());
    let succeeds = matches!(ways.last(), Some(MachineNext::Completed));
    assert_eq!(over.status == Completed, succeeds, "{}", told());
    let unique: BTreeSet<_> = executions.iter().collect();
    assert_eq!(unique.len(), executions.len(), "{}", told());
    let own = format!("{id}/");
    let started = stage.stage.guest.started().into_iter().filter(|task| task.starts_with(&own));
    let commands = outputs.iter().filter(|(_, output)| output.exit_code().is_some()).count();
    assert_eq!(started.count(), commands, "each command takes its effect once: {}", told());
    recorded
}
