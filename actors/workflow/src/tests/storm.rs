//! Storm: runs of random graphs and of random machines side by side, under a daemon that dies again and again.

mod checks;
mod graphs;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use fastrand::Rng;
use hivekeep_kernel::RunId;
use hivekeep_manifest::workflow::WorkflowManifest;
use hivekeep_plan::progress::{RetryFrom, RunOutcome};
use serde_json::{Value, json};

use super::{
    ALL,
    machine::{
        MachineStage,
        random::{Recorded, agents, check_machine, machine},
        workflow,
    },
};
pub(super) use checks::EndedRun;
use checks::check_graph;
use graphs::RandomGraph;

/// Names the seed of another run; its texts are the same then, the moments of its deaths are the machine's.
const SEED: &str = "TEST_HIVEKEEP_STORM_SEED";
/// Set in a night: all of it.
const NIGHTLY: &str = "TEST_HIVEKEEP_NIGHTLY";
/// Longest time until all runs are over behind the last death.
const PATIENCE: Duration = Duration::from_secs(120);
/// States that take one answer behind the other, until one ends it.
const ANSWERED: &str = "  max_total_transitions: 100
  states:
    A: { kind: System, command: sleep 0.02, transitions: [{ condition: always, target: B }] }
    B: { kind: Human, prompt: x, max_state_visits: 20, transitions: [{ condition: input_equals, value: stop, target: C }, { condition: always, target: B }] }
    C: { kind: System, command: 'true', transitions: [] }
";

/// Plan of a run, with what its check has to know.
enum StormPlan {
    Graph(RandomGraph),
    Machine(Box<WorkflowManifest>),
    /// Machine that is told something, with the answers that it took.
    Answered(Box<WorkflowManifest>, Vec<String>),
}

struct StormRun {
    id: RunId,
    plan: StormPlan,
    stopped: bool,
}

struct Storm {
    stage: MachineStage,
    random: Rng,
    runs: Vec<StormRun>,
    told: usize,
}

impl Storm {
    async fn begin(&mut self) {
        let number = self.runs.len();
        let (id, plan) = match number % 6 {
            0..4 => {
                let graph = RandomGraph::new(number, &mut self.random);
                let begun = self.stage.stage.begin(&graph.text, Value::Null).await;
                (begun.expect(&graph.text), StormPlan::Graph(graph))
            }
            4 => {
                let manifest = Box::new(machine(&mut self.random));
                let begun = self.stage.begin(&manifest, json!({})).await;
                (begun.expect("begun"), StormPlan::Machine(manifest))
            }
            _ => {
                let manifest = Box::new(workflow("", ANSWERED));
                let begun = self.stage.begin(&manifest, json!({})).await;
                (begun.expect("begun"), StormPlan::Answered(manifest, Vec::new()))
            }
        };
        self.runs.push(StormRun { id, plan, stopped: false });
    }

    /// Answers questions, tells machines something, and stops a run now and then.
    async fn meddle(&mut self) {
        self.stage.stage.people.reply_to_all();
        for run in &mut self.runs {
            if let StormPlan::Answered(_, taken) = &mut run.plan
                && taken.len() < 15
                && self.random.u8(..4) == 0
            {
                self.told += 1;
                let answer = format!("a{}", self.told);
                if self.stage.signal(run.id, &answer).await {
                    taken.push(answer);
                }
            }
        }
        if let Some(run) = self.random.choice(&mut self.runs)
            && let StormPlan::Graph(_) = run.plan
        {
            let stopped = self.stage.stage.runs().stop(ALL, run.id).await.expect("written");
            run.stopped |= stopped;
        }
    }

    /// Waits until some commands more have begun, and a little; then the daemon dies.
    async fn die(mut self, more: usize) -> Self {
        let until = self.stage.stage.guest.started().len() + self.random.usize(..=more);
        for _ in 0..50 {
            if self.stage.stage.guest.started().len() >= until {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for _ in 0..self.random.usize(..40) {
            tokio::task::yield_now().await;
        }
        self.stage.stage.rig = self.stage.stage.rig.crashed().await;
        self
    }

    fn is_over(&self, id: RunId) -> bool {
        self.stage.stage.runs().outcome(ALL, id).expect("it is there").is_some()
    }

    /// Goes on until all runs are over.
    async fn end(&mut self) {
        let begun = Instant::now();
        for run in &mut self.runs {
            if let StormPlan::Answered(_, taken) = &mut run.plan
                && taken.last().is_none_or(|last| last != "stop")
            {
                while !self.stage.signal(run.id, "stop").await {
                    assert!(begun.elapsed() < PATIENCE, "{} takes no answer", run.id);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                taken.push("stop".to_owned());
            }
        }
        while let Some(run) = self.runs.iter().find(|run| !self.is_over(run.id)) {
            let state = || self.stage.stage.runs().0.get(ALL, &run.id.to_string());
            assert!(begun.elapsed() < PATIENCE, "{:#?}", state().map(|it| it.state));
            self.stage.stage.people.reply_to_all();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Has graphs that failed go on.
    async fn retry(&mut self) -> usize {
        let mut retried = 0;
        for run in &self.runs {
            let runs = self.stage.stage.runs();
            let failed =
                runs.outcome(ALL, run.id).expect("it is there") == Some(RunOutcome::Failed);
            if let (StormPlan::Graph(_), true) = (&run.plan, failed) {
                runs.retry(ALL, run.id, RetryFrom::Failed).await.expect("it goes on");
                retried += 1;
            }
        }
        retried
    }

    async fn check(&self) {
        for run in &self.runs {
            match &run.plan {
                StormPlan::Graph(graph) => {
                    check_graph(&self.stage.stage, graph, run.id, run.stopped).await;
                }
                StormPlan::Machine(manifest) => {
                    check_machine(&self.stage, run.id, manifest).await;
                    EndedRun::read(&self.stage.stage, run.id).await;
                }
                StormPlan::Answered(manifest, taken) => {
                    let Recorded { outputs, .. } =
                        check_machine(&self.stage, run.id, manifest).await;
                    let answers = outputs.iter().filter(|(state, _)| state == "B");
                    let said = answers.map(|(_, output)| output.to_value()["response"].clone());
                    assert_eq!(json!(said.collect::<Vec<_>>()), json!(taken), "{}", run.id);
                }
            }
        }
    }
}

#[tokio::test]
#[allow(clippy::print_stdout)]
async fn runs_of_both_notations_outlive_a_daemon_that_dies_again_and_again() {
    let (runs, kills) = if std::env::var_os(NIGHTLY).is_some() { (500, 60) } else { (60, 8) };
    let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("{SEED}={seed}");
    let mut stage = MachineStage::new(agents()).await;
    stage.stage.rig.options.max_running = 2 * runs;
    stage.stage.rig.options.kept = 100 * runs;
    stage.stage.rig = stage.stage.rig.crashed().await;
    let mut storm = Storm { stage, random: Rng::with_seed(seed), runs: Vec::new(), told: 0 };
    let last = 1 + kills / 8;
    for kill in 0..kills - last {
        for _ in 0..runs / (kills - last) + 1 {
            if storm.runs.len() < runs {
                storm.begin().await;
            }
        }
        if kill % 2 == 1 {
            storm.meddle().await;
        }
        storm = storm.die(4 * runs / kills).await;
    }
    storm.end().await;
    let retried = storm.retry().await;
    for _ in 0..last {
        storm = storm.die(retried).await;
    }
    storm.end().await;
    storm.check().await;
    let outcomes = storm.runs.iter().map(|run| {
        let outcome = storm.stage.stage.runs().outcome(ALL, run.id).expect("it is there");
        format!("{outcome:?}")
    });
    let kinds: BTreeSet<_> = outcomes.collect();
    println!(
        "{runs} runs, {kills} kills, {retried} retried, {} commands",
        storm.stage.stage.guest.started().len()
    );
    assert!(kinds.len() >= 3, "the storm shows too little: {kinds:?}");
    let (open, kept) = storm.stage.stage.guest.kept();
    println!("{} results were recorded when a daemon died, and stay in the guest", kept.len());
    assert_eq!(open, 0, "sessions are ended");
}
