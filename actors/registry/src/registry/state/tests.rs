use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits { all: 3, work: 2, queued: 4, wait: Duration::from_secs(10) };

type Calls = Admission<u32, u8, u32>;

fn work(session: u8) -> Flow<u8> {
    Flow { session, lane: Lane::Work }
}

fn control(session: u8) -> Flow<u8> {
    Flow { session, lane: Lane::Control }
}

fn arrive(calls: &mut Calls, flow: Flow<u8>, call: u32) -> Arrival<u32> {
    calls.arrive(Duration::ZERO, "t", flow, call, call)
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
    assert!(matches!(arrive(&mut calls, control(0), 7), Arrival::Full(7, _)));
    assert_eq!(load(&calls), Some((3, 4)));
    assert_eq!(calls.end(Duration::ZERO, &1), Some(3), "the oldest goes next");
}

#[test]
fn work_leaves_the_reserve_to_control() {
    let mut calls = Calls::new(LIMITS);
    assert_eq!(arrive(&mut calls, work(0), 0), Arrival::Go(0));
    assert_eq!(arrive(&mut calls, work(0), 1), Arrival::Go(1));
    assert_eq!(arrive(&mut calls, work(0), 2), Arrival::Queued);
    assert_eq!(arrive(&mut calls, control(0), 3), Arrival::Go(3), "looking works beside commands");
    assert_eq!(calls.end(Duration::ZERO, &3), None, "the reserve is not for work");
    assert_eq!(calls.end(Duration::ZERO, &0), Some(2));
}

#[test]
fn sessions_take_turns() {
    let mut calls = Calls::new(Limits { all: 1, work: 1, ..LIMITS });
    assert_eq!(arrive(&mut calls, control(0), 0), Arrival::Go(0));
    for (session, call) in [(1, 10), (1, 11), (1, 12), (2, 20)] {
        assert_eq!(arrive(&mut calls, control(session), call), Arrival::Queued);
    }
    let order: Vec<_> =
        [0, 10, 20, 11].iter().filter_map(|call| calls.end(Duration::ZERO, call)).collect();
    assert_eq!(order, [10, 20, 11, 12]);
}

#[test]
fn a_caller_that_leaves_takes_its_call_out_of_the_queue() {
    let mut calls = Calls::new(Limits { all: 1, work: 1, ..LIMITS });
    let _ = arrive(&mut calls, control(0), 0);
    let _ = arrive(&mut calls, control(0), 1);
    assert_eq!(calls.leave(&1), Some(1));
    assert_eq!(calls.leave(&0), None, "a running call is not taken out");
    assert_eq!(load(&calls), Some((1, 0)));
    assert_eq!(calls.end(Duration::ZERO, &0), None);
    assert_eq!(load(&calls), None, "an idle target is forgotten");
}

#[test]
fn who_waits_too_long_is_taken_out() {
    let mut calls = Calls::new(Limits { all: 1, work: 1, ..LIMITS });
    let _ = arrive(&mut calls, control(0), 0);
    let _ = calls.arrive(Duration::from_secs(1), "t", control(0), 1, 1);
    let _ = calls.arrive(Duration::from_secs(5), "t", control(1), 2, 2);
    assert_eq!(calls.next_expiry(), Some(Duration::from_secs(11)));
    let late: Vec<_> =
        calls.expire(Duration::from_secs(11)).into_iter().map(|late| late.0).collect();
    assert_eq!(late, [1]);
    assert_eq!(calls.next_expiry(), Some(Duration::from_secs(15)));
    assert_eq!(calls.end(Duration::from_secs(12), &0), Some(2));
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
    assert_eq!(calls.end(Duration::ZERO, &99), None);
    let _ = arrive(&mut calls, control(0), 0);
    assert_eq!(calls.end(Duration::ZERO, &99), None);
    assert_eq!(load(&calls), Some((1, 0)));
}

#[derive(Debug, Clone)]
enum Step {
    Arrive { target: u8, session: u8, work: bool },
    End(prop::sample::Index),
    Leave(prop::sample::Index),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u8..2, 0u8..3, any::<bool>())
            .prop_map(|(target, session, work)| Step::Arrive { target, session, work }),
        4 => any::<prop::sample::Index>().prop_map(Step::End),
        2 => any::<prop::sample::Index>().prop_map(Step::Leave),
        1 => (0u64..6).prop_map(Step::Wait),
    ]
}

/// What the machine should hold, kept beside it.
#[derive(Default)]
struct Model {
    running: Vec<(u32, u8, bool)>,
    waiting: Vec<(u32, u8, bool, Duration)>,
}

impl Model {
    fn admit(&mut self, call: u32) {
        let at = self.waiting.iter().position(|w| w.0 == call).expect("only who waits is admitted");
        let (call, target, work, _) = self.waiting.remove(at);
        self.running.push((call, target, work));
    }

    fn check(&self, calls: &Calls) -> Result<(), TestCaseError> {
        for target in 0..2u8 {
            let running: Vec<_> = self.running.iter().filter(|call| call.1 == target).collect();
            let waiting: Vec<_> = self.waiting.iter().filter(|call| call.1 == target).collect();
            let in_work = running.iter().filter(|call| call.2).count();
            prop_assert!(running.len() <= 3 && in_work <= 2 && waiting.len() <= 4);
            let key = target.to_string();
            let told = calls.loads().find(|(other, _)| *other == key);
            let told = told.map_or((0, 0), |(_, load)| (load.in_flight, load.queued));
            prop_assert_eq!(told, (running.len() as u32, waiting.len() as u32));
            let idle_slot = running.len() < 3;
            prop_assert!(!(idle_slot && waiting.iter().any(|call| !call.2)), "a slot lies idle");
            prop_assert!(!(idle_slot && in_work < 2 && !waiting.is_empty()), "a slot lies idle");
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn never_too_many_nobody_starves_no_slot_leaks(steps in prop::collection::vec(step(), 1..120)) {
        let (mut calls, mut model, mut now) = (Calls::new(LIMITS), Model::default(), Duration::ZERO);
        for (call, step) in (0u32..).zip(steps) {
            match step {
                Step::Arrive { target, session, work: heavy } => {
                    let flow = if heavy { work(session) } else { control(session) };
                    match calls.arrive(now, &target.to_string(), flow, call, call) {
                        Arrival::Go(cargo) => {
                            prop_assert_eq!(cargo, call);
                            model.running.push((call, target, heavy));
                        }
                        Arrival::Queued => model.waiting.push((call, target, heavy, now)),
                        Arrival::Full(..) => {
                            let waiting = model.waiting.iter().filter(|w| w.1 == target).count();
                            prop_assert_eq!(waiting, 4, "refused with room to wait");
                        }
                    }
                }
                Step::End(_) | Step::Leave(_) if model.running.is_empty() && model.waiting.is_empty() => {}
                Step::End(which) if !model.running.is_empty() => {
                    let (call, ..) = model.running.remove(which.index(model.running.len()));
                    if let Some(next) = calls.end(now, &call) {
                        model.admit(next);
                    }
                }
                Step::Leave(which) if !model.waiting.is_empty() => {
                    let (call, ..) = model.waiting.remove(which.index(model.waiting.len()));
                    prop_assert_eq!(calls.leave(&call), Some(call));
                }
                Step::Wait(secs) => {
                    now += Duration::from_secs(secs);
                    let late: HashSet<_> = calls.expire(now).into_iter().map(|late| late.0).collect();
                    let due = |waiting: &(u32, u8, bool, Duration)| waiting.3 + LIMITS.wait <= now;
                    let expected: HashSet<_> =
                        model.waiting.iter().filter(|w| due(w)).map(|w| w.0).collect();
                    prop_assert_eq!(late, expected);
                    model.waiting.retain(|w| !due(w));
                }
                Step::End(_) | Step::Leave(_) => {}
            }
            model.check(&calls)?;
        }
        // Everything that runs ends; everything that waits gets its turn.
        while let Some((call, ..)) = model.running.pop() {
            if let Some(next) = calls.end(now, &call) {
                model.admit(next);
            }
        }
        prop_assert!(model.waiting.is_empty(), "starved: {:?}", model.waiting);
        prop_assert_eq!(calls.loads().count(), 0);
        prop_assert!(calls.places.is_empty());
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
            if let Some(next) = calls.end(Duration::ZERO, &running) {
                (running, turns) = (next, turns + 1);
                if next == 0 {
                    break;
                }
            }
        }
        prop_assert_eq!((running, turns), (0, 1));
    }
}
