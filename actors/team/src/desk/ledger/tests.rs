use std::borrow::Cow;

use proptest::prelude::*;

use super::*;
use crate::desk::records::{self, Record};

const BOUNDS: Bounds = Bounds { tasks: 6, bytes: 1024 * 1024 };

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
    assert_eq!(ledger.admit(&task), Ok(Stand::New));
    ledger.arrive(id);
    task
}

fn exited() -> Ended {
    Ended::without_run(Outcome::Exited { exit_code: 0 })
}

fn finish(ledger: &mut TaskLedger, id: &str) -> Arc<Kept> {
    let kept = ledger.conclude(id, exited()).expect("it waits for that");
    ledger.keep(kept.clone());
    kept
}

fn receive(ledger: &mut TaskLedger) -> Vec<String> {
    let Some((loan, lent)) = ledger.results().lend(9, 999_999) else { return Vec::new() };
    ledger.settle(loan, true);
    lent.into_iter().map(|lent| lent.message.task_id.clone()).collect()
}

#[test]
fn an_id_is_for_one_task_for_as_long_as_it_is_known() {
    let mut ledger = TaskLedger::new(BOUNDS, 0);
    let first = assign(&mut ledger, "t");
    assert_eq!(ledger.admit(&task("t", "true")), Ok(Stand::Pending));
    assert_eq!(ledger.admit(&task("t", "false")), Err(Refused::Differs));
    let kept = finish(&mut ledger, "t");
    assert_eq!(kept.message, first.message, "that of the first");
    assert_eq!(ledger.admit(&task("t", "true")), Ok(Stand::Done(kept.clone(), false)));
    assert_eq!(receive(&mut ledger), ["t"]);
    assert_eq!(ledger.admit(&task("t", "true")), Ok(Stand::Done(kept, true)));
    assert_eq!(ledger.admit(&task("t", "false")), Err(Refused::Differs));
    assert!(ledger.conclude("t", exited()).is_none() && receive(&mut ledger).is_empty());
}

#[test]
fn what_is_not_durable_is_not_put_and_has_no_result() {
    let mut ledger = TaskLedger::new(BOUNDS, 0);
    ledger.admit(&task("t", "true")).expect("room");
    assert!(ledger.to_put(9).is_empty() && ledger.begin_reading(true).is_empty());
    assert!(ledger.conclude("t", exited()).is_none());
    ledger.arrive("t");
    assert_eq!((ledger.to_put(9).len(), ledger.begin_reading(false).len()), (1, 1));
    let kept = ledger.conclude("t", exited()).expect("once");
    assert!(ledger.conclude("t", exited()).is_none(), "it is being written");
    assert!(ledger.to_put(9).is_empty() && !ledger.is_done("t"));
    ledger.keep(kept);
    assert!(ledger.is_done("t"));
}

#[test]
fn what_a_guest_has_lost_is_put_again() {
    let mut ledger = TaskLedger::new(BOUNDS, 0);
    for id in ["a", "b", "c"] {
        assign(&mut ledger, id);
    }
    assert!(ledger.put("a") && ledger.put("b") && !ledger.put("b"));
    ledger.begin_reading(false);
    assert!(ledger.put("c"), "during the reading");
    assert_eq!(ledger.end_reading(2), 0, "of `c` it says nothing");
    assert!(ledger.to_put(9).is_empty());
    ledger.begin_reading(false);
    finish(&mut ledger, "a");
    assert_eq!(ledger.end_reading(1), 2, "one of `b` and `c` is lost");
    assert_eq!(ledger.to_put(9).len(), 2);
}

#[test]
fn a_result_that_is_written_twice_is_one() {
    let mut ledger = TaskLedger::new(BOUNDS, 0);
    let task = assign(&mut ledger, "t");
    let mut ended = exited();
    ended.stdout.text = "x".repeat(BOUNDS.bytes - LARGEST_RESULT_BYTES);
    let kept = ledger.conclude("t", ended).expect("it waits");
    let assigned = records::encode(&Record::Assigned(Cow::Borrowed(&task)));
    let ended = records::encode(&Record::Ended(Cow::Borrowed(&kept)));
    let taken = records::encode(&Record::Taken([kept.message].into()));
    let restored = |records: &[&Vec<u8>]| {
        let mut ledger = TaskLedger::new(BOUNDS, 0);
        let records: Vec<_> = records.iter().map(|record| (*record).clone()).collect();
        records::replay(&mut ledger, None, &records).expect("readable");
        ledger
    };
    let mut twice = restored(&[&assigned, &ended, &ended]);
    let once = restored(&[&assigned, &ended]);
    assert_eq!((twice.results().len(), twice.room()), (1, once.room()));
    assert_eq!(receive(&mut twice), ["t"]);
    for records in [[&assigned, &ended, &taken, &ended], [&assigned, &ended, &ended, &taken]] {
        let mut received = restored(&records);
        assert_eq!((received.results().len(), received.room()), (0, 4));
    }
}

#[test]
fn there_is_room_for_so_many_tasks_and_for_so_much_of_results() {
    let mut ledger = TaskLedger::new(BOUNDS, 0);
    for n in 0..BOUNDS.tasks {
        assign(&mut ledger, &n.to_string());
    }
    assert!(matches!(ledger.admit(&task("x", "true")), Err(Refused::Full { tasks: 6, .. })));
    finish(&mut ledger, "0");
    assert!(ledger.admit(&task("x", "true")).is_err(), "a result counts until it is received");
    receive(&mut ledger);
    assign(&mut ledger, "x");
    let mut large = exited();
    large.stdout.text = "\u{1}".repeat(BOUNDS.bytes / 6);
    assert_eq!(ledger.room(), 4);
    let kept = ledger.conclude("1", large).expect("it waits");
    assert_eq!(ledger.room(), 0, "counted while it is written");
    ledger.keep(kept);
    receive(&mut ledger);
    assert_eq!(ledger.room(), 4);
}

#[test]
fn so_many_are_remembered_and_the_oldest_without_output() {
    let mut ledger = TaskLedger::new(BOUNDS, 0);
    for n in 0..1_300 {
        let id = n.to_string();
        assign(&mut ledger, &id);
        let mut ended = exited();
        ended.stdout.text = "x".repeat(4_000);
        let kept = ledger.conclude(&id, ended).expect("it waits");
        ledger.keep(kept);
        receive(&mut ledger);
    }
    assert_eq!(ledger.admit(&task("299", "true")), Ok(Stand::New), "forgotten");
    let text = |ledger: &mut TaskLedger, id: &str| match ledger.admit(&task(id, "true")) {
        Ok(Stand::Done(kept, true)) => kept.stdout.text.len(),
        other => panic!("{other:?}"),
    };
    assert!(text(&mut ledger, "300") < 100);
    assert_eq!(text(&mut ledger, "1299"), 4_000);
    let bytes = records::snapshot(&ledger.durable());
    assert!(bytes.len() < 3 * 1024 * 1024, "{}", bytes.len());
}

/// A journal, a guest that runs a task once, and a receiver, as far as they matter.
#[derive(Default)]
struct World {
    journal: Vec<Vec<u8>>,
    unwritten: Vec<Write>,
    /// By id: done, and acknowledged.
    guest: BTreeMap<String, (bool, bool)>,
    acknowledged: BTreeSet<String>,
    seen: BTreeSet<String>,
    received: Vec<String>,
    loan: Option<(u64, Vec<String>)>,
}

enum Write {
    Task(Arc<Task>),
    Result(Arc<Kept>),
    Taken(Vec<MessageId>),
}

#[derive(Debug, Clone)]
enum Step {
    Assign(u8),
    Write,
    Put,
    Run,
    Read,
    Acknowledge,
    Lend,
    Settle(bool),
    /// What is in memory is lost, and what is being written.
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
        3 => Just(Step::Lend),
        3 => any::<bool>().prop_map(Step::Settle),
        1 => Just(Step::Crash),
        1 => Just(Step::Restore),
        1 => Just(Step::Fold),
    ]
}

impl World {
    fn flush(&mut self, ledger: &mut TaskLedger) {
        for write in self.unwritten.drain(..) {
            match write {
                Write::Task(task) => {
                    self.journal.push(records::encode(&Record::Assigned(Cow::Borrowed(&task))));
                    ledger.arrive(&task.work.task_id);
                    self.acknowledged.insert(task.work.task_id.clone());
                }
                Write::Result(kept) => {
                    self.journal.push(records::encode(&Record::Ended(Cow::Borrowed(&kept))));
                    ledger.keep(kept);
                }
                Write::Taken(ids) => {
                    let ids = ids.into_iter().collect();
                    self.journal.push(records::encode(&Record::Taken(ids)));
                }
            }
        }
    }

    fn take(&mut self, ledger: &mut TaskLedger, step: &Step) {
        match step {
            Step::Assign(n) => {
                let task = task(&format!("t{n}"), "true");
                match ledger.admit(&task) {
                    Ok(Stand::New) => self.unwritten.push(Write::Task(task)),
                    Ok(_) => {}
                    Err(refused) => assert!(matches!(refused, Refused::Full { .. })),
                }
            }
            Step::Write => self.flush(ledger),
            Step::Put => {
                for task in ledger.to_put(2) {
                    let id = &task.work.task_id;
                    assert!(self.acknowledged.contains(id), "put before it was durable");
                    self.guest.entry(id.clone()).or_default();
                    ledger.put(id);
                }
            }
            Step::Run => {
                if let Some(task) = self.guest.values_mut().find(|(done, _)| !done) {
                    task.0 = true;
                }
            }
            Step::Read => self.read(ledger),
            Step::Acknowledge => {
                for id in ledger.done_ids() {
                    let durable = format!("\"task_id\":\"{id}\"");
                    let is_ended = |record: &Vec<u8>| {
                        let text = String::from_utf8_lossy(record);
                        text.contains(&durable) && text.contains("\"outcome\"")
                    };
                    assert!(self.journal.iter().any(is_ended), "told to be kept before it was");
                    self.guest.entry(id).and_modify(|task| task.1 = task.0);
                }
            }
            Step::Lend => {
                if !ledger.results().on_loan()
                    && let Some((loan, lent)) = ledger.results().lend(2, 999_999)
                {
                    for one in &lent {
                        let id = &one.message.task_id;
                        assert!(!self.received.contains(id), "handed out after it was received");
                        assert!(one.again || !self.seen.contains(id), "an unmarked repeat");
                    }
                    let ids: Vec<_> = lent.iter().map(|it| it.message.task_id.clone()).collect();
                    self.seen.extend(ids.iter().cloned());
                    self.loan = Some((loan, ids));
                }
            }
            Step::Settle(taken) => {
                if let Some((loan, ids)) = self.loan.take() {
                    let gone = ledger.settle(loan, *taken);
                    if *taken {
                        assert_eq!(gone.len(), ids.len());
                        self.unwritten.push(Write::Taken(gone));
                        // From here on a crash may hand it out again; the model crashes only
                        // where that was written.
                        self.flush(ledger);
                        self.received.extend(ids);
                    }
                }
            }
            Step::Crash => {
                self.unwritten.clear();
                self.loan = None;
                *ledger = TaskLedger::new(BOUNDS, 0);
                records::replay(ledger, None, &self.journal).expect("readable");
            }
            Step::Restore => {
                let open = self.guest.iter().rev().find(|(_, (_, acked))| !acked);
                if let Some(id) = open.map(|(id, _)| id.clone())
                    && !ledger.is_done(&id)
                {
                    self.guest.remove(&id);
                }
            }
            Step::Fold => {
                self.flush(ledger);
                let bytes = records::snapshot(&ledger.durable());
                let mut folded = TaskLedger::new(BOUNDS, 0);
                records::replay(&mut folded, Some(&bytes), &[]).expect("readable");
                assert_eq!(folded.durable(), ledger.durable());
            }
        }
    }

    fn read(&mut self, ledger: &mut TaskLedger) {
        let sent = ledger.begin_reading(false);
        for (id, (done, acknowledged)) in &self.guest {
            if *done && !acknowledged && sent.contains_key(id) {
                let kept = ledger.conclude(id, exited());
                self.unwritten.extend(kept.map(Write::Result));
            }
        }
        ledger.end_reading(self.guest.values().filter(|(done, _)| !done).count());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Whatever happens in whatever order, each task that was acknowledged is received in the
    /// end, and none after it was.
    #[test]
    fn nothing_is_lost_and_nothing_comes_back(steps in proptest::collection::vec(step(), 1..120)) {
        let (mut ledger, mut world) = (TaskLedger::new(BOUNDS, 0), World::default());
        for step in &steps {
            world.take(&mut ledger, step);
            prop_assert!(ledger.pending() + ledger.results().len() <= BOUNDS.tasks);
        }
        let rest = [
            Step::Write, Step::Put, Step::Put, Step::Put, Step::Run, Step::Read, Step::Write,
            Step::Acknowledge, Step::Settle(true), Step::Lend, Step::Settle(true),
        ];
        for _ in 0..20 {
            rest.iter().for_each(|step| world.take(&mut ledger, step));
        }
        let received: BTreeSet<_> = world.received.iter().cloned().collect();
        prop_assert_eq!(received.len(), world.received.len(), "received twice");
        prop_assert_eq!(received, world.acknowledged);
        prop_assert_eq!((ledger.pending(), ledger.results().len()), (0, 0));
    }
}
