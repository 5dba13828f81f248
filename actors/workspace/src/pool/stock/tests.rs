use hivekeep_machine::Isolation;
use proptest::prelude::*;

use super::*;

fn spec() -> WorkspaceSpec {
    WorkspaceSpec {
        image: "base".into(),
        isolation: Isolation::Vm,
        vcpus: 1,
        memory_mb: 256,
        disk_gb: 1,
    }
}

fn made_of(word: &str) -> MadeOf {
    MadeOf(word.to_owned())
}

fn stock(wanted: usize) -> Stock {
    Stock::new([(spec(), wanted, None)])
}

/// Looks, makes a template and fills the shelf.
fn filled(wanted: usize, now: Instant) -> (Stock, WorkspaceId) {
    let (mut stock, template) = (stock(wanted), WorkspaceId::new());
    assert_eq!(stock.orders(now), [Order::Look(0)]);
    assert_eq!(stock.orders(now), [], "each order is given once");
    stock.done(0, Outcome::Looked(made_of("a")), now);
    assert_eq!(stock.orders(now), [Order::Template(0)]);
    stock.done(0, Outcome::Template(template, made_of("a")), now);
    for _ in 0..wanted {
        assert_eq!(stock.orders(now), [Order::Member(0, Some(template))]);
        stock.done(0, Outcome::Member(WorkspaceId::new(), made_of("a")), now);
    }
    assert_eq!(stock.orders(now), []);
    (stock, template)
}

#[test]
fn one_is_made_at_a_time_until_there_are_enough() {
    let now = Instant::now();
    let (mut stock, template) = filled(2, now);
    assert_eq!(stock.shelves[0].ready(), 2);
    let first = stock.shelves[0].members[0].id;
    assert_eq!(stock.take(&spec(), &made_of("a")), Some(first), "the oldest");
    assert_eq!(stock.orders(now), [Order::Member(0, Some(template))]);
    assert_eq!(stock.orders(now), []);
    assert_eq!(stock.take(&WorkspaceSpec { vcpus: 2, ..spec() }, &made_of("a")), None);
}

#[test]
fn what_is_out_of_date_goes_and_a_new_template_comes() {
    let now = Instant::now();
    let (mut stock, template) = filled(1, now);
    let old = stock.shelves[0].members[0].id;
    assert_eq!(stock.take(&spec(), &made_of("b")), None);
    let orders = stock.orders(now);
    assert_eq!(orders, [Order::Discard(old), Order::Discard(template), Order::Template(0)]);
    // What cannot be removed is tried again, what is gone is not.
    stock.discarded(old, false);
    stock.discarded(template, true);
    assert_eq!(stock.orders(now), [Order::Discard(old)]);
}

#[test]
fn failures_are_spaced_out_and_a_template_that_yields_nothing_is_given_up() {
    let begun = Instant::now();
    let (mut stock, template) = filled(1, begun);
    stock.take(&spec(), &made_of("a")).expect("one is ready");
    let mut now = begun;
    for wait in [1, 2, 4] {
        assert_eq!(stock.orders(now), [Order::Member(0, Some(template))]);
        stock.done(0, Outcome::Failed("no".into()), now);
        assert_eq!(stock.due(now), Some(Duration::from_secs(wait)));
        let early = now + Duration::from_secs(wait) - Duration::from_millis(1);
        let makes = |order: &Order| matches!(order, Order::Member(..) | Order::Template(_));
        assert!(!stock.orders(early).iter().any(makes));
        now += Duration::from_secs(wait);
    }
    assert_eq!(stock.orders(now), [Order::Template(0)]);
    for _ in 0..40 {
        stock.done(0, Outcome::Failed("no".into()), now);
        assert!(stock.due(now).expect("it is tried again") <= LONGEST_WAIT);
        now += LONGEST_WAIT;
        stock.orders(now);
    }
    stock.done(0, Outcome::Template(template, made_of("a")), now);
    assert!(stock.shelves[0].failure.is_none());
}

#[test]
fn without_copies_machines_boot_until_something_changes() {
    let now = Instant::now();
    let mut stock = stock(1);
    stock.orders(now);
    stock.done(0, Outcome::Looked(made_of("a")), now);
    stock.orders(now);
    stock.done(0, Outcome::NoCopies("no space".into()), now);
    assert_eq!(stock.orders(now), [Order::Member(0, None)]);
    stock.done(0, Outcome::Looked(made_of("b")), now);
    assert_eq!(stock.orders(now), [Order::Template(0)]);
    let mut never = Stock::new([(spec(), 1, Some("this carrier cannot be saved".into()))]);
    never.orders(now);
    for word in ["a", "b"] {
        never.done(0, Outcome::Looked(made_of(word)), now);
        assert_eq!(never.orders(now), [Order::Member(0, None)]);
    }
}

#[test]
fn what_an_earlier_daemon_left_is_taken_up_or_goes() {
    let now = Instant::now();
    let mut stock = stock(1);
    let found = |role| Pooled { role, made_of: made_of("a") };
    let ids: Vec<_> = (0..6).map(|_| WorkspaceId::new()).collect();
    let other = WorkspaceSpec { memory_mb: 1, ..spec() };
    stock.found(ids[0], &spec(), &found(Role::Template), Phase::Stopped);
    stock.found(ids[1], &spec(), &found(Role::Template), Phase::Stopped);
    stock.found(ids[2], &other, &found(Role::Member), Phase::Running);
    stock.found(ids[3], &spec(), &found(Role::Member), Phase::Stopped);
    stock.found(ids[4], &spec(), &found(Role::Member), Phase::Starting);
    assert_eq!(
        stock.orders(now),
        [Order::Discard(ids[1]), Order::Discard(ids[2]), Order::Discard(ids[3]), Order::Look(0)]
    );
    assert_eq!(stock.take(&spec(), &made_of("a")), None, "it is still being taken up");
    stock.phase(ids[4], Phase::Running);
    stock.done(0, Outcome::Looked(made_of("a")), now);
    assert_eq!(stock.orders(now), []);
    assert_eq!(stock.take(&spec(), &made_of("a")), Some(ids[4]));
    // The template was perhaps not finished.
    assert_eq!(stock.orders(now), [Order::Finish(0, ids[0])]);
    stock.done(0, Outcome::Unfit(ids[0], "no snapshot".into()), now);
    assert_eq!(stock.orders(now), [Order::Discard(ids[0])]);
    let now = now + FIRST_WAIT;
    assert_eq!(stock.orders(now), [Order::Template(0)]);
}

#[test]
fn an_eviction_takes_from_the_fullest_class_and_a_template_last() {
    let now = Instant::now();
    let (mut stock, template) = filled(1, now);
    let member = stock.shelves[0].members[0].id;
    assert_eq!(stock.evict(), Some(member));
    assert_eq!(stock.evict(), Some(template));
    assert_eq!(stock.evict(), None);
    stock.halt();
    assert_eq!((stock.orders(now), stock.doubt()), (vec![], vec![]));
}

proptest! {
    /// Whatever happens, no machine is given twice or after it was to be discarded, none is
    /// discarded after it was given, and there are never more than wanted.
    #[test]
    fn each_machine_has_one_fate(steps in proptest::collection::vec(0u8..9, 1..200)) {
        let mut now = Instant::now();
        let mut stock = stock(3);
        let (mut given, mut discarded) = (BTreeSet::new(), BTreeSet::new());
        let mut word = "a";
        for step in steps {
            now += Duration::from_secs(5);
            for order in stock.orders(now) {
                let id = WorkspaceId::new();
                match order {
                    Order::Discard(id) => {
                        prop_assert!(!given.contains(&id));
                        discarded.insert(id);
                        stock.discarded(id, true);
                    }
                    Order::Look(_) => stock.done(0, Outcome::Looked(made_of(word)), now),
                    _ if step == 0 => stock.done(0, Outcome::Failed("no".into()), now),
                    Order::Template(_) => stock.done(0, Outcome::Template(id, made_of(word)), now),
                    Order::Finish(_, id) => stock.done(0, Outcome::Unfit(id, "no".into()), now),
                    Order::Member(..) => stock.done(0, Outcome::Member(id, made_of(word)), now),
                }
            }
            prop_assert!(stock.shelves[0].members.len() <= 3);
            match step {
                1..=4 => {
                    if let Some(id) = stock.take(&spec(), &made_of(word)) {
                        prop_assert!(given.insert(id) && !discarded.contains(&id));
                    }
                }
                5 => word = if word == "a" { "b" } else { "a" },
                6 => {
                    if let Some(member) = stock.shelves[0].members.first() {
                        stock.phase(member.id, Phase::Crashed);
                    }
                }
                7 => {
                    if let Some(id) = stock.evict() {
                        prop_assert!(!given.contains(&id) && discarded.insert(id));
                        stock.discarded(id, true);
                    }
                }
                8 => drop(stock.doubt().into_iter().map(|_| {
                    stock.done(0, Outcome::Looked(made_of(word)), now);
                }).count()),
                _ => {}
            }
        }
    }
}
