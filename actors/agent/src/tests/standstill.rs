//! Machines that stand still while their execution waits, and go on before it does, wherever the daemon dies.

use hivekeep_kernel::ExecutionId;
use hivekeep_ports::TaskOutcome;
use hivekeep_testkit::eventually;
use serde_json::{Value, json};

use super::{
    Stage,
    fakes::says,
    machine::{RelayPlay, whole},
    machines::MACHINE,
    tasks::{opened, types, working},
};
use crate::execution::{account::AccountChange, standstill::StandstillChange, state::Record};

const PATH: &str = "/v1/responses";
const BOUND: &str = "  execution: { budget: { tokens: 24 } }\n";
const MORE: u64 = 500;

/// Whether a machine may stand still behind these records.
fn may_stand(records: &[Record]) -> bool {
    let change = |record: &Record| match record {
        Record::Account { change: AccountChange::BudgetReached(_), .. } => Some(true),
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
        let last = async || {
            let logs = json!({ "execution_id": id, "limit": 200 });
            let logs = self.as_operator("aegis.task.logs", logs).await.expect("events");
            logs["events"].as_array().expect("events").last().expect("one")["event_type"].clone()
        };
        eventually("its session ends", async || last().await == "session_closed").await;
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
    let order = ["budget_reached", "machine_paused", "execution_continued", "machine_resumed"];
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
    let bound = "  execution: { budget: { tokens: 40 } }\n";
    let (stage, id) = Stage::with_program(bound).await;
    stage.play_awake();
    assert_eq!(stage.asks("a").await.0, 200);
    let machine = stage.machine.clone();
    let long = json!({ "model": "m", "input": "c".repeat(30) }).to_string();
    let held = tokio::spawn(async move { whole(machine.sends(PATH, &long).await).await });
    stage.waits_for(&id, "budget").await;
    stage.stands().await;
    stage.more(&id).await;
    let (status, answer) = held.await.expect("answered");
    assert_eq!((status, answer.as_deref()), (200, Ok("one two")), "the same request");
    stage.machine.finish(TaskOutcome::Exited { exit_code: 0 }, "Done.", "").await;
    stage.closed(&id).await;
    assert_eq!(stage.machines.calls("go_on").len(), 1);

    let (parsed, records) = stage.records(&id).await;
    for kept in 1..=records.len() {
        let again = Stage::left_behind(parsed, &records[..kept], |stage| stage.play_awake()).await;
        let works = async {
            let long = json!({ "model": "m", "input": "c".repeat(30) }).to_string();
            let _answered = whole(again.machine.sends(PATH, &long).await).await;
            let done = TaskOutcome::Exited { exit_code: 0 };
            again.machine.finish(done, "Done.", "").await;
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
    let bound = "  execution: { budget: { tokens: 40 } }\n";
    let (stage, id) = Stage::with_program(bound).await;
    stage.machines.be_restless();
    stage.play_awake();
    assert_eq!(stage.asks("a").await.0, 200);
    let machine = stage.machine.clone();
    let long = json!({ "model": "m", "input": "c".repeat(30) }).to_string();
    let held = tokio::spawn(async move { whole(machine.sends(PATH, &long).await).await });
    stage.waits_for(&id, "budget").await;
    let told = async || {
        let events = stage.events(&id).await;
        let of_it = |event: &&Value| event["event_type"] == "machine_not_paused";
        events.iter().find(of_it).map(|event| event["payload"]["error"]["message"].clone())
    };
    eventually("it is told", async || told().await == Some(json!("it has no cgroup"))).await;
    assert_eq!(stage.asks("a").await.0, 200, "what is recorded is answered");
    stage.more(&id).await;
    assert_eq!(held.await.expect("answered").0, 200);
    stage.machine.finish(TaskOutcome::Exited { exit_code: 0 }, "Done.", "").await;
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
}
