use hivekeep_ports::TaskOutcome;
use hivekeep_runtime::log::LogRecord;
use proptest::prelude::*;

use super::*;
use crate::{
    inbox::pick,
    tasks::{Assignment, result::without_run},
    team::member::guest::InGuest,
};

const NOW: DateTime<Utc> = DateTime::UNIX_EPOCH;
const BOUNDS: LedgerBounds = LedgerBounds { tasks: 6, bytes: 1024 * 1024 };

fn task(id: &str, command: &str) -> Arc<Task> {
    let work = Assignment {
        task_id: id.to_owned(),
        command: command.to_owned(),
        workdir: None,
        env: BTreeMap::new(),
        timeout_secs: 300,
    };
    let (message, at) = (MessageId::new(), DateTime::UNIX_EPOCH);
    Arc::new(Task { message, from: "boss".to_owned(), at, bytes: 100, work })
}

fn assign(ledger: &mut TaskLedger, id: &str) -> Arc<Task> {
    let task = task(id, "true");
    assert_eq!(ledger.admit(BOUNDS, &task), Ok(Stand::New));
    ledger.apply(Record::Assigned(task.clone())).expect("it follows");
    task
}

fn exited(id: &str) -> TaskResult {
    without_run(id, TaskOutcome::Exited { exit_code: 0 })
}

fn end(ledger: &mut TaskLedger, result: TaskResult) -> Arc<StoredResult> {
    let stored = ledger.conclude(&result.task_id.clone(), result, NOW).expect("it waits for that");
    ledger.apply(Record::Ended(stored.clone())).expect("it follows");
    stored
}

fn receive(ledger: &mut TaskLedger) -> Vec<String> {
    let results = pick(ledger.results().items(), 9, 999_999);
    let taken = results.iter().map(|result| result.message).collect();
    ledger.apply(Record::Taken(taken)).expect("it follows");
    results.iter().map(|result| result.task_id.clone()).collect()
}

/// The ledger that a journal's records add up to.
fn replay<'r>(records: impl IntoIterator<Item = &'r Vec<u8>>) -> TaskLedger {
    let mut ledger = TaskLedger::default();
    for record in records {
        ledger.apply(Record::decode(record).expect("readable")).expect("it follows");
    }
    ledger
}

fn known(ledger: &TaskLedger) -> Vec<Record> {
    inbox::snapshot_records(&ledger.fold().expect("it is folded")).expect("readable")
}

#[test]
fn an_id_is_for_one_task_for_as_long_as_it_is_known() {
    let mut ledger = TaskLedger::default();
    let first = assign(&mut ledger, "t");
    let admit = |ledger: &TaskLedger, command| ledger.admit(BOUNDS, &task("t", command));
    assert_eq!(admit(&ledger, "true"), Ok(Stand::Pending));
    assert_eq!(admit(&ledger, "false"), Err(TaskRefused::Differs));
    let stored = end(&mut ledger, exited("t"));
    assert_eq!(stored.message, first.message, "that of the first");
    assert_eq!(admit(&ledger, "true"), Ok(Stand::Done(stored.clone(), false)));
    assert_eq!(admit(&ledger, "false"), Err(TaskRefused::Differs));
    assert_eq!(receive(&mut ledger), ["t"]);
    assert_eq!(admit(&ledger, "true"), Ok(Stand::Done(stored, true)));
    assert_eq!(admit(&ledger, "false"), Err(TaskRefused::Differs));
    assert!(ledger.conclude("t", exited("t"), NOW).is_none() && receive(&mut ledger).is_empty());
}

#[test]
fn what_is_not_durable_is_not_put_and_what_has_a_result_is_not_either() {
    let (mut decided, mut durable) = (TaskLedger::default(), TaskLedger::default());
    let mut guest = InGuest::default();
    let task = assign(&mut decided, "t");
    assert!(guest.to_put(&decided, &durable, 9).is_empty());
    assert!(guest.begin_reading(&durable, true).is_empty());
    durable.apply(Record::Assigned(task)).expect("it follows");
    assert_eq!(guest.to_put(&decided, &durable, 9).len(), 1);
    assert_eq!(guest.begin_reading(&durable, false).len(), 1);
    let stored = end(&mut decided, exited("t"));
    assert!(decided.conclude("t", exited("t"), NOW).is_none(), "it is being written");
    assert!(guest.to_put(&decided, &durable, 9).is_empty() && !guest.put(&decided, "t"));
    assert!(!durable.is_done("t") && durable.pending() == 1);
    durable.apply(Record::Ended(stored)).expect("it follows");
    assert!(durable.is_done("t") && durable.pending() == 0);
    assert!(guest.begin_reading(&durable, false).is_empty());
    assert_eq!(guest.begin_reading(&durable, true).len(), 1);
}

#[test]
fn what_a_guest_has_lost_is_put_again() {
    let (mut ledger, mut guest) = (TaskLedger::default(), InGuest::default());
    for id in ["a", "b", "c"] {
        assign(&mut ledger, id);
    }
    let put = |guest: &mut InGuest, ledger: &TaskLedger, id| guest.put(ledger, id);
    assert!(put(&mut guest, &ledger, "a") && put(&mut guest, &ledger, "b"));
    assert!(!put(&mut guest, &ledger, "b"));
    guest.begin_reading(&ledger, false);
    assert!(put(&mut guest, &ledger, "c"), "during the reading");
    assert_eq!(guest.end_reading(&ledger, 2), 0, "of `c` it says nothing");
    assert!(guest.to_put(&ledger, &ledger, 9).is_empty());
    guest.begin_reading(&ledger, false);
    end(&mut ledger, exited("a"));
    assert_eq!(guest.end_reading(&ledger, 1), 2, "one of `b` and `c` is lost");
    assert_eq!(guest.to_put(&ledger, &ledger, 9).len(), 2);
}

#[test]
fn a_result_that_is_written_twice_is_one() {
    let mut ledger = TaskLedger::default();
    let task = assign(&mut ledger, "t");
    let mut result = exited("t");
    result.capture.stdout.text = "x".repeat(BOUNDS.bytes - LARGEST_RESULT_BYTES);
    let stored = ledger.conclude("t", result, NOW).expect("it waits");
    let encoded = |record: Record| record.encode().expect("plain data");
    let assigned = encoded(Record::Assigned(task));
    let ended = encoded(Record::Ended(stored.clone()));
    let taken = encoded(Record::Taken([stored.message].into()));
    let mut twice = replay([&assigned, &ended, &ended]);
    let once = replay([&assigned, &ended]);
    assert_eq!((twice.results().len(), twice.room(BOUNDS)), (1, once.room(BOUNDS)));
    assert_eq!(receive(&mut twice), ["t"]);
    for records in [[&assigned, &ended, &taken, &ended], [&assigned, &ended, &ended, &taken]] {
        let received = replay(records);
        assert_eq!((received.results().len(), received.room(BOUNDS)), (0, 4));
    }
}

/// As the version before this one wrote them.
#[test]
fn streams_of_before_are_read() {
    let message = "msg_0191d4f0a7b07c3e8f2a5d6b7c8d9e0f";
    let assigned = format!(
        r#"{{"assigned":{{"message":"{message}","from":"boss","at":"2026-01-02T03:04:05.678Z","bytes":40,"work":{{"task_id":"t","command":"true","workdir":null,"env":{{"A":"1"}},"timeout_secs":300}}}}}}"#
    );
    let text = r#"{"text":"","truncated":false,"total_bytes":0,"path":null}"#;
    let result = |outcome: &str| {
        format!(
            r#"{{"message":"{message}","task_id":"t","print":"p",{outcome},"workdir":null,"stdout":{text},"stderr":{text},"elapsed_ms":7,"bytes":300}}"#
        )
    };
    let taken = format!(r#"{{"taken":["{message}"]}}"#);
    let bytes =
        |texts: &[&String]| texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>();
    assert_eq!(replay(&bytes(&[&assigned])).pending(), 1);
    for outcome in [
        r#""outcome":"exited","exit_code":3"#,
        r#""outcome":"signalled","signal":9"#,
        r#""outcome":"timed_out""#,
        r#""outcome":"interrupted""#,
        r#""outcome":"cancelled""#,
        r#""outcome":"invalid","code":"c","reason":"r""#,
        r#""outcome":"lost""#,
    ] {
        let ended = format!(r#"{{"ended":{}}}"#, result(outcome));
        let ledger = replay(&bytes(&[&assigned, &ended]));
        assert_eq!((ledger.pending(), ledger.results().len()), (0, 1), "{outcome}");
        let written: Vec<_> = known(&ledger).iter().map(|it| it.encode().expect("JSON")).collect();
        assert_eq!(written, bytes(&[&ended]), "and written as they were");
        let received = replay(&bytes(&[&assigned, &ended, &taken]));
        assert!(received.results().is_empty() && received.is_done("t"));
        let known = format!(r#"{{"known":{}}}"#, result(outcome));
        let snapshot = [&(known.len() as u32).to_le_bytes(), known.as_bytes()].concat();
        let folded = TaskLedger::unfold(&snapshot).expect("readable");
        assert_eq!((folded.done().count(), received.fold()), (1, Some(snapshot)));
    }
}

#[test]
fn there_is_room_for_so_many_tasks_and_for_so_much_of_results() {
    let mut ledger = TaskLedger::default();
    for n in 0..BOUNDS.tasks {
        assign(&mut ledger, &n.to_string());
    }
    let full = ledger.admit(BOUNDS, &task("x", "true"));
    assert!(matches!(full, Err(TaskRefused::Full { tasks: 6, .. })));
    end(&mut ledger, exited("0"));
    let full = ledger.admit(BOUNDS, &task("x", "true"));
    assert!(full.is_err(), "a result counts until it is received");
    receive(&mut ledger);
    assign(&mut ledger, "x");
    let mut large = exited("1");
    large.capture.stdout.text = "\u{1}".repeat(BOUNDS.bytes / 6);
    assert_eq!(ledger.room(BOUNDS), 4);
    end(&mut ledger, large);
    assert_eq!(ledger.room(BOUNDS), 0);
    receive(&mut ledger);
    assert_eq!(ledger.room(BOUNDS), 4);
}

#[test]
fn so_many_are_remembered_and_the_oldest_without_output() {
    let mut ledger = TaskLedger::default();
    for n in 0..1_300 {
        let id = n.to_string();
        assign(&mut ledger, &id);
        let mut result = exited(&id);
        result.capture.stdout.text = "x".repeat(4_000);
        end(&mut ledger, result);
        receive(&mut ledger);
    }
    assert_eq!(ledger.admit(BOUNDS, &task("299", "true")), Ok(Stand::New), "forgotten");
    let text = |ledger: &TaskLedger, id: &str| match ledger.admit(BOUNDS, &task(id, "true")) {
        Ok(Stand::Done(result, true)) => result.capture.stdout.text.len(),
        other => panic!("{other:?}"),
    };
    assert!(text(&ledger, "300") < 100);
    assert_eq!(text(&ledger, "1299"), 4_000);
    let bytes = ledger.fold().expect("it is folded");
    assert!(bytes.len() < 3 * 1024 * 1024, "{}", bytes.len());
}

/// A log over a journal, a guest that runs a task once, and a receiver, as far as they matter.
#[derive(Default)]
struct World {
    decided: TaskLedger,
    durable: TaskLedger,
    journal: Vec<Vec<u8>>,
    unwritten: Vec<Record>,
    in_guest: InGuest,
    /// By id: done, and acknowledged.
    guest: BTreeMap<String, (bool, bool)>,
    acknowledged: BTreeSet<String>,
    received: Vec<String>,
}

#[derive(Debug, Clone)]
enum Step {
    Assign(u8),
    Write,
    Put,
    Run,
    Read,
    Acknowledge,
    Receive,
    /// Memory is lost, and so is the write under way.
    Crash,
    /// The guest is that of a moment before: it has lost its last task.
    Restore,
    Fold,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..8u8).prop_map(Step::Assign),
        6 => Just(Step::Write),
        4 => Just(Step::Put),
        3 => Just(Step::Run),
        4 => Just(Step::Read),
        2 => Just(Step::Acknowledge),
        3 => Just(Step::Receive),
        1 => Just(Step::Crash),
        1 => Just(Step::Restore),
        1 => Just(Step::Fold),
    ]
}

impl World {
    fn decide(&mut self, record: Record) {
        self.decided.apply(record.clone()).expect("it follows");
        self.unwritten.push(record);
    }

    fn write(&mut self) {
        for record in self.unwritten.drain(..) {
            self.journal.push(record.encode().expect("plain data"));
            if let Record::Assigned(task) = &record {
                self.acknowledged.insert(task.work.task_id.clone());
            }
            self.durable.apply(record).expect("it follows");
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Assign(n) => {
                let task = task(&format!("t{n}"), "true");
                match self.decided.admit(BOUNDS, &task) {
                    Ok(Stand::New) => self.decide(Record::Assigned(task)),
                    Ok(_) => {}
                    Err(refused) => assert!(matches!(refused, TaskRefused::Full { .. })),
                }
            }
            Step::Write => self.write(),
            Step::Put => {
                for task in self.in_guest.to_put(&self.decided, &self.durable, 2) {
                    let id = &task.work.task_id;
                    assert!(self.acknowledged.contains(id), "put before it was durable");
                    self.guest.entry(id.clone()).or_default();
                    self.in_guest.put(&self.decided, id);
                }
            }
            Step::Run => {
                if let Some(task) = self.guest.values_mut().find(|(done, _)| !done) {
                    task.0 = true;
                }
            }
            Step::Read => self.read(),
            Step::Acknowledge => {
                // A result is on the disk before its guest may drop it.
                for result in self.durable.done() {
                    let task_id = result.task_id.clone();
                    self.guest.entry(task_id).and_modify(|task| task.1 = task.0);
                }
            }
            Step::Receive => {
                let (decided, durable) = (self.decided.results(), self.durable.results());
                let picked = pick(decided.deliverable(durable), 2, 999_999);
                for result in &picked {
                    let id = &result.task_id;
                    assert!(!self.received.contains(id), "handed out after it was received");
                }
                self.decide(Record::Taken(picked.iter().map(|it| it.message).collect()));
                // From here on a crash may hand it out again; the model crashes only where that
                // was written.
                self.write();
                self.received.extend(picked.iter().map(|it| it.task_id.clone()));
            }
            Step::Crash => {
                self.unwritten.clear();
                self.durable = replay(&self.journal);
                self.decided = self.durable.clone();
                self.in_guest = InGuest::default();
            }
            Step::Restore => {
                let open = self.guest.iter().rev().find(|(_, (_, acked))| !acked);
                if let Some(id) = open.map(|(id, _)| id.clone())
                    && !self.durable.is_done(&id)
                {
                    self.guest.remove(&id);
                }
            }
            Step::Fold => {
                let bytes = self.durable.fold().expect("it is folded");
                let folded = TaskLedger::unfold(&bytes).expect("readable");
                assert_eq!(folded.fold(), Some(bytes));
            }
        }
    }

    fn read(&mut self) {
        let awaited = self.in_guest.begin_reading(&self.durable, false);
        let told = self.guest.iter().filter(|(id, (done, acknowledged))| {
            *done && !acknowledged && awaited.contains_key(*id)
        });
        for id in told.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            if let Some(stored) = self.decided.conclude(&id, exited(&id), NOW) {
                self.in_guest.ended(&id);
                self.decide(Record::Ended(stored));
            }
        }
        let in_guest = self.guest.values().filter(|(done, _)| !done).count();
        self.in_guest.end_reading(&self.decided, in_guest);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Whatever happens in whatever order, each task that was acknowledged is received in the
    /// end, and none after it was.
    #[test]
    fn nothing_is_lost_and_nothing_comes_back(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::default();
        for step in &steps {
            world.take(step);
            let (pending, results) = (world.decided.pending(), world.decided.results().len());
            prop_assert!(pending + results <= BOUNDS.tasks);
        }
        let rest = [
            Step::Write, Step::Put, Step::Put, Step::Put, Step::Run, Step::Read, Step::Write,
            Step::Acknowledge, Step::Receive,
        ];
        for _ in 0..20 {
            rest.iter().for_each(|step| world.take(step));
        }
        let received: BTreeSet<_> = world.received.iter().cloned().collect();
        prop_assert_eq!(received.len(), world.received.len(), "received twice");
        prop_assert_eq!(received, world.acknowledged);
        prop_assert_eq!((world.decided.pending(), world.decided.results().len()), (0, 0));
    }
}
