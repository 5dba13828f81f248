//! Schedules over a real journal: times that passed, daemons that die at each record, and executions in the way.

use chrono::{DateTime, TimeDelta, Utc};
use hivekeep_kernel::{AgentId, ExecutionId, User, view::ToolView};
use hivekeep_manifest::agent::AgentSchedule;
use hivekeep_runtime::{
    log::{self, Decision, Log, LogError},
    schedule::{DueTime, ScheduleRecord, ScheduleState, TimeOutcome},
};
use hivekeep_testkit::eventually;
use serde_json::{Value, json};

use super::{Stage, fakes::says};
use crate::schedule::ScheduledAgent;

type State = ScheduleState<ScheduledAgent>;
type Record = ScheduleRecord<ScheduledAgent>;

const DAY: u64 = 86_400;
const DAILY: &str = "  schedule: { type: interval, seconds: 86400 }\n";

/// The schedule as it was set at a time.
fn set(agent_id: AgentId, at: DateTime<Utc>) -> Record {
    let schedule = AgentSchedule::Interval { seconds: DAY };
    let agent = Box::new(ScheduledAgent { agent_id, owner: Some(User::Uid(0)), schedule });
    ScheduleRecord::Set { agent, at }
}

impl Stage {
    async fn scheduled() -> (Self, AgentId) {
        let stage = Self::with_worker(DAILY).await;
        stage.models.answer(|_| says("Done.", &[]));
        let id = stage.good("export", json!({ "name": "worker" })).await["id"].take();
        (stage, serde_json::from_value(id).expect("an id"))
    }

    /// A daemon that dies, and starts again with these records of a schedule.
    async fn crashed_with(mut self, agent: AgentId, records: &[Record]) -> Self {
        let (journal, stream) = (&self.rig.daemon.journal, log::stream::<State>(agent));
        let stream = stream.expect("a name");
        journal.forget(&stream).await.expect("forgotten");
        let log = Log::<State>::of(journal.clone(), stream, None);
        for record in records.iter().cloned() {
            let written = log.decide::<LogError>(|_| Ok(Decision::record(record)));
            written.expect("decided").await.expect("written");
        }
        self.rig = self.rig.crashed().await;
        self
    }

    /// Events of the agent's schedule, once there are so many.
    async fn told(&self, event_type: &str, most: usize) -> Vec<Value> {
        let all = async || {
            let logs = self.good("logs", json!({ "agent_id": "worker", "limit": 200 })).await;
            let events = logs["events"].as_array().expect("events").clone();
            events.into_iter().filter(|it| it["event_type"] == event_type).collect::<Vec<_>>()
        };
        eventually(event_type, async || all().await.len() >= most).await;
        all().await.into_iter().map(|mut it| it["payload"].take()).collect()
    }

    async fn executions(&self) -> Vec<Value> {
        let listed = self.good("aegis.task.list", json!({})).await;
        listed["executions"].as_array().expect("rows").clone()
    }

    async fn next_run(&self) -> Option<DateTime<Utc>> {
        let listed = self.good("list", json!({})).await;
        let rows = listed["agents"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["name"] == "worker").expect("it is there");
        row.get("next_run_at").map(|at| serde_json::from_value(at.clone()).expect("a time"))
    }
}

#[tokio::test]
async fn times_that_passed_without_a_daemon_run_once_as_their_owner_and_are_told_as_late() {
    let (mut stage, agent) = Stage::scheduled().await;
    let left = stage.next_run().await.expect("it begins by itself") - Utc::now();
    assert!((23..=24).contains(&left.num_hours()), "{left}");
    assert!(stage.executions().await.is_empty());
    // Days ago, the last of them an hour.
    let since = Utc::now() - TimeDelta::days(10) - TimeDelta::hours(1);
    stage = stage.crashed_with(agent, &[set(agent, since)]).await;
    let begun = stage.told("schedule_begun", 1).await.remove(0);
    let id = begun["execution_id"].as_str().expect("an id").to_owned();
    assert_eq!(begun["scheduled_for"], json!(since + TimeDelta::days(10)));
    assert_eq!(begun["missed_since"], json!(since + TimeDelta::days(1)));
    assert!(begun["late_secs"].as_i64().expect("late") >= 3600, "{begun}");
    assert_eq!(stage.end(&id).await["status"], "completed");
    let events = stage.closed(&id).await;
    assert_eq!(events[0]["payload"]["scheduled_for"], begun["scheduled_for"]);
    let [(user, session)] = stage.children.owned()[..] else { panic!("one session") };
    let (_, child) = stage.children.opened().remove(0);
    assert_eq!((user, child.parent), (User::Uid(0), session), "nobody's but its own");
    assert!(stage.models.asked().iter().all(|asked| asked.session == session), "which pays");
    eventually("both sessions end", async || stage.children.ended().contains(&session)).await;
    assert_eq!(stage.next_run().await, Some(since + TimeDelta::days(11)));
    stage.rig = stage.rig.crashed().await;
    assert_eq!(stage.told("schedule_begun", 1).await.len(), 1);
    assert_eq!(stage.executions().await.len(), 1);
}

#[tokio::test]
async fn a_daemon_that_dies_at_any_record_begins_one_execution_for_a_time() {
    let since = Utc::now() - TimeDelta::days(1) - TimeDelta::minutes(1);
    let time = since + TimeDelta::days(1);
    let due = DueTime { time, missed_since: None, run: ExecutionId::new() };
    let outcome = TimeOutcome::Begun { waiting: Vec::new(), cancelled: Vec::new() };
    for kept in 1..=3 {
        let (mut stage, agent) = Stage::scheduled().await;
        let records = [
            set(agent, since),
            ScheduleRecord::Due { due: due.clone(), at: time },
            ScheduleRecord::Done { due: due.clone(), outcome: outcome.clone(), at: time },
        ];
        stage = stage.crashed_with(agent, &records[..kept]).await;
        stage.told("schedule_begun", 1).await;
        // The same once more, with the execution there: its beginning was not recorded.
        if kept == 2 {
            stage = stage.crashed_with(agent, &records[..2]).await;
            stage.told("schedule_begun", 1).await;
        }
        let executions = stage.executions().await;
        assert_eq!(executions.len(), usize::from(kept < 3), "at {kept}");
        let planned = |row: &Value| row["id"] == json!(due.run);
        assert!(kept == 1 || executions.iter().all(planned), "at {kept}");
    }
}

#[tokio::test]
async fn one_that_works_is_not_overtaken_and_one_that_waits_for_a_person_is_in_nobodys_way() {
    let (mut stage, agent) = Stage::scheduled().await;
    stage.models.answer(|_| says("", &[("hold_read", json!({}))]));
    let past = || set(agent, Utc::now() - TimeDelta::days(1) - TimeDelta::minutes(1));
    stage = stage.crashed_with(agent, &[past()]).await;
    let first = stage.told("schedule_begun", 1).await[0]["execution_id"].clone();
    stage = stage.crashed_with(agent, &[past()]).await;
    let skipped = stage.told("schedule_skipped", 1).await.remove(0);
    assert_eq!(skipped["still_working"], first);
    let mut all = vec![first];
    for nth in 1..=3 {
        eventually("they hold", async || stage.children.calls("hold.read") >= nth).await;
        for (session, _) in stage.children.opened() {
            stage.children.asks(session);
        }
        stage = stage.crashed_with(agent, &[past()]).await;
        let begun = stage.told("schedule_begun", 1).await.remove(0);
        let (waiting, gone) = match nth {
            3 => (json!(all[1..]), json!(all[..1])),
            _ => (json!(all), Value::Null),
        };
        assert_eq!((&begun["waiting_for_a_person"], &begun["cancelled"]), (&waiting, &gone));
        all.push(begun["execution_id"].clone());
        let opened = async || stage.children.opened().len() > all.len() - 1;
        eventually("its session is open", opened).await;
    }
    let oldest = all[0].as_str().expect("an id");
    assert_eq!(stage.end(oldest).await["status"], "cancelled");
}

#[tokio::test]
async fn what_cannot_begin_is_told_and_a_schedule_ends_with_its_field_and_its_agent() {
    let (mut stage, agent) = Stage::scheduled().await;
    let text = stage.good("export", json!({ "name": "worker" })).await["manifest_yaml"].take();
    let text = text.as_str().expect("a text");
    let asks = text.replace("1.0.0", "1.1.0") + "  input_schema: { required: [path] }\n";
    stage.good("update", json!({ "manifest_yaml": asks })).await;
    let since = Utc::now() - TimeDelta::days(1) - TimeDelta::minutes(1);
    stage = stage.crashed_with(agent, &[set(agent, since)]).await;
    let failed = stage.told("schedule_failed", 1).await.remove(0);
    assert_eq!(failed["error"]["code"], "input_invalid");
    assert_eq!(stage.next_run().await, Some(since + TimeDelta::days(2)), "the next one is tried");
    assert!(stage.executions().await.is_empty());
    let others = stage.as_other("logs", json!({ "agent_id": agent })).await.expect("listed");
    assert_eq!(others["total"], 0);

    let rare = asks.replace("86400", "7200").replace("1.1.0", "1.2.0");
    stage.good("update", json!({ "manifest_yaml": rare })).await;
    let left = stage.next_run().await.expect("another time") - Utc::now();
    assert!(left <= TimeDelta::hours(2), "{left}");
    let never = text.replace(DAILY, "").replace("1.0.0", "1.3.0");
    stage.good("update", json!({ "manifest_yaml": never })).await;
    assert_eq!(stage.next_run().await, None);
    stage.as_operator("delete", json!({ "agent_id": agent })).await.expect("deleted");
    let stream = log::stream::<State>(agent).expect("a name");
    eventually("nothing is kept", async || {
        let journal = &stage.rig.daemon.journal;
        log::read_records::<State>(journal, &stream).await.is_ok_and(|it| it.is_empty())
    })
    .await;
}

/// What begins by itself has rights that the session of an agent may not have.
#[tokio::test]
async fn no_agent_deploys_a_schedule() {
    let (stage, _) = Stage::scheduled().await;
    stage.models.answer(|_| says("", &[("hold", json!({}))]));
    stage.begun("hold").await;
    eventually("it holds", async || stage.children.calls("hold") == 1).await;
    let (session, _) = stage.children.opened().remove(0);
    let text = super::manifest("other", "1.0.0", "Do it.");
    for (schedule, refused) in
        [("{ type: interval, seconds: 60 }", true), ("{ type: manual }", false)]
    {
        let text = json!({ "manifest_yaml": format!("{text}\n  schedule: {schedule}\n") });
        let deployed = stage.call_as(session, ToolView::default(), "create", text).await;
        let code = deployed.err().map(|error| error.code.into_owned());
        assert_eq!(code, refused.then(|| "schedule_denied".to_owned()));
    }
}

#[test]
fn a_schedule_is_folded_and_keeps_its_last_events() {
    use hivekeep_runtime::log::Sourced as _;
    let agent = AgentId::new();
    let mut state = State::begin(set(agent, Utc::now())).expect("it begins");
    for _ in 0..1_000 {
        state.apply(set(agent, Utc::now())).expect("it follows");
    }
    let folded = state.fold().expect("it is folded");
    assert!(folded.len() < 64 * 1024, "{}", folded.len());
    assert_eq!(State::unfold(&folded), Ok(state));
}

/// Records and states as they were written before there were schedules of anything else.
#[test]
fn what_was_written_of_schedules_is_read() {
    use hivekeep_runtime::log::Sourced as _;
    let (agent, run) = (AgentId::new(), ExecutionId::new());
    let (at, later) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
    let due = json!({ "time": later, "missed_since": null, "execution": run });
    let scheduled = json!({
        "agent_id": agent, "owner": "uid:0", "schedule": { "type": "interval", "seconds": DAY },
    });
    let set = json!({ "record": "set", "agent": scheduled, "at": at });
    let records = [
        set.clone(),
        json!({ "record": "due", "due": due, "at": later }),
        json!({ "record": "done", "due": due, "at": later,
            "outcome": { "outcome": "begun", "waiting": [], "cancelled": [run] } }),
        json!({ "record": "done", "due": due, "at": later,
            "outcome": { "outcome": "skipped", "working": run } }),
        json!({ "record": "ended", "at": later }),
    ];
    for record in records {
        let read: Record = serde_json::from_value(record.clone()).expect("it is read");
        assert_eq!(serde_json::to_value(read).expect("JSON"), record);
    }
    let state = json!({
        "agent": scheduled, "began_at": at, "since": at, "next": later, "due": due,
        "told": [set], "ended_at": null,
    });
    let state = State::unfold(state.to_string().as_bytes()).expect("it is read");
    assert_eq!(
        state.next.map(|next| next.to_rfc3339()),
        Some("2026-01-02T00:00:00+00:00".to_owned())
    );
}
