//! Storm: many executions side by side under a daemon that dies again and again in the middle of them, and one that
//! dies while a model answers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use hivekeep_kernel::lock;
use hivekeep_ports::{ModelMessage, ModelRequest};
use hivekeep_testkit::eventually;
use serde_json::{Value, json};

use super::{
    Stage,
    fakes::{says, turns},
    tasks::types,
};
use crate::execution::state::{CallEnd, Record};

/// Names the seed of another run.
const SEED: &str = "TEST_HIVEKEEP_STORM_SEED";
/// Set in a night: all of it.
const NIGHTLY: &str = "TEST_HIVEKEEP_NIGHTLY";

/// Number of an execution, as its prompt says it.
fn number(request: &ModelRequest) -> u64 {
    let ModelMessage::User(prompt) = &request.messages[0] else { panic!("{request:?}") };
    prompt.rsplit("storm ").next().and_then(|it| it.parse().ok()).expect("a number")
}

/// Turn of an execution that was asked for, by the number of its request.
type AskedTurns = Arc<Mutex<Vec<(u64, usize)>>>;

/// Has the models answer by the kind of an execution; each answer has the number of its request as its text.
fn play(stage: &Stage) -> AskedTurns {
    let asked = AskedTurns::default();
    let log = asked.clone();
    stage.models.answer(move |request| {
        let (number, turn) = (number(request), turns(request));
        let mut log = lock(&log);
        log.push((number, turn));
        let text = (log.len() - 1).to_string();
        let n = |nth: u64| json!({ "n": 10 * number + nth });
        match (number % 4, turn) {
            (_, 0) => says(&text, &[("fs_read", n(0)), ("fs_read", n(1))]),
            (1, 1) => says(&text, &[("hold_read", n(2)), ("hold", n(3))]),
            (2, 1) => says(
                &text,
                &[("fs_write", json!({ "n": 10 * number + 4, "fail": true })), ("no_tool", n(5))],
            ),
            (_, 1 | 2) => says(&text, &[("fs_write", n(4 + turn as u64)), ("fs_read", n(7))]),
            _ => says(&text, &[]),
        }
    });
    asked
}

struct Storm {
    stage: Stage,
    ids: Vec<String>,
    /// Executions that were given more budget.
    continued: BTreeMap<String, usize>,
}

impl Storm {
    async fn begun(executions: usize) -> (Self, AskedTurns) {
        let mut stage = Stage::with_worker("").await;
        stage.rig.options.max_running = 2 * executions;
        stage.rig = stage.rig.crashed().await;
        let (asked, mut ids) = (play(&stage), Vec::new());
        for nth in 0..executions {
            let mut request = json!({ "agent_id": "worker", "intent": format!("storm {nth}") });
            if nth % 4 == 3 {
                request["budget"] = json!({ "tokens": 24 });
            }
            let begun = stage.good("aegis.task.execute", request).await;
            ids.push(begun["execution_id"].as_str().expect("an id").to_owned());
        }
        (Self { stage, ids, continued: BTreeMap::new() }, asked)
    }

    /// Gives more budget to those that wait, once each.
    async fn continue_some(&mut self) {
        for id in self.ids.iter().skip(3).step_by(4) {
            if !self.continued.contains_key(id)
                && self.stage.status(id).await["waiting_for"] == "budget"
            {
                let more = json!({ "budget": { "tokens": 5_000 }, "message": "Go on." });
                self.stage.continued(id, more).await;
                self.continued.insert(id.clone(), 1);
            }
        }
    }

    async fn is_over(&self) -> bool {
        self.stage.children.release();
        for id in &self.ids {
            if self.stage.status(id).await["status"] != "completed" {
                return false;
            }
        }
        true
    }
}

#[tokio::test]
#[allow(clippy::print_stdout)]
async fn executions_outlive_a_daemon_that_dies_again_and_again() {
    let (executions, kills) = match std::env::var_os(NIGHTLY) {
        Some(_) => (200, 30),
        None => (24, 6),
    };
    let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("{SEED}={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut storm, asked) = Storm::begun(executions).await;
    for kill in 0..kills {
        // About so many turns are asked for between two deaths.
        let more = rng.usize(0..=4 * executions / kills);
        let until = storm.stage.models.count() + more;
        for _ in 0..50 {
            storm.stage.children.release();
            if storm.stage.models.count() >= until {
                break;
            }
            storm.stage.status(&storm.ids[kill]).await;
        }
        if rng.bool() {
            storm.continue_some().await;
        }
        // Some die while their model answers.
        storm.stage.models.be_silent(rng.bool());
        for _ in 0..rng.usize(..20) {
            tokio::task::yield_now().await;
        }
        storm.stage.models.be_silent(false);
        storm.stage.rig = storm.stage.rig.crashed().await;
    }
    let mut over = false;
    while !over {
        storm.continue_some().await;
        over = storm.is_over().await;
    }
    let asked = lock(&asked).clone();
    println!("{executions} executions, {kills} kills, {} requests", asked.len());
    let calls = calls_by_number(&storm.stage);
    for (nth, id) in storm.ids.iter().enumerate() {
        check(&storm.stage, nth as u64, id, &asked, &calls).await;
    }
}

/// Times that each call was made, by its number.
fn calls_by_number(stage: &Stage) -> BTreeMap<u64, usize> {
    let mut times = BTreeMap::new();
    for (_, args) in stage.children.made() {
        *times.entry(args["n"].as_u64().expect("a number")).or_default() += 1;
    }
    times
}

async fn check(
    stage: &Stage,
    nth: u64,
    id: &str,
    asked: &[(u64, usize)],
    calls: &BTreeMap<u64, usize>,
) {
    let (_, records) = stage.records(id).await;
    let (mut last, mut answers) = (String::new(), 0);
    for record in &records {
        match record {
            Record::Answered { turn, answer, .. } => {
                let kept: usize = answer.text.parse().expect("a number");
                let again = asked[kept..].iter().filter(|it| **it == (nth, *turn)).count();
                assert_eq!(
                    (asked[kept], again),
                    ((nth, *turn), 1),
                    "{id}: a whole answer is asked twice"
                );
                (last, answers) = (answer.text.clone(), answers + 1);
            }
            Record::Called { key: (_, turn, call), result, .. } => {
                let place = (*turn, *call);
                let effect = match (nth % 4, place) {
                    (1, (1, 1)) => 3,
                    (2, (1, 0)) => 4,
                    (1 | 2, (1, _)) | (_, (0, _) | (_, 1..)) => continue,
                    (_, (turn, _)) => 4 + turn as u64,
                };
                let times = calls.get(&(10 * nth + effect)).copied().unwrap_or(0);
                match result {
                    CallEnd::Interrupted => assert!(times <= 1, "{id}: {times} times"),
                    _ => assert_eq!(times, 1, "{id}: an effect takes place once"),
                }
            }
            _ => {}
        }
    }
    assert_eq!(answers, 4, "{id}");
    assert_eq!(stage.status(id).await["last_output"], json!(last), "{id}");
    let events = stage.closed(id).await;
    let sequences = events.iter().map(|event| event["sequence"].as_u64().expect("one"));
    assert!(sequences.eq(1..=events.len() as u64), "{id}: no sequence twice or missing");
    let count =
        |event_type: &str| types(&events).into_iter().filter(|it| *it == event_type).count();
    let waits = usize::from(nth % 4 == 3);
    let told = ["budget_reached", "execution_continued", "message_received"].map(count);
    assert_eq!(told, [waits; 3], "{id}: a wait is woken once");
}

#[tokio::test]
async fn an_answer_that_was_cut_in_its_stream_is_asked_for_once_more() {
    let mut stage = Stage::with_worker("").await;
    stage.models.answer(|_| says("Done.", &[]));
    stage.models.be_silent(true);
    let id = stage.begun("Mend it").await;
    eventually("it asks", async || types(&stage.events(&id).await).contains(&"iteration_started"))
        .await;
    for _ in 0..3 {
        stage.rig = stage.rig.crashed().await;
        let state: Value = stage.status(&id).await;
        assert_eq!(state["status"], "running");
    }
    stage.models.be_silent(false);
    stage.rig = stage.rig.crashed().await;
    assert_eq!(stage.end(&id).await["last_output"], "Done.");
    assert_eq!(stage.models.count(), 1);
    let events = stage.closed(&id).await;
    assert_eq!(types(&events).into_iter().filter(|it| *it == "llm_interaction").count(), 1);
}
