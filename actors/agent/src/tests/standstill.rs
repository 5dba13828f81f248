//! Machines that stand still while their execution waits, and go on before it does, wherever the daemon dies.

use chrono::{TimeDelta, Utc};
use hivekeep_kernel::{ExecutionId, Layer, ToolError, codes};
use hivekeep_ports::TaskOutcome;
use hivekeep_testkit::eventually;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{
    Stage,
    fakes::says,
    machine::{RelayPlay, whole},
    machines::MACHINE,
    tasks::{opened, types, working},
};
use crate::execution::{
    account::AccountChange,
    standstill::StandstillChange,
    state::{ExecutionState, Record},
};

const PATH: &str = "/v1/responses";
const BOUND: &str = "  execution: { budget: { tokens: 24 } }\n";
/// Bound of a program: enough for a short request, and for none of 30 letters behind that.
const SHORT: &str = "  execution: { budget: { tokens: 40 } }\n";
const MORE: u64 = 500;

fn no_cgroup() -> ToolError {
    ToolError::new(Layer::Machine, codes::INTERNAL, "it has no cgroup")
}

/// Whether a machine may stand still behind these records.
fn may_stand(records: &[Record]) -> bool {
    let change = |record: &Record| match record {
        Record::Account { change: AccountChange::BudgetReached(_), .. }
        | Record::Standstill { change: StandstillChange::Idle, .. } => Some(true),
        Record::Standstill { change: StandstillChange::WentOn { .. }, .. } => Some(false),
        _ => None,
    };
    records.iter().rev().find_map(change).unwrap_or(false)
}

impl Stage {
    async fn stands(&self) {
        eventually("it stands still", async || self.machines.is_halted()).await;
    }

    async fn more(&self, id: &str) {
        self.continued(id, json!({ "budget": { "tokens": MORE } })).await;
    }

    /// Has the model ask for calls and be done, and never while a machine stands still.
    fn answer_awake(&self) {
        let machines = self.machines.clone();
        self.models.answer(move |request| {
            assert!(!machines.is_halted(), "asked while its machine stands still");
            working(request)
        });
    }

    /// Has the provider answer a program, and never while a machine stands still.
    fn play_awake(&self) {
        let machines = self.machines.clone();
        self.machine.play(move |_, _| {
            assert!(!machines.is_halted(), "asked while its machine stands still");
            RelayPlay::Whole(&["one ", "two"])
        });
    }

    /// Answer to a request of so many letters.
    fn sends(&self, letters: usize) -> JoinHandle<(u16, Result<String, String>)> {
        let machine = self.machine.clone();
        let long = json!({ "model": "m", "input": "c".repeat(letters) }).to_string();
        tokio::spawn(async move { whole(machine.sends(PATH, &long).await).await })
    }

    /// Has a program bounded by [`SHORT`] ask for more than it may: its answer, when there is more.
    async fn to_the_bound(&self, id: &str) -> JoinHandle<(u16, Result<String, String>)> {
        assert_eq!(self.asks("a").await.0, 200);
        let held = self.sends(30);
        self.waits_for(id, "budget").await;
        held
    }

    async fn exits(&self) {
        self.machine.finish(TaskOutcome::Exited { exit_code: 0 }, "Done.", "").await;
    }

    /// A stage after a daemon that died behind these records, with the machine as it left it.
    async fn left_behind(id: ExecutionId, records: &[Record], prepare: impl Fn(&Self)) -> Self {
        Self::reopened(id, records, |stage| {
            opened(records).map(|session| stage.machines.put(session));
            if may_stand(records) {
                stage.machines.left_halted();
            }
            prepare(stage);
        })
        .await
    }

    async fn closed_as_operator(&self, id: &str) {
        let last = async || {
            let logs = json!({ "execution_id": id, "limit": 200 });
            let logs = self.as_operator("aegis.task.logs", logs).await.expect("events");
            logs["events"].as_array().expect("events").last().expect("one")["event_type"].clone()
        };
        eventually("its session ends", async || last().await == "session_closed").await;
    }

    /// Waits for the end, or for the bound at which the machine stands still and to which more is added.
    async fn to_its_end(&self, id: &str, kept: usize) {
        let state = async || self.status(id).await;
        let waits = |state: &Value| state["waiting_for"] == "budget";
        eventually("it ends or waits", async || {
            let state = state().await;
            state["status"] == "completed" || waits(&state)
        })
        .await;
        if waits(&state().await) {
            self.stands().await;
            self.more(id).await;
        }
        eventually("it ends", async || state().await["status"] == "completed").await;
        self.closed_as_operator(id).await;
        assert!(!self.machines.is_halted(), "at {kept}");
    }
}

#[tokio::test]
async fn at_a_bound_the_machine_stands_still_and_goes_on_before_the_next_request() {
    let stage = Stage::with_worker(&format!("{MACHINE}{BOUND}")).await;
    stage.answer_awake();
    let id = stage.begun("Mend it").await;
    stage.waits_for(&id, "budget").await;
    stage.stands().await;
    stage.more(&id).await;
    let events = stage.closed(&id).await;
    let at = |wanted: &str| types(&events).iter().position(|it| *it == wanted).expect("told");
    let order = ["budget_reached", "machine_paused", "execution_continued", "standstill_ended"];
    assert!(order.map(at).is_sorted(), "{events:?}");
    assert_eq!(stage.machines.calls("halt"), [json!(false)]);
    let (parsed, records) = stage.records(&id).await;
    for kept in 1..=records.len() {
        let again =
            Stage::left_behind(parsed, &records[..kept], |stage| stage.answer_awake()).await;
        again.to_its_end(&id, kept).await;
    }
}

#[tokio::test]
async fn a_programs_request_is_held_and_goes_on_where_it_was() {
    let (stage, id) = Stage::with_program(SHORT).await;
    stage.play_awake();
    let held = stage.to_the_bound(&id).await;
    stage.stands().await;
    stage.more(&id).await;
    let (status, answer) = held.await.expect("answered");
    assert_eq!((status, answer.as_deref()), (200, Ok("one two")), "the same request");
    stage.exits().await;
    stage.closed(&id).await;
    assert_eq!(stage.machines.calls("go_on").len(), 1);

    let (parsed, records) = stage.records(&id).await;
    for kept in 1..=records.len() {
        let again = Stage::left_behind(parsed, &records[..kept], |stage| stage.play_awake()).await;
        let works = async {
            let _answered = again.sends(30).await;
            again.exits().await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = again.to_its_end(&id, kept) => {}
            () = works => {}
        }
        assert!(again.machine.assigned().len() <= 1, "at {kept}");
    }
}

#[tokio::test]
async fn a_machine_that_cannot_stand_still_runs_on_and_is_told_of() {
    let (stage, id) = Stage::with_program(SHORT).await;
    stage.machines.be_restless(no_cgroup());
    stage.play_awake();
    let held = stage.to_the_bound(&id).await;
    let told = async || {
        let events = stage.events(&id).await;
        let of_it = |event: &&Value| event["event_type"] == "machine_not_paused";
        events.iter().find(of_it).map(|event| event["payload"]["error"]["message"].clone())
    };
    eventually("it is told", async || told().await == Some(json!("it has no cgroup"))).await;
    assert_eq!(stage.asks("a").await.0, 200, "what is recorded is answered");
    stage.more(&id).await;
    assert_eq!(held.await.expect("answered").0, 200);
    stage.exits().await;
    assert_eq!(stage.end(&id).await["status"], "completed");
}

#[tokio::test]
async fn the_machine_of_a_chat_stands_still_when_nobody_has_said_anything_for_long() {
    let mut stage = Stage::with_worker(MACHINE).await;
    stage.rig.options.idle_secs = 1;
    stage.rig = stage.rig.crashed().await;
    let machines = stage.machines.clone();
    stage.models.answer(move |_| {
        assert!(!machines.is_halted(), "asked while its machine stands still");
        says("Well.", &[])
    });
    let asked = json!({ "agent_id": "worker", "intent": "Talk", "chat": true });
    let started = stage.good("aegis.task.execute", asked).await;
    let id = started["execution_id"].as_str().expect("an id").to_owned();
    stage.waits_for(&id, "message").await;
    stage.stands().await;
    assert_eq!(stage.machines.calls("halt"), [json!(true)], "saved where it can be");
    // The next daemon leaves it so.
    stage.rig = stage.rig.crashed().await;
    stage.waits_for(&id, "message").await;
    assert!(stage.machines.is_halted());
    stage.continued(&id, json!({ "message": "And now?" })).await;
    eventually("it answers", async || stage.models.asked().len() == 2).await;
    stage.waits_for(&id, "message").await;
    stage.stands().await;
    stage.good("aegis.task.cancel", json!({ "execution_id": id })).await;
    stage.closed(&id).await;
    assert!(!stage.machines.is_halted());

    let (parsed, records) = stage.records(&id).await;
    let over = |record: &Record| matches!(record, Record::Cancelled { .. });
    let over = records.iter().position(over).expect("it is cancelled");
    for kept in 1..=over {
        let again = Stage::left_behind(parsed, &records[..kept], |stage| {
            let machines = stage.machines.clone();
            stage.models.answer(move |_| {
                assert!(!machines.is_halted(), "asked while its machine stands still");
                says("Well.", &[])
            });
        })
        .await;
        again.waits_for(&id, "message").await;
        again.stands().await;
        again.continued(&id, json!({ "message": "Once more." })).await;
        let said = || {
            again.models.asked().last().is_some_and(|it| format!("{it:?}").contains("Once more."))
        };
        eventually("it answers", async || said()).await;
        again.good("aegis.task.cancel", json!({ "execution_id": id })).await;
        again.closed(&id).await;
        assert!(!again.machines.is_halted(), "at {kept}");
    }
}

#[tokio::test]
async fn a_program_that_ends_at_a_bound_waits_for_nothing() {
    let (stage, id) = Stage::with_program(SHORT).await;
    stage.machines.be_restless(no_cgroup());
    stage.play_awake();
    let held = stage.to_the_bound(&id).await;
    stage.exits().await;
    assert_eq!(stage.end(&id).await["status"], "completed");
    held.abort();

    // What it had asked for is not asked any more, also where nobody waited so far.
    let (parsed, mut records) = stage.records(&id).await;
    let reached =
        |it: &Record| matches!(it, Record::Account { change: AccountChange::BudgetReached(_), .. });
    let at = records.iter().position(reached).expect("it is reached");
    let (iteration, error) = (0, Box::new(no_cgroup()));
    let failed = Record::IterationFailed { iteration, error, at: Utc::now() };
    let failed: Vec<_> = records[..=at].iter().cloned().chain([failed]).collect();
    let failed = ExecutionState::of(&failed).expect("they follow");
    assert_eq!(failed.account.waiting(), None, "nor by an iteration that failed");
    records.retain(|it| !reached(it) && !matches!(it, Record::Standstill { .. }));
    let ended = records.iter().position(|it| matches!(it, Record::ProgramEnded { .. }));
    records.truncate(ended.expect("it ended") + 1);
    let state = ExecutionState::of(&records).expect("they follow");
    assert_eq!(state.may_ask().expect_err("over").code, "program_failed");
    let again = Stage::left_behind(parsed, &records, |_| {}).await;
    assert_eq!(again.end(&id).await["status"], "completed");
}

#[tokio::test]
async fn a_program_that_nobody_gives_more_ends_with_its_wait() {
    let (stage, id) = Stage::with_program(SHORT).await;
    stage.play_awake();
    stage.to_the_bound(&id).await.abort();
    stage.stands().await;
    let (parsed, mut records) = stage.records(&id).await;
    for record in &mut records {
        if let Record::Account { change: AccountChange::BudgetReached(wait), .. } = record {
            wait.until = Utc::now() + TimeDelta::milliseconds(100);
        }
    }
    let again = Stage::left_behind(parsed, &records, |_| {}).await;
    let end = again.end(&id).await;
    let failed = (&json!("failed"), &json!("budget_exhausted"));
    assert_eq!((&end["status"], &end["error_code"]), failed);
    again.closed_as_operator(&id).await;
    assert!(!again.machines.is_halted());
}

#[tokio::test]
async fn a_bound_that_is_reached_while_the_machine_goes_on_has_it_stand_still_again() {
    let (stage, id) = Stage::with_program(SHORT).await;
    stage.machine.play(|_, _| RelayPlay::Whole(&["one ", "two"]));
    let held = stage.to_the_bound(&id).await;
    stage.stands().await;
    let gate = stage.machines.hold_back().await;
    stage.more(&id).await;
    eventually("it is to go on", async || stage.machines.calls("go_on").len() == 1).await;
    let fresh = stage.sends(2_000);
    let reached = async || {
        let events = stage.events(&id).await;
        types(&events).iter().filter(|it| **it == "budget_reached").count()
    };
    // Neither can ask before the machine goes on.
    for _ in 0..20 {
        stage.status(&id).await;
    }
    assert_eq!(reached().await, 1);
    drop(gate);
    assert_eq!(held.await.expect("answered").0, 200);
    eventually("the bound is reached again", async || reached().await == 2).await;
    stage.stands().await;
    stage.continued(&id, json!({ "budget": { "tokens": 5_000 } })).await;
    assert_eq!(fresh.await.expect("answered").0, 200);
    stage.exits().await;
    assert_eq!(stage.end(&id).await["status"], "completed");
}

#[tokio::test]
async fn a_program_is_stopped_by_a_daemon_that_found_its_machine_standing_still() {
    let (mut stage, id) = Stage::with_program(SHORT).await;
    stage.play_awake();
    let held = stage.to_the_bound(&id).await;
    stage.stands().await;
    stage.rig = stage.rig.crashed().await;
    held.abort();
    stage.waits_for(&id, "budget").await;
    stage.good("aegis.task.cancel", json!({ "execution_id": id })).await;
    stage.closed(&id).await;
    assert_eq!(stage.machine.cancelled().len(), 1);
}

#[tokio::test]
async fn a_cancelled_execution_does_not_wait_for_a_busy_machine() {
    let stage = Stage::with_worker(&format!("{MACHINE}{BOUND}")).await;
    let busy = ToolError::new(Layer::Actor, codes::INTERNAL, "it is being forked").retryable();
    stage.machines.be_restless(busy);
    stage.answer_awake();
    let id = stage.begun("Mend it").await;
    eventually("it is asked", async || stage.machines.calls("halt").len() == 2).await;
    stage.good("aegis.task.cancel", json!({ "execution_id": id })).await;
    stage.closed(&id).await;
    assert!(stage.machines.calls("halt").len() < 7, "all attempts");
}
