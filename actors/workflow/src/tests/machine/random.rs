use std::collections::BTreeSet;

use hivekeep_plan::machine::{
    Blackboard, MachineFailure, MachineNext, MachineStart, MachineView, StateOutput, next,
};

use super::*;
use crate::{DagRuns, machine::MachineRecord, run::RunRecord};

/// Machines of a run of the tests, and daemons that die in each.
const MACHINES: u64 = 30;
const KILLS: usize = 2;
/// Makes the machines of an earlier run again.
const SEED: &str = "HIVEKEEP_SEED";
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

fn machine(random: &mut fastrand::Rng) -> WorkflowManifest {
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
struct Recorded {
    entered: usize,
    executions: Vec<hivekeep_kernel::ExecutionId>,
    outputs: Vec<(String, StateOutput)>,
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

/// Whatever dies, a run goes the way of the pure machine on its outputs, and each piece of work is done once.
#[tokio::test]
async fn random_machines_go_their_way_whatever_dies() {
    let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed: {seed}");
    for number in 0..MACHINES {
        let seed = seed.wrapping_add(number);
        let mut random = fastrand::Rng::with_seed(seed);
        let manifest = machine(&mut random);
        let told = format!("{SEED}={seed} gives {manifest:#?}");
        let agents = ScriptedAgents::new(|_, before| match before % 4 {
            0 => completed(r#"{ "score": 0.8 }"#),
            1 => completed(r#"{ "score": 0.3 }"#),
            2 => completed("no score"),
            _ => ExecutionResult::Failed { error: ToolError::invalid("no"), judged: None },
        });
        let mut stage = MachineStage::new(agents).await;
        let id = stage.begin(&manifest, json!({})).await.expect(&told);
        for _ in 0..KILLS {
            let behind = random.usize(1..30);
            loop {
                let (DagRuns(runs, _), events) =
                    (&*stage.stage.runs(), stage.events(id).await.len());
                let is_over = runs.get(ALL, &id.to_string()).is_ok_and(|it| it.status().is_over());
                if events >= behind || is_over {
                    break;
                }
                tokio::task::yield_now().await;
            }
            stage.stage.rig = stage.stage.rig.crashed().await;
        }
        let over = stage.over(id).await;
        let DagRuns(runs, _) = &*stage.stage.runs();
        runs.settled(ALL, &id.to_string()).await.expect("it is there");
        assert_eq!(stage.over(id).await, over, "its records add up to what was answered: {told}");
        let mut recorded = Recorded::default();
        for record in runs.records(ALL, &id.to_string()).await.expect("they are read") {
            if let RunRecord::Moved { left: Some(left), .. } = record
                && let Some(machine) = &left.machine
            {
                recorded.take(machine);
            }
        }
        let Recorded { entered, executions, outputs, ways } = recorded;
        assert_eq!(ways, expected(id, &manifest, &outputs), "{told}");
        assert_eq!((entered, outputs.len()), (ways.len(), ways.len()), "each is left: {told}");
        let succeeds = matches!(ways.last(), Some(MachineNext::Completed));
        assert_eq!(over.status == Completed, succeeds, "{told}");
        let unique: BTreeSet<_> = executions.iter().collect();
        assert_eq!(unique.len(), executions.len(), "{told}");
        let started = stage.stage.guest.started();
        let commands = outputs.iter().filter(|(_, output)| output.exit_code().is_some()).count();
        assert_eq!(started.iter().collect::<BTreeSet<_>>().len(), started.len(), "{told}");
        assert_eq!(started.len(), commands, "each command takes its effect once: {told}");
    }
}
