//! The queue over a disk and processes that are only thought of, with a crash at any point.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::*;
use hivekeep_protocol::Exit;

/// What a crash of the daemon leaves, and of this what one of the machine leaves.
#[derive(Default)]
struct World {
    entries: BTreeMap<u64, TaskRecord>,
    /// What the machine's disk has where that is not flushed yet.
    unflushed: BTreeMap<u64, TaskRecord>,
    /// By number.
    runs: HashMap<u64, Shim>,
    last_run: u64,
    boot: u32,
    /// Times that each task's command did its work.
    effects: HashMap<String, u32>,
    /// Puts that were answered.
    acknowledged_puts: Vec<String>,
    /// Results that were told.
    told: HashMap<String, (u64, GuestTaskOutcome)>,
    interrupted_by_reboot: u32,
}

/// What there is of a task's job.
#[derive(Debug, PartialEq)]
enum Trace {
    /// The command was surely not started, and nobody is left who would.
    None,
    /// It runs.
    Running,
    /// It ended, or was started and what looked after it is dead.
    Over,
}

struct Shim {
    task_id: String,
    begun: bool,
    alive: bool,
    exit: Option<i32>,
}

impl World {
    fn trace(&self, seq: u64) -> Trace {
        let Some(run) = &self.entries[&seq].run else { return Trace::None };
        let of_this_boot = run.boot_id == self.boot.to_string();
        match self.runs.get(&run.number) {
            None if of_this_boot => Trace::None,
            // A folder that the machine's end has taken.
            None => Trace::Over,
            Some(run) if run.exit.is_some() => Trace::Over,
            Some(run) if run.alive => Trace::Running,
            Some(run) if of_this_boot && !run.begun => Trace::None,
            Some(_) => Trace::Over,
        }
    }

    fn next_run(&mut self) -> TaskRun {
        self.last_run += 1;
        TaskRun { number: self.last_run, boot_id: self.boot.to_string(), workdir: None }
    }

    fn daemon(&self) -> TaskQueue {
        let mut queue = TaskQueue::default();
        self.entries.values().cloned().for_each(|task| queue.apply(task));
        let open: Vec<_> = queue.open().map(|task| task.seq).collect();
        for seq in open {
            if self.trace(seq) != Trace::None {
                queue.runs_already(seq);
            }
        }
        queue
    }

    /// A run's folder is flushed by nobody.
    fn reboot(&mut self, keeps_runs: bool) {
        self.boot += 1;
        self.entries.append(&mut self.unflushed);
        self.runs.values_mut().for_each(|run| run.alive = false);
        self.runs.retain(|_, _| keeps_runs);
    }

    /// Whether the shims go on is not the daemon's to say.
    fn shims_run(&mut self, mut luck: impl FnMut() -> bool) {
        for run in self.runs.values_mut() {
            if !run.alive || !luck() {
                continue;
            }
            if run.begun {
                (run.alive, run.exit) = (false, Some(0));
            } else {
                run.begun = true;
                *self.effects.entry(run.task_id.clone()).or_default() += 1;
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Op {
    /// It begins at once, if it may and there is nothing in its way.
    Put {
        id: u8,
        may_begin: bool,
        order: Order,
    },
    Start(Order),
    ShimsRun(u8),
    Conclude {
        crash: Crash,
    },
    Acknowledge(u8, Crash),
    Read,
    KillDaemon,
    Reboot {
        keeps_runs: bool,
    },
}

/// What becomes of a run that was written down.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    /// Its shim is started.
    Sent,
    /// The daemon dies before that.
    Unsent,
    /// The shim dies before the command begins, and the daemon finds out.
    ToNobody,
}

/// Where the daemon dies within a change.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Crash {
    Nowhere,
    BeforeWrite,
    AfterWrite,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let crash = prop_oneof![
        6 => Just(Crash::Nowhere),
        1 => Just(Crash::BeforeWrite),
        1 => Just(Crash::AfterWrite),
    ];
    let order = prop_oneof![
        8 => Just(Order::Sent),
        1 => Just(Order::Unsent),
        1 => Just(Order::ToNobody),
    ];
    let op = prop_oneof![
        4 => (0u8..12, any::<bool>(), order.clone())
            .prop_map(|(id, may_begin, order)| Op::Put { id, may_begin, order }),
        5 => order.prop_map(Op::Start),
        5 => any::<u8>().prop_map(Op::ShimsRun),
        5 => crash.clone().prop_map(|crash| Op::Conclude { crash }),
        2 => (0u8..12, crash).prop_map(|(id, crash)| Op::Acknowledge(id, crash)),
        3 => Just(Op::Read),
        1 => Just(Op::KillDaemon),
        1 => any::<bool>().prop_map(|keeps_runs| Op::Reboot { keeps_runs }),
    ];
    proptest::collection::vec(op, 0..120)
}

fn ended(number: u64, outcome: GuestTaskOutcome) -> StoredTaskResult {
    StoredTaskResult { number, outcome, workdir: None, elapsed_ms: 1, totals: [0; 2] }
}

/// Writes a change down and applies it, unless the daemon dies over it.
fn change(world: &mut World, queue: &mut TaskQueue, task: TaskRecord, crash: Crash) -> bool {
    if crash != Crash::BeforeWrite {
        let before = world.entries.insert(task.seq, task.clone());
        match (&task.phase, before) {
            (TaskPhase::Acknowledged(_), Some(before)) => {
                drop(world.unflushed.insert(task.seq, before))
            }
            _ => world.unflushed.clear(),
        }
    }
    if crash != Crash::Nowhere {
        *queue = world.daemon();
        return false;
    }
    queue.apply(task);
    true
}

fn put(world: &mut World, queue: &mut TaskQueue, id: &str, may_begin: bool, order: Order) {
    match queue.put(id, "m", "digest".into()) {
        PutDecision::New(mut task) => {
            assert_eq!(queue.state(&task), GuestTaskState::Queued);
            let (seq, starts) = (task.seq, may_begin && queue.is_idle());
            if starts {
                task.run = Some(world.next_run());
            }
            change(world, queue, task, Crash::Nowhere);
            world.acknowledged_puts.push(id.to_owned());
            if starts {
                queue.runs_already(seq);
                go(world, queue, seq, order);
            }
        }
        PutDecision::Repeat(task) => assert_eq!(task.task_id, id),
        PutDecision::Full => panic!("twelve are not too many"),
    }
}

fn start(world: &mut World, queue: &mut TaskQueue, order: Order) {
    let open: Vec<_> = queue.open().cloned().collect();
    let running = open.iter().filter(|task| queue.state(task) == GuestTaskState::Running).count();
    let first = open.iter().find(|task| queue.state(task) == GuestTaskState::Queued);
    let first = first.map(|task| task.seq).filter(|_| running < limits::TASKS_AT_ONCE);
    let claimed = queue.start_next();
    assert_eq!(claimed, first, "in order of arrival, and not too many at once");
    let Some(seq) = claimed else { return };
    let task = queue.task(seq).expect("it is open").clone();
    match &task.run {
        // Written down, and never begun: it is good for this.
        Some(run) => assert_eq!(run.boot_id, world.boot.to_string()),
        None => {
            let run = Some(world.next_run());
            change(world, queue, TaskRecord { run, ..task }, Crash::Nowhere);
        }
    }
    go(world, queue, seq, order);
}

/// The run of a task was written down.
fn go(world: &mut World, queue: &mut TaskQueue, seq: u64, order: Order) {
    let task = &world.entries[&seq];
    let (number, task_id) = (task.run.as_ref().expect("written down").number, task.task_id.clone());
    let shim = Shim { task_id, begun: false, alive: order == Order::Sent, exit: None };
    match order {
        Order::Sent => drop(world.runs.insert(number, shim)),
        Order::Unsent => *queue = world.daemon(),
        Order::ToNobody => {
            world.runs.insert(number, shim);
            queue.requeue(seq);
        }
    }
}

/// The end of the first run that is over.
fn conclude(world: &mut World, queue: &mut TaskQueue, crash: Crash) -> bool {
    let over = queue.open().map(|task| task.seq).find(|seq| world.trace(*seq) == Trace::Over);
    let Some(seq) = over else { return false };
    let number = world.entries[&seq].run.as_ref().expect("it is over").number;
    let outcome = match world.runs.get(&number).and_then(|run| run.exit) {
        Some(code) => GuestTaskOutcome::Ended(Exit::Code(code)),
        None => GuestTaskOutcome::Interrupted,
    };
    let task = queue.end(seq, |number| ended(number, outcome)).expect("it is open");
    if change(world, queue, task, crash) {
        assert!(queue.end(seq, |number| ended(number, GuestTaskOutcome::Cancelled)).is_none());
    }
    true
}

fn read(world: &mut World, queue: &TaskQueue) {
    let mut last = 0;
    for (task, ended) in queue.results(0) {
        assert!(ended.number > last, "numbers ascend");
        last = ended.number;
        let now = (ended.number, ended.outcome.clone());
        let before = world.told.entry(task.task_id.clone()).or_insert_with(|| now.clone());
        assert_eq!(*before, now, "a result never changes");
    }
}

fn run(world: &mut World, queue: &mut TaskQueue, op: Op) {
    match op {
        Op::Put { id, may_begin, order } => {
            put(world, queue, &format!("task-{id}"), may_begin, order);
        }
        Op::Start(order) => start(world, queue, order),
        Op::ShimsRun(mut luck) => world.shims_run(|| {
            luck = luck.rotate_left(1);
            luck & 1 == 1
        }),
        Op::Conclude { crash } => drop(conclude(world, queue, crash)),
        Op::Acknowledge(id, crash) => {
            if let Some(task) = queue.acknowledge(&format!("task-{id}")) {
                change(world, queue, task, crash);
            }
        }
        Op::Read => read(world, queue),
        Op::KillDaemon => *queue = world.daemon(),
        Op::Reboot { keeps_runs } => {
            world.reboot(keeps_runs);
            world.interrupted_by_reboot += 1;
            *queue = world.daemon();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn each_task_runs_at_most_once_and_has_one_result(ops in ops()) {
        let mut world = World::default();
        let mut queue = TaskQueue::default();
        for op in ops {
            run(&mut world, &mut queue, op);
        }
        // Left in peace, it all comes to an end.
        for _ in 0..200 {
            run(&mut world, &mut queue, Op::Start(Order::Sent));
            world.shims_run(|| true);
            run(&mut world, &mut queue, Op::Conclude { crash: Crash::Nowhere });
            run(&mut world, &mut queue, Op::Read);
        }
        prop_assert_eq!(queue.open().count(), 0);
        let mut numbers = std::collections::HashSet::new();
        for id in &world.acknowledged_puts {
            let task = queue.find(id).expect("an answered put is known for ever");
            let (TaskPhase::Ended(ended) | TaskPhase::Acknowledged(ended)) = &task.phase else {
                panic!("it is over");
            };
            prop_assert!(numbers.insert(ended.number));
            let effects = world.effects.get(id).copied().unwrap_or(0);
            match &ended.outcome {
                GuestTaskOutcome::Ended(_) => prop_assert_eq!(effects, 1),
                GuestTaskOutcome::Interrupted => {
                    prop_assert!(effects <= 1);
                    prop_assert!(world.interrupted_by_reboot > 0, "only a machine's end interrupts");
                }
                other => panic!("{other:?}"),
            }
            if let Some(told) = world.told.get(id) {
                prop_assert_eq!(told, &(ended.number, ended.outcome.clone()));
            }
        }
    }
}

fn acknowledged(queue: &mut TaskQueue, id: &str) {
    let PutDecision::New(task) = queue.put(id, "", String::new()) else { panic!("new") };
    let seq = task.seq;
    queue.apply(task);
    let task = queue.end(seq, |number| ended(number, GuestTaskOutcome::Interrupted)).expect("open");
    queue.apply(task);
    let task = queue.acknowledge(id).expect("it ended");
    queue.apply(task);
}

#[test]
fn what_is_remembered_is_bounded_and_the_oldest_goes() {
    let mut queue = TaskQueue::default();
    for number in 0..limits::MAX_TASKS_REMEMBERED + 3 {
        acknowledged(&mut queue, &number.to_string());
    }
    let gone: Vec<_> = queue.forget().iter().map(|task| task.seq).collect();
    assert_eq!(gone, [1, 2, 3]);
    assert!(queue.find("2").is_none() && queue.find("3").is_some());
    assert_eq!(queue.forget(), []);
    // Neither a place nor a number is given twice.
    acknowledged(&mut queue, "again");
    let again = queue.find("again").expect("known");
    assert_eq!(again.seq as usize, limits::MAX_TASKS_REMEMBERED + 4);
}

#[test]
fn what_is_not_acknowledged_is_bounded_by_refusal() {
    let mut queue = TaskQueue::default();
    for number in 0..limits::MAX_TASKS {
        let PutDecision::New(task) = queue.put(&number.to_string(), "", String::new()) else {
            panic!("there is room");
        };
        queue.apply(task);
    }
    assert_eq!(queue.put("one more", "", String::new()), PutDecision::Full);
    assert!(matches!(queue.put("0", "", String::new()), PutDecision::Repeat(_)));
    let task = queue.end(1, |number| ended(number, GuestTaskOutcome::Cancelled)).expect("open");
    queue.apply(task);
    assert_eq!(queue.put("one more", "", String::new()), PutDecision::Full);
    let task = queue.acknowledge("0").expect("ended");
    queue.apply(task);
    assert!(matches!(queue.put("one more", "", String::new()), PutDecision::New(_)));
}
