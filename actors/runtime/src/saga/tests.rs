//! A toy saga over a real journal: items are packed side by side, then all are shipped.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use hivekeep_kernel::{
    Address, Census, ChildEnd, Children, Context, Entity, Fault, Resources, RestartPolicy,
    SessionId, ToolError, children::ChildOutcome, entity::spawn_root,
};
use hivekeep_ports::{Hold, SessionQuotas, Standing};
use hivekeep_store::{Journal, Options, StreamId};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::log::{self, Decision, Log};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
enum Record {
    Ordered { owner: SessionId, items: usize, parallel: usize },
    Packed { item: usize },
    Cancelled,
    Shipped { items: BTreeSet<usize> },
}

#[derive(Debug, Clone, PartialEq)]
struct Order {
    owner: SessionId,
    items: usize,
    parallel: usize,
    packed: BTreeSet<usize>,
    cancelled: bool,
    shipped: Option<BTreeSet<usize>>,
}

impl Sourced for Order {
    const KIND: &'static str = "order";
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        match record {
            Record::Ordered { owner, items, parallel } => {
                let packed = BTreeSet::new();
                Ok(Self { owner, items, parallel, packed, cancelled: false, shipped: None })
            }
            other => Err(other),
        }
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        match record {
            Record::Packed { item } if item < self.items && self.packed.insert(item) => {}
            Record::Cancelled => self.cancelled = true,
            Record::Shipped { items } if self.shipped.is_none() => self.shipped = Some(items),
            other => return Err(other),
        }
        Ok(())
    }
}

impl SagaState for Order {
    fn holds(&self) -> Option<SessionId> {
        self.shipped.is_none().then_some(self.owner)
    }
    fn is_cancelled(&self) -> bool {
        self.cancelled
    }
    fn cancellation(&self) -> Option<Record> {
        (self.shipped.is_none() && !self.cancelled).then_some(Record::Cancelled)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Pack(usize),
    Ship,
}

/// The world outside: what took its effect stays, whatever dies.
#[derive(Default)]
struct World {
    packed: Mutex<Vec<usize>>,
    shipped: AtomicUsize,
    running: AtomicUsize,
    most: AtomicUsize,
    sessions: Arc<Holds>,
    /// Packing waits for this to be taken away.
    gate: AtomicBool,
    /// So many steps panic.
    panics: AtomicUsize,
    /// So many steps leave no record.
    idle: AtomicUsize,
}

#[derive(Default)]
struct Holds(Arc<()>);

#[async_trait]
impl SessionQuotas for Holds {
    async fn reserve(&self, _: SessionId, _: Resources) -> Result<(), ToolError> {
        Ok(())
    }
    fn release(&self, _: SessionId, _: Resources) {}
    fn restore(&self, _: SessionId, _: Resources) {}
    fn hold(&self, _: SessionId) -> Hold {
        Hold::of(self.0.clone())
    }
    fn user(&self, _: SessionId) -> Option<hivekeep_kernel::User> {
        None
    }
    async fn standing(&self, _: SessionId) -> Standing {
        unreachable!("a runner does not ask")
    }
}

impl World {
    fn pack(&self, item: usize) {
        let mut packed = self.packed.lock().expect("no panic");
        if !packed.contains(&item) {
            packed.push(item);
        }
    }

    fn held(&self) -> bool {
        Arc::strong_count(&self.sessions.0) > 1
    }
}

struct Packing {
    world: Arc<World>,
    handle: SagaHandle<Self>,
}

/// Counted as running until it is dropped.
struct Running<'w>(&'w World);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

impl Saga for Packing {
    type State = Order;
    type Step = Step;
    type Live = usize;
    type Args = Arc<World>;

    fn resume(world: Arc<World>, handle: SagaHandle<Self>) -> Self {
        Self { world, handle }
    }
    fn due(state: &Order, running: &[Step]) -> Vec<Step> {
        let packs =
            (0..state.items).filter(|item| !state.packed.contains(item) && !state.cancelled);
        let packs: Vec<_> = packs.map(Step::Pack).collect();
        match state.shipped {
            Some(_) => Vec::new(),
            None if packs.is_empty() && running.iter().all(|step| *step == Step::Ship) => {
                vec![Step::Ship]
            }
            None => packs,
        }
    }
    fn parallel(state: &Order) -> usize {
        state.parallel
    }
    fn interruptible(step: Step) -> bool {
        matches!(step, Step::Pack(_))
    }
    async fn step(&self, step: Step) -> Result<(), LogError> {
        let world = &self.world;
        let running = world.running.fetch_add(1, SeqCst) + 1;
        let _running = Running(world);
        world.most.fetch_max(running, SeqCst);
        self.handle.update(|live| *live += 1);
        tokio::task::yield_now().await;
        let take = |count: &AtomicUsize| count.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
        assert!(take(&world.panics).is_err(), "told to panic");
        if take(&world.idle).is_ok() {
            return Ok(());
        }
        match step {
            Step::Pack(item) => {
                while world.gate.load(SeqCst) {
                    if self.handle.cancelled().is_cancelled() {
                        return Ok(());
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                // It looks before it makes: a step may be taken again.
                world.pack(item);
                self.handle.record(Record::Packed { item }).await
            }
            Step::Ship => {
                world.shipped.fetch_add(1, SeqCst);
                let shipped = |state: &Order| {
                    let items = state.packed.clone();
                    Ok::<_, LogError>(Decision::record(Record::Shipped { items }))
                };
                self.handle.decide(shipped).await
            }
        }
    }
}

fn id() -> StreamId {
    log::stream::<Order>("a").expect("a name")
}

fn journal(folder: &std::path::Path) -> Journal {
    Journal::open(Options::at(folder)).expect("it opens").0
}

async fn handle(journal: &Journal) -> SagaHandle<Packing> {
    let log = Log::<Order>::open(journal.clone(), id()).await.expect("it opens");
    SagaHandle::new(log).expect("it was begun")
}

async fn ordered(journal: &Journal, items: usize, parallel: usize) {
    let log = Log::<Order>::open(journal.clone(), id()).await.expect("it opens");
    let record = Record::Ordered { owner: SessionId::new(), items, parallel };
    let written = log.decide::<LogError>(|_| Ok(Decision::record(record))).expect("it is open");
    written.await.expect("it is written");
}

/// A supervisor of one saga, which tells of its end.
struct Above(Children, tokio::sync::mpsc::Sender<ChildOutcome>);

#[derive(Clone)]
struct AboveArgs(SagaArgs<Packing>, tokio::sync::mpsc::Sender<ChildOutcome>);

impl Entity for Above {
    type Msg = ();
    type Args = AboveArgs;
    async fn start(AboveArgs(args, news): AboveArgs, me: Context<()>) -> Result<Self, Fault> {
        let mut children = Children::new("root", Census::default(), me.cell);
        let address = children.address("a", "order", RestartPolicy::ENTITY);
        children.start_at::<SagaActor<Packing>>(&address, args)?;
        Ok(Self(children, news))
    }
    fn handle(&mut self, (): ()) -> Result<(), Fault> {
        Ok(())
    }
    fn child(&mut self, end: ChildEnd) -> Result<(), Fault> {
        let outcome = self.0.handle_end(end)?;
        drop(self.1.try_send(outcome));
        Ok(())
    }
}

struct Stage {
    handle: SagaHandle<Packing>,
    closing: CancellationToken,
    cell: ractor::ActorCell,
    news: tokio::sync::mpsc::Receiver<ChildOutcome>,
}

async fn started(journal: &Journal, world: &Arc<World>) -> Stage {
    let (handle, closing) = (handle(journal).await, CancellationToken::new());
    let args = SagaArgs {
        args: world.clone(),
        handle: handle.clone(),
        sessions: world.sessions.clone(),
        closing: closing.clone(),
    };
    let (tell, news) = tokio::sync::mpsc::channel(64);
    let probe = Census::default().probe("root", "root", RestartPolicy::ESSENTIAL);
    let root = spawn_root::<Above>(&Address::vacant(probe), AboveArgs(args, tell)).await;
    Stage { handle, closing, cell: root.expect("it spawns").0, news }
}

impl Stage {
    async fn over(&mut self) -> Order {
        loop {
            match self.news.recv().await.expect("it is told") {
                ChildOutcome::Gone { failure: None, .. } => return self.handle.state(),
                ChildOutcome::Restarting { .. } | ChildOutcome::Stranger => {}
                ended => panic!("{ended:?}"),
            }
        }
    }
}

async fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Dropped after any number of its records, and again, it comes to the same end.
    #[test]
    fn it_is_gone_on_with_from_any_record(
        items in 1_usize..8,
        parallel in 1_usize..5,
        deaths in prop::collection::vec(0_usize..4, 0..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async move {
            let folder = tempfile::tempdir().expect("a folder");
            let world = Arc::new(World::default());
            let mut journal = journal(folder.path());
            ordered(&journal, items, parallel).await;
            for records in deaths {
                let stage = started(&journal, &world).await;
                let mut view = stage.handle.watch();
                let before = view.borrow().state.packed.len();
                let enough = |view: &SagaView<Packing>| {
                    view.state.shipped.is_some() || view.state.packed.len() >= before + records
                };
                view.wait_for(enough).await.expect("it is watched");
                stage.cell.kill();
                journal.close().await;
                drop((stage, view));
                journal = self::journal(folder.path());
            }
            let mut stage = started(&journal, &world).await;
            let all: BTreeSet<_> = (0..items).collect();
            assert_eq!(stage.over().await.shipped.as_ref(), Some(&all));
            let mut packed = world.packed.lock().expect("no panic").clone();
            packed.sort_unstable();
            assert!(packed.into_iter().eq(all), "each item was packed once");
            assert!(world.most.load(SeqCst) <= parallel);
            assert!(!world.held());
        });
    }
}

#[tokio::test]
async fn so_many_steps_run_at_a_time_and_the_session_is_held_meanwhile() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    ordered(&journal, 9, 4).await;
    let world = Arc::new(World::default());
    world.gate.store(true, SeqCst);
    let mut stage = started(&journal, &world).await;
    until(|| world.running.load(SeqCst) == 4).await;
    assert!(world.held());
    assert_eq!(stage.handle.view(|view| view.live), 4);
    world.gate.store(false, SeqCst);
    stage.over().await;
    assert_eq!(world.most.load(SeqCst), 4);
    assert!(!world.held());
    assert_eq!(stage.handle.cancel().await, Ok(false), "nothing is left to cut short");
}

#[tokio::test]
async fn a_cancellation_is_durable_before_anybody_is_told_and_cuts_steps_short() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    ordered(&journal, 3, 2).await;
    let world = Arc::new(World::default());
    world.gate.store(true, SeqCst);
    let mut stage = started(&journal, &world).await;
    until(|| world.running.load(SeqCst) == 2).await;
    assert_eq!(stage.handle.cancel().await, Ok(true));
    assert!(handle(&journal).await.state().cancelled);
    let order = stage.over().await;
    assert_eq!(order.shipped, Some(BTreeSet::new()), "what is cancelled comes to its end");
    assert!(world.packed.lock().expect("no panic").is_empty());
    let again = handle(&journal).await;
    assert!(again.cancelled().is_cancelled(), "it is remembered");
}

#[tokio::test]
async fn a_cancellation_reaches_the_steps_although_nobody_waits_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    ordered(&journal, 1, 1).await;
    let handle = handle(&journal).await;
    assert!(futures::FutureExt::now_or_never(handle.cancel()).is_none(), "it takes its time");
    handle.settled().await;
    assert!(handle.state().cancelled && handle.cancelled().is_cancelled());
    journal.close().await;
}

#[tokio::test]
async fn an_ordered_stop_drops_what_may_be_interrupted_and_begins_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    ordered(&journal, 3, 2).await;
    let world = Arc::new(World::default());
    world.gate.store(true, SeqCst);
    let stage = started(&journal, &world).await;
    until(|| world.running.load(SeqCst) == 2).await;
    stage.closing.cancel();
    until(|| world.running.load(SeqCst) == 0 && !world.held()).await;
    world.gate.store(false, SeqCst);
    stage.cell.stop_and_wait(None, None).await.expect("it stops");
    assert_eq!(stage.handle.state().packed, BTreeSet::new());
    let mut next = started(&journal, &world).await;
    assert_eq!(next.over().await.packed.len(), 3);
}

#[tokio::test]
async fn a_step_that_panics_or_leaves_no_record_fails_the_incarnation_and_no_other() {
    for (panics, idle) in [(1, 0), (0, 1)] {
        let folder = tempfile::tempdir().expect("a folder");
        let journal = journal(folder.path());
        ordered(&journal, 2, 2).await;
        let world = Arc::new(World::default());
        world.panics.store(panics, SeqCst);
        world.idle.store(idle, SeqCst);
        let mut stage = started(&journal, &world).await;
        assert_eq!(stage.over().await.packed.len(), 2);
        assert!(!world.held());
    }
}
