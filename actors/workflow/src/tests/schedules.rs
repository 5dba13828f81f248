//! Schedules of DAGs in watched folders: times that passed, daemons that die at each record, and files that change.

use std::{fs, os::unix::fs::PermissionsExt, sync::Arc};

use chrono::{DateTime, DurationRound as _, NaiveTime, TimeDelta, Utc};
use hivekeep_kernel::{DagId, RunId, User};
use hivekeep_plan::progress::RunOutcome;
use hivekeep_runtime::{
    log::{self, Decision, Log, LogError, Sourced as _},
    runs::RunState as _,
    schedule::{DueTime, ScheduleRecord, ScheduleState, Scheduled as _, Schedules, TimeOutcome},
};
use hivekeep_testkit::eventually;
use serde_json::{Value, json};

use super::{ALL, Stage};
use crate::{
    Options, RunTrigger,
    folders::{DagFolders, PlacedFile},
    run::RunFold,
    schedule::ScheduledDag,
};

type State = ScheduleState<ScheduledDag>;
type Record = ScheduleRecord<ScheduledDag>;

pub(super) const STEP: &str = "working_dir: .\nsteps: [{ run: echo ran >> done }]\n";

/// A time of at most two minutes ago, with the expression that has it once a day.
pub(super) fn recent() -> (DateTime<Utc>, String) {
    let minute = Utc::now().duration_trunc(TimeDelta::minutes(1)).expect("a minute");
    let time = minute - TimeDelta::minutes(1);
    (time, time.format("%-M %-H * * *").to_string())
}

impl Stage {
    pub(super) async fn watching() -> Self {
        Self::with(Options { folders: vec!["here".to_owned()], ..Options::default() }).await
    }

    pub(super) fn schedules(&self) -> Arc<Schedules<ScheduledDag>> {
        self.rig.daemon.ports.find().expect("they are mounted")
    }

    pub(super) fn folders(&self) -> Arc<DagFolders> {
        self.rig.daemon.ports.find().expect("they are mounted")
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        let folder = self.guest.folder().join("dags");
        fs::create_dir_all(&folder).expect("made");
        fs::write(folder.join(name), text).expect("written");
    }

    pub(super) async fn look(&self) {
        self.folders().look(&self.schedules()).await;
    }

    /// The only schedule.
    fn only(&self) -> (DagId, State) {
        let mut all = self.schedules().all();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// A daemon that dies, and starts again with these records of the only schedule.
    async fn crashed_with(mut self, records: impl FnOnce(ScheduledDag) -> Vec<Record>) -> Self {
        let (id, state) = self.only();
        let stream = log::stream::<State>(id).expect("a name");
        let journal = &self.rig.daemon.journal;
        journal.forget(&stream).await.expect("forgotten");
        let log = Log::<State>::of(journal.clone(), stream, None);
        for record in records((*state.agent).clone()) {
            let written = log.decide::<LogError>(|_| Ok(Decision::record(record)));
            written.expect("decided").await.expect("written");
        }
        self.rig = self.rig.crashed().await;
        self
    }

    /// A daemon that was away for a day and a time of the only schedule.
    pub(super) async fn away(self) -> Self {
        let at = Utc::now() - TimeDelta::hours(30);
        self.crashed_with(|dag| vec![ScheduleRecord::Set { agent: Box::new(dag), at }]).await
    }

    /// Event of the only schedule's last time, once there is one.
    pub(super) async fn told(&self, event_type: &str) -> Value {
        let events = || self.schedules().events(ALL, &self.only().0.to_string());
        let last = || events().pop().map(|it| it.event);
        eventually(event_type, async || last().is_some_and(|it| it.event_type == event_type)).await;
        last().expect("it is there").payload
    }

    pub(super) fn all_runs(&self) -> Vec<RunFold> {
        let (rows, _) = self.runs().0.list(ALL, None, usize::MAX);
        rows.into_iter().map(|(_, view)| view.state).collect()
    }
}

#[tokio::test]
async fn a_daemon_that_dies_at_any_record_begins_one_run_for_a_time() {
    let (time, cron) = recent();
    let run = RunId::new();
    for kept in 1..=3 {
        let mut stage = Stage::watching().await;
        stage.write("nightly.yaml", &format!("schedule: '{cron}'\n{STEP}"));
        stage.look().await;
        let records = |dag| {
            let due = DueTime { time, missed_since: None, run };
            let outcome = TimeOutcome::Begun { waiting: Vec::new(), cancelled: Vec::new() };
            let agent = Box::new(dag);
            let mut all = vec![
                ScheduleRecord::Set { agent, at: time - TimeDelta::hours(1) },
                ScheduleRecord::Due { due: due.clone(), at: time },
                ScheduleRecord::Done { due, outcome, at: time },
            ];
            all.truncate(kept);
            all
        };
        stage = stage.crashed_with(records).await;
        stage.told("schedule_begun").await;
        // The same once more, with the run there: its beginning was not recorded.
        if kept == 2 {
            stage.over(run).await;
            stage = stage.crashed_with(records).await;
            stage.told("schedule_begun").await;
        }
        let runs = stage.all_runs();
        assert_eq!(runs.len(), usize::from(kept < 3), "at {kept}");
        for state in runs {
            assert!(kept == 1 || state.begun.id == run, "at {kept}");
            assert_eq!(state.begun.trigger, RunTrigger::Schedule { time });
            assert_eq!((state.begun.user, &*state.begun.name), (User::Uid(0), "nightly"));
            assert_eq!(stage.over(state.begun.id).await.outcome(), Some(RunOutcome::Succeeded));
            assert_eq!(stage.file("done").as_deref(), Some("ran\n"), "at {kept}");
        }
        let next = stage.only().1.next.expect("tomorrow");
        assert_eq!(next, time + TimeDelta::days(1), "at {kept}");
    }
}

#[tokio::test]
async fn a_run_in_the_way_is_skipped_waited_for_or_stopped_as_the_file_says() {
    let (time, cron) = recent();
    let held = "working_dir: .\nsteps: [{ run: 'touch begun; while test ! -e go; do sleep 0.02; done' }]\n";
    let text = |keys: &str| format!("name: held\n{keys}\n{held}");
    for (keys, outcome) in [
        (format!("schedule: '{cron}'"), "schedule_skipped"),
        (format!("schedule: '{cron}'\noverlap_policy: all"), "schedule_begun"),
        (format!("schedule: '{cron}'\noverlap_policy: latest"), "schedule_begun"),
        (format!("schedule: {{ stop: '{cron}' }}"), "schedule_stopped"),
        (format!("schedule: {{ restart: '{cron}' }}"), "schedule_begun"),
    ] {
        let mut stage = Stage::watching().await;
        stage.write("held.yaml", &text(&keys));
        stage.look().await;
        let first = stage.begin(&text(""), Value::Null).await.expect("begun");
        eventually("it works", async || stage.file("begun").is_some()).await;
        stage = stage.away().await;
        let waits = keys.contains("overlap");
        if waits {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            assert_eq!(stage.all_runs().len(), 1, "{keys}: it waits");
            fs::write(stage.guest.folder().join("go"), "").expect("written");
        }
        let told = stage.told(outcome).await;
        assert_eq!(told["scheduled_for"], json!(time), "{keys}");
        fs::write(stage.guest.folder().join("go"), "").expect("written");
        let ended = stage.over(first).await.outcome();
        let cancels = keys.contains("stop") || keys.contains("restart");
        let (by, end) = match cancels {
            true => (json!([first]), RunOutcome::Aborted),
            false => (Value::Null, RunOutcome::Succeeded),
        };
        assert_eq!((&told["cancelled"], ended), (&by, Some(end)), "{keys}");
        let begun = outcome == "schedule_begun";
        assert_eq!(stage.all_runs().len(), 1 + usize::from(begun), "{keys}");
        if !begun && !cancels {
            assert_eq!(told["still_working"], json!(first));
        }
    }
}

#[tokio::test]
async fn a_run_since_the_last_time_that_succeeded_is_enough_where_that_is_asked_for() {
    let (_, cron) = recent();
    for (line, event) in [
        ("true", "schedule_skipped"),
        // Failed, so that it is begun.
        ("false", "schedule_begun"),
    ] {
        let mut stage = Stage::watching().await;
        let text = format!("name: n\nsteps: [{{ run: '{line}' }}]\n");
        stage.write("n.yaml", &format!("schedule: '{cron}'\nskip_if_successful: true\n{text}"));
        stage.look().await;
        let run = stage.ran(&text, Value::Null).await.begun.id;
        stage = stage.away().await;
        let told = stage.told(event).await;
        if line == "true" {
            assert_eq!(told["succeeded"], json!(run));
        }
    }
}

#[tokio::test]
async fn what_cannot_begin_is_told_and_the_next_time_is_tried() {
    let (time, cron) = recent();
    let mut stage = Stage::watching().await;
    let text = format!(
        "schedule: '{cron}'\nparams: [{{ name: who, type: string, required: true }}]\n{STEP}"
    );
    stage.write("a.yaml", &text);
    stage.look().await;
    stage = stage.away().await;
    // The run is there, and says why it could not go on.
    let begun = stage.told("schedule_begun").await;
    let id = serde_json::from_value(begun["run_id"].clone()).expect("an id");
    assert_eq!(stage.over(id).await.outcome(), Some(RunOutcome::Failed));
    stage.write("a.yaml", "steps: [{ runn: x }]\n");
    stage = stage
        .crashed_with(|dag| {
            let due = DueTime { time, missed_since: None, run: RunId::new() };
            let set = ScheduleRecord::Set { agent: Box::new(dag), at: time - TimeDelta::hours(1) };
            vec![set, ScheduleRecord::Due { due, at: time }]
        })
        .await;
    eventually("it has no schedule any more", async || stage.schedules().all().is_empty()).await;
    assert_eq!(stage.all_runs().len(), 1);
}

#[tokio::test]
async fn files_are_followed_as_they_change_and_say_why_they_are_not() {
    let stage = Stage::watching().await;
    let daily = |hour: u8| format!("name: daily\nschedule: '0 {hour} * * *'\n{STEP}");
    stage.write("a.yaml", &daily(3));
    stage.write("b.yml", STEP);
    stage.write("c.yaml", "steps: [{ runn: x }]\n");
    stage.write("e.yaml", &daily(4));
    stage.write("f.yaml", &"#".repeat(256 * 1024 + 1));
    stage.write(".g.yaml", STEP);
    stage.write("h.txt", STEP);
    let dags = stage.guest.folder().join("dags");
    std::os::unix::fs::symlink("/etc/hostname", dags.join("d.yaml")).expect("linked");
    fs::set_permissions(dags.join("e.yaml"), PermissionsExt::from_mode(0o666)).expect("set");
    fs::create_dir(dags.join("i.yaml")).expect("made");
    stage.look().await;
    let files = stage.folders().files();
    let of = |file: &str| PlacedFile { place: "here".to_owned(), file: format!("dags/{file}") };
    for (file, name, problem) in [
        ("a.yaml", "daily", ""),
        ("b.yml", "b", ""),
        ("c.yaml", "c", "did you mean"),
        ("d.yaml", "d", "cannot be read"),
        ("e.yaml", "e", "others may write it"),
        ("f.yaml", "f", "larger than 262144 bytes"),
        ("i.yaml", "i", "not a regular file"),
    ] {
        let dag = &files[&of(file)];
        let why = dag.schedule.as_ref().err().cloned().unwrap_or_default();
        assert!(dag.name == name && why.contains(problem), "{file}: {dag:?}");
        assert_eq!(why.is_empty(), problem.is_empty(), "{file}: {why}");
    }
    assert_eq!(files.len(), 7);
    let hour = |stage: &Stage| stage.only().1.next.map(|next| next.format("%H").to_string());
    let (id, _) = stage.only();
    assert_eq!(hour(&stage).as_deref(), Some("03"));

    stage.write("a.yaml", &daily(5));
    stage.look().await;
    assert_eq!((hour(&stage).as_deref(), stage.only().0), (Some("05"), id));
    stage.write("a.yaml", "schedule: x\n");
    stage.look().await;
    eventually("it has ended", async || stage.schedules().all().is_empty()).await;
    stage.write("a.yaml", &daily(6));
    stage.look().await;
    assert_eq!(hour(&stage).as_deref(), Some("06"));
    fs::remove_file(dags.join("a.yaml")).expect("removed");
    stage.look().await;
    eventually("it has ended", async || stage.schedules().all().is_empty()).await;

    for nth in 0..1_000 {
        stage.write(&format!("m{nth:04}.yaml"), STEP);
    }
    stage.look().await;
    let files = stage.folders().files();
    let note = &files[&PlacedFile { place: "here".to_owned(), file: "dags".to_owned() }];
    assert!(note.schedule.as_ref().is_err_and(|why| why.contains("more than 1000 files")));
    assert_eq!(files.len(), 1_001);
    // A folder that is a link is not looked into.
    fs::rename(&dags, stage.guest.folder().join("moved")).expect("moved");
    std::os::unix::fs::symlink("moved", &dags).expect("linked");
    stage.look().await;
    let files = stage.folders().files();
    let note = &files[&PlacedFile { place: "here".to_owned(), file: "dags".to_owned() }];
    assert!(note.schedule.as_ref().is_err_and(|why| why.contains("cannot be read")), "{note:?}");
}

/// Day of a schedule that begins each hour, by a clock that is simulated: `TIME@BEGINNING` of each run.
fn day(keys: &str, run_minutes: i64, down: Option<(&str, &str)>) -> String {
    let at = |text: &str| {
        let time: NaiveTime = format!("{text}:00").parse().expect("a time");
        "2026-06-01".parse::<chrono::NaiveDate>().expect("a day").and_time(time).and_utc()
    };
    let text = format!("schedule: '0 * * * *'\n{keys}\n{STEP}");
    let dag = hivekeep_manifest::read_dag(&text, None).expect(&text).documents.remove(0);
    let file = PlacedFile { place: "here".to_owned(), file: "dags/a.yaml".to_owned() };
    let dag = ScheduledDag::of(dag, file, "a".to_owned(), User::Uid(0)).expect("a schedule");
    let (mut now, end) = (at("00:30"), at("18:30"));
    let set = ScheduleRecord::Set { agent: Box::new(dag.clone()), at: now };
    let (mut state, mut free, mut all) = (State::begin(set).expect("it begins"), now, Vec::new());
    let down = down.map(|(from, upto)| (at(from), at(upto)));
    while let Some(wakes) = state.wakes_at() {
        now = now.max(wakes);
        now = down.filter(|(from, upto)| (*from..*upto).contains(&now)).map_or(now, |it| it.1);
        if now > end {
            break;
        }
        let woken = state.woken(now).expect("a time has come");
        state.apply(woken.clone()).expect("it follows");
        let ScheduleRecord::Due { due, .. } = woken else { continue };
        // As a host does that has one run at a time.
        let skips = !keys.contains("overlap") && now < free;
        now = if skips { now } else { now.max(free) };
        let last = dag.schedule.times().last(now).expect("a time");
        let is_passed = keys.contains("latest") && last > due.time;
        if !(skips || is_passed) {
            free = now + TimeDelta::minutes(run_minutes);
            all.push(format!("{}@{}", due.time.format("%H"), now.format("%H:%M")));
        }
        let outcome = TimeOutcome::Begun { waiting: Vec::new(), cancelled: Vec::new() };
        state.apply(ScheduleRecord::Done { due, outcome, at: now }).expect("it follows");
    }
    all.join(" ")
}

#[test]
fn times_that_passed_are_made_up_for_as_the_policies_say() {
    let night = Some(("10:30", "14:30"));
    for (keys, minutes, down, wanted) in [
        // Without a window nothing is made up for, but what has only just passed.
        ("", 10, night, "10@10:00 15@15:00"),
        ("", 10, Some(("10:30", "14:03")), "10@10:00 14@14:03 15@15:00"),
        ("overlap_policy: latest", 10, night, "10@10:00 15@15:00"),
        // In order, each where the one before is over.
        (
            "catchup_window: 3h\noverlap_policy: all",
            10,
            night,
            "10@10:00 12@14:30 13@14:40 14@14:50 15@15:00",
        ),
        (
            "catchup_window: 10d\noverlap_policy: all",
            1,
            night,
            "11@14:30 12@14:31 13@14:32 14@14:33 15@15:00",
        ),
        ("catchup_window: 3h", 10, night, "10@10:00 12@14:30 15@15:00"),
        ("catchup_window: 3h\noverlap_policy: latest", 10, night, "10@10:00 14@14:30 15@15:00"),
        // Runs that are longer than their pauses.
        ("", 90, None, "01@01:00 03@03:00 05@05:00 07@07:00"),
        ("overlap_policy: all", 90, None, "01@01:00 02@02:30 03@04:00 04@05:30 05@07:00"),
        ("overlap_policy: latest", 90, None, "01@01:00 02@02:30 04@04:00 05@05:30 07@07:00"),
    ] {
        let told = day(keys, minutes, down);
        assert!(told.contains(wanted), "{keys:?} {minutes} {down:?}: {told}");
    }
}

#[test]
fn a_thousand_missed_runs_are_made_up_for_and_no_more() {
    let text = format!("schedule: '* * * * *'\ncatchup_window: 10d\n{STEP}");
    let dag = hivekeep_manifest::read_dag(&text, None).expect("valid").documents.remove(0);
    let file = PlacedFile { place: "here".to_owned(), file: "dags/a.yaml".to_owned() };
    let dag = ScheduledDag::of(dag, file, "a".to_owned(), User::Uid(0)).expect("a schedule");
    let now: DateTime<Utc> = "2026-06-01T12:00:30Z".parse().expect("a time");
    let set = ScheduleRecord::Set { agent: Box::new(dag), at: now - TimeDelta::days(30) };
    let (mut state, mut done) = (State::begin(set).expect("it begins"), Vec::new());
    while let Some(woken) = state.woken(now) {
        state.apply(woken.clone()).expect("it follows");
        if let ScheduleRecord::Due { due, .. } = woken {
            done.push(due.time);
            let outcome = TimeOutcome::Stopped { cancelled: Vec::new() };
            state.apply(ScheduleRecord::Done { due, outcome, at: now }).expect("it follows");
        }
    }
    assert_eq!((done.len(), done[0]), (1_001, now - TimeDelta::days(10) + TimeDelta::seconds(30)));
    assert_eq!(done[1_000], now - TimeDelta::seconds(30), "then on time");
}

#[test]
fn no_time_is_done_twice_where_the_clock_is_set_back() {
    let text = format!("schedule: '0 * * * *'\n{STEP}");
    let dag = hivekeep_manifest::read_dag(&text, None).expect("valid").documents.remove(0);
    let file = PlacedFile { place: "here".to_owned(), file: "dags/a.yaml".to_owned() };
    let dag = ScheduledDag::of(dag, file, "a".to_owned(), User::Uid(0)).expect("a schedule");
    let noon: DateTime<Utc> = "2026-06-01T12:00:00Z".parse().expect("a time");
    let set = |agent: ScheduledDag, at| ScheduleRecord::Set { agent: Box::new(agent), at };
    let mut state =
        State::begin(set(dag.clone(), noon - TimeDelta::minutes(5))).expect("it begins");
    let due = state.woken(noon).expect("noon");
    state.apply(due).expect("it follows");
    let mut other = dag;
    other.schedule = hivekeep_manifest::dag::DagSchedule::One("*/30 * * * *".to_owned());
    assert!(!other.times_as(&state.agent));
    state.apply(set(other, noon - TimeDelta::hours(1))).expect("it follows");
    assert_eq!(state.next, Some(noon + TimeDelta::minutes(30)));
}

#[tokio::test]
async fn a_file_has_the_defaults_of_the_one_beside_it() {
    let stage = Stage::watching().await;
    let at = (Utc::now() + TimeDelta::seconds(3)).format("%Y-%m-%dT%H:%M:%SZ");
    stage.write("base.yaml", "env: [{ FROM: base }]\nskip_if_successful: true\n");
    stage.write(
        "own.yaml",
        &format!(
            "schedule: [{{ at: '{at}' }}]\nworking_dir: .\nsteps: [{{ run: echo $FROM > done }}]\n"
        ),
    );
    stage.look().await;
    assert_eq!(stage.folders().files().len(), 1, "the defaults are no DAG");
    eventually("it ran", async || stage.file("done").is_some_and(|it| !it.is_empty())).await;
    assert_eq!(stage.file("done").as_deref(), Some("base\n"));
    let problem = || {
        let files = stage.folders().files();
        files.values().find_map(|dag| dag.schedule.as_ref().err().cloned()).unwrap_or_default()
    };
    stage.write("base.yaml", "steps: []\n");
    stage.look().await;
    assert!(problem().contains("base.yaml: belongs to a DAG"), "{}", problem());
    let base = stage.guest.folder().join("dags/base.yaml");
    fs::set_permissions(&base, fs::Permissions::from_mode(0o666)).expect("changed");
    stage.look().await;
    assert!(problem().contains("others may write it"), "{}", problem());
    fs::remove_file(base).expect("removed");
    stage.look().await;
    assert_eq!(problem(), "");
}
