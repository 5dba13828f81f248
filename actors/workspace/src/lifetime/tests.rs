use proptest::prelude::*;

use super::*;

fn at(secs: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000 + secs, 0).expect("a time")
}

fn until(secs: i64) -> Lifetime {
    Lifetime { ends_at: at(secs), at_end: AtEnd::Stop, over: false }
}

fn change(end: EndChange, at_end: Option<AtEnd>) -> LifetimeChange {
    LifetimeChange { end, at_end }
}

#[test]
fn an_end_is_due_at_its_time_and_stays_so_when_the_clock_goes_back() {
    let running = LifetimeRequest { secs: 60, at_end: AtEnd::Destroy }.from(at(0));
    assert!(!running.is_due(at(59)) && running.is_due(at(60)) && !running.is_due(at(-3600)));
    assert!(Lifetime { over: true, ..running }.is_due(at(-3600)));
}

#[test]
fn at_least_never_shortens_and_never_ends_what_has_no_end() {
    let extended = |secs, before| change(EndChange::NotBefore(at(secs)), None).applied_to(before);
    assert_eq!(extended(5, Some(until(10))), Some(until(10)));
    assert_eq!(extended(15, Some(until(10))), Some(until(15)));
    assert_eq!(extended(15, None), None);
    // One that was over runs again.
    assert_eq!(extended(15, Some(Lifetime { over: true, ..until(10) })), Some(until(15)));
}

#[test]
fn what_is_left_out_stays() {
    let paused = Lifetime { at_end: AtEnd::Pause, ..until(10) };
    assert_eq!(
        change(EndChange::At(at(3)), None).applied_to(Some(paused)).map(|it| it.at_end),
        Some(AtEnd::Pause)
    );
    assert_eq!(
        change(EndChange::Keep, Some(AtEnd::Pause)).applied_to(Some(until(10))),
        Some(paused)
    );
    assert_eq!(change(EndChange::Keep, None).applied_to(Some(paused)), Some(paused));
    assert_eq!(change(EndChange::Never, Some(AtEnd::Pause)).applied_to(Some(paused)), None);
    assert_eq!(change(EndChange::At(at(3)), None).applied_to(None), Some(until(3)));
}

#[test]
fn an_end_needs_a_time() {
    assert_eq!(LifetimeRequest::of(None, None).ok(), Some(None));
    assert_eq!(LifetimeRequest::of(None, Some(AtEnd::Stop)).unwrap_err().code, "invalid_input");
    let request = LifetimeRequest { secs: 9, at_end: AtEnd::Stop };
    assert_eq!(LifetimeRequest::of(Some(9), None).ok(), Some(Some(request)));
}

#[test]
fn labels_are_bounded() {
    let one =
        |name: &str, value: &str| WorkspaceLabels::from([(name.to_owned(), value.to_owned())]);
    assert!(check_labels(&one("", "x")).is_err());
    assert!(check_labels(&one(&"n".repeat(128), &"v".repeat(1024))).is_ok());
    assert!(check_labels(&one(&"n".repeat(129), "")).is_err());
    assert!(check_labels(&one("n", &"v".repeat(1025))).is_err());
    let many = |n: u32| (0..n).map(|n| (n.to_string(), String::new())).collect::<WorkspaceLabels>();
    assert!(check_labels(&many(64)).is_ok() && check_labels(&many(65)).is_err());
}

proptest! {
    /// In whatever order two extensions are recorded, the later end holds.
    #[test]
    fn extensions_commute(first in -100i64..100, second in -100i64..100) {
        let extend = |secs| change(EndChange::NotBefore(at(secs)), None);
        let there = extend(second).applied_to(extend(first).applied_to(Some(until(0))));
        let back = extend(first).applied_to(extend(second).applied_to(Some(until(0))));
        prop_assert_eq!(there, back);
        prop_assert_eq!(there, Some(until(first.max(second).max(0))));
    }
}
