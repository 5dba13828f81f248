use std::{cell::RefCell, collections::HashSet};

use proptest::prelude::*;

use super::*;
use crate::registry::target::Lane;

thread_local! {
    /// Calls whose callers have gone.
    static GONE: RefCell<HashSet<u32>> = RefCell::default();
}

impl Waits for u32 {
    fn gone(&self) -> bool {
        GONE.with_borrow(|gone| gone.contains(self))
    }
}

fn leaves(call: u32) {
    GONE.with_borrow_mut(|gone| gone.insert(call));
}

const LIMITS: Limits =
    Limits { all: 3, work: 2, queued: 4, parked: 2, wait: Duration::from_secs(10) };
/// One session's own.
const OWN: (&str, Serves) = ("own", Serves::One);
/// Shared by all.
const SHARED: (&str, Serves) = ("shared", Serves::All);

type Calls = Admission<u32, u8, u32>;

fn work(session: u8) -> Flow<u8> {
    Flow { session, lane: Lane::Work }
}

fn control(session: u8) -> Flow<u8> {
    Flow { session, lane: Lane::Control }
}

fn arrive(calls: &mut Calls, flow: Flow<u8>, call: u32) -> Arrival<u32> {
    calls.arrive(Duration::ZERO, OWN, flow, call, call)
}

fn load(calls: &Calls) -> Option<(u32, u32)> {
    calls.loads().next().map(|(_, load)| (load.in_flight, load.queued))
}

#[test]
fn slots_then_the_queue_then_refusal() {
    let mut calls = Calls::new(LIMITS);
    for call in 0..3 {
        assert_eq!(arrive(&mut calls, control(0), call), Arrival::Go(call));
    }
    for call in 3..7 {
        assert_eq!(arrive(&mut calls, control(0), call), Arrival::Queued);
    }
    assert!(matches!(arrive(&mut calls, control(0), 7), Arrival::Refused(7, Full::Queue, _)));
    assert_eq!(load(&calls), Some((3, 4)));
    assert_eq!(calls.end(Duration::ZERO, &1), [3], "the oldest goes next");
}

#[test]
fn work_leaves_the_reserve_to_control() {
    let mut calls = Calls::new(LIMITS);
    assert_eq!(arrive(&mut calls, work(0), 0), Arrival::Go(0));
    assert_eq!(arrive(&mut calls, work(0), 1), Arrival::Go(1));
    assert_eq!(arrive(&mut calls, work(0), 2), Arrival::Queued);
    assert_eq!(arrive(&mut calls, control(0), 3), Arrival::Go(3), "looking works beside commands");
    assert_eq!(calls.end(Duration::ZERO, &3), [0; 0], "the reserve is not for work");
    assert_eq!(calls.end(Duration::ZERO, &0), [2]);
}

#[test]
fn what_bears_no_other_beside_it_goes_one_after_another() {
    let alone = |session| Flow { session, lane: Lane::Exclusive };
    let mut calls = Calls::new(LIMITS);
    assert_eq!(arrive(&mut calls, alone(0), 0), Arrival::Go(0));
    assert_eq!(arrive(&mut calls, alone(0), 1), Arrival::Queued);
    assert_eq!(arrive(&mut calls, alone(1), 2), Arrival::Queued);
    assert_eq!(arrive(&mut calls, control(0), 3), Arrival::Go(3), "others go beside it");
    assert_eq!(calls.end(Duration::ZERO, &3), [0; 0]);
    assert_eq!(calls.end(Duration::ZERO, &0), [1]);
    assert_eq!(calls.end(Duration::ZERO, &1), [2]);
    assert_eq!(calls.totals().counts.exclusive, 1);
    assert_eq!(calls.end(Duration::ZERO, &2), [0; 0]);
    assert_eq!(calls.totals().counts, Counts::default());
}

#[test]
fn sessions_take_turns() {
    let mut calls = Calls::new(Limits { all: 1, work: 1, ..LIMITS });
    assert_eq!(arrive(&mut calls, control(0), 0), Arrival::Go(0));
    for (session, call) in [(1, 10), (1, 11), (1, 12), (2, 20)] {
        assert_eq!(arrive(&mut calls, control(session), call), Arrival::Queued);
    }
    let order: Vec<_> =
        [0, 10, 20, 11].iter().flat_map(|call| calls.end(Duration::ZERO, call)).collect();
    assert_eq!(order, [10, 20, 11, 12]);
}

#[test]
fn a_call_whose_caller_has_gone_takes_neither_a_slot_nor_room() {
    let mut calls = Calls::new(Limits { all: 1, work: 1, queued: 2, ..LIMITS });
    for call in 0..3 {
        let _ = arrive(&mut calls, control(0), call);
    }
    leaves(1);
    assert_eq!(arrive(&mut calls, control(0), 3), Arrival::Queued, "there is room in its stead");
    leaves(2);
    assert_eq!(calls.end(Duration::ZERO, &0), [3], "its turn is another's");
    let _ = arrive(&mut calls, control(0), 4);
    leaves(4);
    assert_eq!(calls.sweep(Duration::ZERO), []);
    assert_eq!(load(&calls), Some((1, 0)));
    assert_eq!(calls.end(Duration::ZERO, &3), [0; 0]);
    assert_eq!(load(&calls), None, "an idle target is forgotten");
}

#[test]
fn who_waits_too_long_is_taken_out() {
    let mut calls = Calls::new(Limits { all: 1, work: 1, ..LIMITS });
    let _ = arrive(&mut calls, control(0), 0);
    let _ = calls.arrive(Duration::from_secs(1), OWN, control(0), 1, 1);
    let _ = calls.arrive(Duration::from_secs(5), OWN, control(1), 2, 2);
    assert_eq!(calls.next_expiry(), Some(Duration::from_secs(11)));
    let late: Vec<_> =
        calls.sweep(Duration::from_secs(11)).into_iter().map(|late| late.0).collect();
    assert_eq!(late, [1]);
    assert_eq!(calls.next_expiry(), Some(Duration::from_secs(15)));
    assert_eq!(calls.end(Duration::from_secs(12), &0), [2]);
    assert_eq!(calls.next_expiry(), None);
}

#[test]
fn the_hint_grows_with_the_queue_and_the_service_time() {
    let load = |queued, average_ms| {
        let average = Some(Duration::from_millis(average_ms));
        Load { in_flight: 4, queued, average, slots: 4 }.hint().as_millis()
    };
    assert_eq!(
        [load(0, 1), load(0, 400), load(15, 400), load(64, 60_000)],
        [100, 400, 1600, 30_000]
    );
}

#[test]
fn an_end_of_an_older_incarnation_is_ignored() {
    let mut calls = Calls::new(LIMITS);
    assert_eq!(calls.end(Duration::ZERO, &99), [0; 0]);
    let _ = arrive(&mut calls, control(0), 0);
    assert_eq!(calls.end(Duration::ZERO, &99), [0; 0]);
    assert_eq!(load(&calls), Some((1, 0)));
}

#[test]
fn no_session_holds_more_than_half_of_what_is_shared() {
    let limits = Limits { all: 16, work: 14, queued: 8, ..LIMITS };
    let mut calls = Calls::new(limits);
    let mut shared = |flow, call| calls.arrive(Duration::ZERO, SHARED, flow, call, call);
    for call in 0..7 {
        assert_eq!(shared(work(1), call), Arrival::Go(call));
    }
    assert_eq!(shared(work(1), 7), Arrival::Queued, "half of the slots for work");
    assert_eq!(shared(work(2), 20), Arrival::Go(20), "the other half is another's");
    assert_eq!(shared(control(1), 8), Arrival::Go(8));
    assert_eq!(shared(control(1), 9), Arrival::Queued, "half of all slots");
    for call in 10..12 {
        assert_eq!(shared(work(1), call), Arrival::Queued);
    }
    assert!(
        matches!(shared(work(1), 12), Arrival::Refused(12, Full::Share, _)),
        "half of the queue"
    );
    // One end lets two go: another call of the session, in either lane.
    assert_eq!(calls.end(Duration::ZERO, &0), [7]);
    assert_eq!(calls.end(Duration::ZERO, &8), [9]);
    let mut tiny = Calls::new(Limits { all: 1, work: 1, queued: 1, ..LIMITS });
    let mut shared = |call| tiny.arrive(Duration::ZERO, SHARED, work(1), call, call);
    assert_eq!([shared(0), shared(1)], [Arrival::Go(0), Arrival::Queued], "never less than one");
}

#[test]
fn what_only_waits_is_parked_and_how_much_is_bounded_over_all_targets() {
    let mut calls = Calls::new(Limits { all: 1, work: 1, ..LIMITS });
    let _ = arrive(&mut calls, work(1), 0);
    let _ = arrive(&mut calls, work(1), 1);
    assert_eq!(calls.park(Duration::ZERO, &0), [1]);
    assert_eq!(calls.park(Duration::ZERO, &0), [0; 0], "once is enough");
    let other = |calls: &mut Calls, flow, call| {
        assert_eq!(calls.arrive(Duration::ZERO, SHARED, flow, call, call), Arrival::Go(call));
        let _ = calls.park(Duration::ZERO, &call);
    };
    other(&mut calls, work(1), 2);
    assert_eq!(calls.park(Duration::ZERO, &1), [0; 0], "two are parked already");
    assert_eq!(load(&calls), Some((1, 0)), "so it keeps its slot");
    other(&mut calls, work(2), 3);
    assert_eq!(calls.end(Duration::ZERO, &2), [0; 0]);
    assert_eq!((calls.park(Duration::ZERO, &1), load(&calls)), (vec![], None), "one ended");
    for call in [0, 1, 3] {
        assert_eq!(calls.end(Duration::ZERO, &call), [0; 0]);
    }
    assert!(calls.admitted.is_empty() && calls.parked.is_empty());
}

#[derive(Debug, Clone)]
enum Step {
    Arrive { target: u8, session: u8, work: bool },
    End(prop::sample::Index),
    Park(prop::sample::Index),
    Leave(prop::sample::Index),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u8..2, 0u8..3, any::<bool>())
            .prop_map(|(target, session, work)| Step::Arrive { target, session, work }),
        4 => any::<prop::sample::Index>().prop_map(Step::End),
        2 => any::<prop::sample::Index>().prop_map(Step::Park),
        2 => any::<prop::sample::Index>().prop_map(Step::Leave),
        1 => (0u64..6).prop_map(Step::Wait),
    ]
}

/// One call, as it arrived. The target 0 is one session's own, the target 1 is shared.
#[derive(Debug, Clone, Copy)]
struct Call {
    call: u32,
    target: u8,
    session: u8,
    work: bool,
    since: Duration,
}

/// Model of the state that the machine should have.
#[derive(Default)]
struct Model {
    running: Vec<Call>,
    waiting: Vec<Call>,
    parked: Vec<Call>,
}

impl Model {
    fn admit(&mut self, calls: Vec<u32>) {
        for call in calls {
            let at = self.waiting.iter().position(|waiting| waiting.call == call);
            self.running.push(self.waiting.remove(at.expect("only who waits is admitted")));
        }
    }

    /// All, and for work.
    fn slots(&self, target: u8, session: Option<u8>) -> (usize, usize) {
        let of = |call: &&Call| {
            call.target == target && session.is_none_or(|session| session == call.session)
        };
        let running: Vec<_> = self.running.iter().filter(of).collect();
        (running.len(), running.iter().filter(|call| call.work).count())
    }

    fn check(&self, calls: &Calls) -> Result<(), TestCaseError> {
        let mut sums = Counts::default();
        for target in 0..2u8 {
            let (all, work) = self.slots(target, None);
            let waiting: Vec<_> =
                self.waiting.iter().filter(|call| call.target == target).collect();
            prop_assert!(all <= 3 && work <= 2 && waiting.len() <= 4);
            let told = calls.loads().find(|(key, _)| *key == at(target).0);
            let told = told.map_or((0, 0), |(_, load)| (load.in_flight, load.queued));
            prop_assert_eq!(told.0, all as u32);
            prop_assert!(waiting.len() as u32 <= told.1 && told.1 <= 4, "one was lost");
            sums.in_flight += told.0;
            sums.work += work as u32;
            sums.queued += told.1;
            let share = if target == 0 { (3, 2) } else { (1, 1) };
            for session in 0..3 {
                let (mine, my_work) = self.slots(target, Some(session));
                prop_assert!(mine <= share.0 && my_work <= share.1, "more than its share");
                let room = all < 3 && mine < share.0;
                let for_work = room && work < 2 && my_work < share.1;
                let mut idle = waiting.iter().filter(|call| call.session == session);
                prop_assert!(!idle.any(|call| if call.work { for_work } else { room }), "idle");
                let waits = waiting.iter().filter(|call| call.session == session).count();
                prop_assert!(target == 0 || waits <= 2, "more than its half of the queue");
            }
        }
        prop_assert_eq!(calls.totals().counts, sums);
        prop_assert_eq!(calls.totals().parked as usize, self.parked.len());
        for session in 0..3 {
            let parked = self.parked.iter().filter(|call| call.session == session).count();
            prop_assert!(parked <= 2);
            prop_assert_eq!(calls.parked.get(&session).copied().unwrap_or(0), parked as u32);
        }
        Ok(())
    }
}

fn at(target: u8) -> (&'static str, Serves) {
    if target == 0 { OWN } else { SHARED }
}

proptest! {
    #[test]
    fn never_too_many_nobody_starves_no_slot_leaks(steps in prop::collection::vec(step(), 1..120)) {
        GONE.with_borrow_mut(HashSet::clear);
        let (mut calls, mut model, mut now) = (Calls::new(LIMITS), Model::default(), Duration::ZERO);
        for (call, step) in (0u32..).zip(steps) {
            match step {
                Step::Arrive { target, session, work: heavy } => {
                    let flow = if heavy { work(session) } else { control(session) };
                    let arrived = Call { call, target, session, work: heavy, since: now };
                    let of = |waiting: &&Call| waiting.target == target;
                    match calls.arrive(now, at(target), flow, call, call) {
                        Arrival::Go(cargo) => {
                            prop_assert_eq!(cargo, call);
                            model.running.push(arrived);
                        }
                        Arrival::Queued => model.waiting.push(arrived),
                        Arrival::Refused(_, Full::Queue, _) => {
                            let waiting = model.waiting.iter().filter(of).count();
                            prop_assert_eq!(waiting, 4, "refused with room to wait");
                        }
                        Arrival::Refused(_, Full::Share, _) => {
                            let mine = |waiting: &&Call| of(waiting) && waiting.session == session;
                            let waiting = model.waiting.iter().filter(mine).count();
                            prop_assert_eq!((target, waiting), (1, 2), "refused with room to wait");
                        }
                    }
                }
                Step::End(which) if !model.running.is_empty() => {
                    let ended = model.running.remove(which.index(model.running.len()));
                    model.admit(calls.end(now, &ended.call));
                }
                Step::End(which) if !model.parked.is_empty() => {
                    let ended = model.parked.remove(which.index(model.parked.len()));
                    prop_assert!(calls.end(now, &ended.call).is_empty());
                }
                Step::Park(which) if !model.running.is_empty() => {
                    let at = which.index(model.running.len());
                    let request = model.running[at];
                    let next = calls.park(now, &request.call);
                    let parked = model.parked.iter().filter(|call| call.session == request.session);
                    if parked.count() < 2 {
                        model.parked.push(model.running.remove(at));
                    }
                    model.admit(next);
                }
                Step::Leave(which) if !model.waiting.is_empty() => {
                    let left = model.waiting.remove(which.index(model.waiting.len()));
                    leaves(left.call);
                }
                Step::Wait(secs) => {
                    now += Duration::from_secs(secs);
                    let late: HashSet<_> = calls.sweep(now).into_iter().map(|late| late.0).collect();
                    let due = |waiting: &Call| waiting.since + LIMITS.wait <= now;
                    let expected: HashSet<_> =
                        model.waiting.iter().filter(|w| due(w)).map(|w| w.call).collect();
                    prop_assert_eq!(late, expected);
                    let waiting = calls.loads().map(|(_, load)| load.queued).sum::<u32>();
                    let gone = model.waiting.iter().filter(|w| due(w)).count() as u32;
                    prop_assert_eq!(waiting + gone, model.waiting.len() as u32, "swept");
                    model.waiting.retain(|w| !due(w));
                }
                Step::End(_) | Step::Park(_) | Step::Leave(_) => {}
            }
            model.check(&calls)?;
        }
        // Everything that runs ends; everything that waits gets its turn.
        while let Some(ended) = model.running.pop().or_else(|| model.parked.pop()) {
            model.admit(calls.end(now, &ended.call));
        }
        prop_assert!(model.waiting.is_empty(), "starved: {:?}", model.waiting);
        prop_assert_eq!(calls.loads().count(), 0);
        prop_assert!(calls.admitted.is_empty() && calls.parked.is_empty());
    }

    #[test]
    fn who_waits_first_goes_first_however_many_come_after(
        others in prop::collection::vec(1u8..4, 0..40),
    ) {
        let mut calls = Calls::new(Limits { all: 1, work: 1, queued: 100, ..LIMITS });
        let _ = arrive(&mut calls, control(9), 1000);
        let _ = arrive(&mut calls, control(0), 0);
        let (mut running, mut turns) = (1000, 0);
        for (call, session) in (1u32..).zip(others.iter().copied().chain([1, 2, 3])) {
            let _ = arrive(&mut calls, control(session), call);
            if let [next] = calls.end(Duration::ZERO, &running)[..] {
                (running, turns) = (next, turns + 1);
                if next == 0 {
                    break;
                }
            }
        }
        prop_assert_eq!((running, turns), (0, 1));
    }
}
