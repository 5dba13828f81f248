//! The event bus.

use fail::FailScenario;
use hivekeep_store::{Error, MadeEvent, Options, Seq, Subscription, SubscriptionItem};

use crate::util::{event, hold, opened, stream};

async fn number(subscription: &mut Subscription) -> u64 {
    match subscription.next().await.unwrap() {
        SubscriptionItem::Event(event) => event.seq.get(),
        missed => panic!("{missed:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_past_then_the_present_with_no_gap_and_no_double() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::at(dir.path());
    let journal = opened(&options).await;
    for n in 1..=20 {
        assert_eq!(journal.events().publish(event("e", n)).await.unwrap().get(), n);
    }
    journal.close().await;
    let journal = opened(&options).await;
    let events = journal.events();
    let publisher = {
        let events = events.clone();
        tokio::spawn(async move {
            for n in 21..=300 {
                events.publish(event("e", n)).await.unwrap();
            }
        })
    };
    // Subscribers join while events are published.
    let mut readers = vec![];
    for _ in 0..5 {
        let mut subscription = events.subscribe(Some(Seq::new(5)), 1000);
        readers.push(tokio::spawn(async move {
            for expected in 5..=300 {
                assert_eq!(number(&mut subscription).await, expected);
            }
        }));
        events.publish_later(event("later", 0));
        tokio::task::yield_now().await;
    }
    publisher.await.unwrap();
    for reader in readers {
        reader.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_subscriber_gets_what_comes_with_its_contents() {
    let dir = tempfile::tempdir().unwrap();
    let journal = opened(&Options::at(dir.path())).await;
    let events = journal.events();
    events.publish(event("before", 1)).await.unwrap();
    let mut subscription = events.subscribe(None, 10);
    let name = stream("ev/a");
    journal
        .append_and_publish(&name, vec![vec![]], vec![event("a", 7), event("b", 8)])
        .await
        .unwrap();
    for (seq, kind, data) in [(2, "a", 7), (3, "b", 8)] {
        let SubscriptionItem::Event(got) = subscription.next().await.unwrap() else { panic!() };
        assert_eq!((got.seq.get(), got.kind.as_str(), &got.data), (seq, kind, &data.into()));
        let page = events.read(Seq::new(seq), 1).unwrap();
        assert_eq!(page.events, [(*got).clone()]);
    }
    journal.close().await;
    assert!(matches!(subscription.next().await, Err(Error::Closed)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_subscriber_learns_what_it_missed_and_can_read_it() {
    let dir = tempfile::tempdir().unwrap();
    for (buffered, capacity) in [(4, 100), (100, 4)] {
        let options = Options { events_buffered: buffered, ..Options::at(dir.path()) };
        let journal = opened(&options).await;
        let events = journal.events();
        let start = events.last().get();
        let mut slow = events.subscribe(None, capacity);
        for n in 0..20 {
            events.publish(event("e", n)).await.unwrap();
        }
        // The publisher never waited; the last four are still there.
        let missed =
            SubscriptionItem::Missed { first: Seq::new(start + 1), last: Seq::new(start + 16) };
        assert_eq!(slow.next().await.unwrap(), missed);
        for n in 17..=20 {
            assert_eq!(number(&mut slow).await, start + n);
        }
        let page = events.read(Seq::new(start + 1), 16).unwrap();
        assert_eq!((page.missed, page.events.len()), (None, 16));
        events.publish(event("e", 99)).await.unwrap();
        assert_eq!(number(&mut slow).await, start + 21);
        journal.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn old_events_are_trimmed_and_the_numbers_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { events_kept: 20, ..Options::at(dir.path()) };
    let journal = opened(&options).await;
    for n in 0..57 {
        journal.events().publish(event("e", n)).await.unwrap();
    }
    journal.close().await;
    let journal = opened(&options).await;
    let events = journal.events();
    let page = events.read(Seq::FIRST, 1000).unwrap();
    let oldest = page.events[0].seq;
    assert_eq!(page.missed, Some((Seq::FIRST, oldest.prev())));
    assert!((20..=22).contains(&page.events.len()), "{}", page.events.len());
    assert_eq!(page.events.last().unwrap().seq.get(), 57);
    let mut subscription = events.subscribe(Some(Seq::new(3)), 5);
    let missed = SubscriptionItem::Missed { first: Seq::new(3), last: oldest.prev() };
    assert_eq!(subscription.next().await.unwrap(), missed);
    for expected in oldest.get()..=57 {
        assert_eq!(number(&mut subscription).await, expected);
    }
    assert_eq!(events.publish(event("e", 58)).await.unwrap().get(), 58);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_find_the_queue_full_are_counted_and_reported() {
    let scenario = FailScenario::setup();
    let dir = tempfile::tempdir().unwrap();
    let options = Options { queue_records: 2, ..Options::at(dir.path()) };
    let journal = opened(&options).await;
    let events = journal.events();
    let mut subscription = events.subscribe(None, 100);
    // Two requests fit the queue behind the blocked one.
    let blocked = hold(&journal).await;
    let queued = (0..10).filter(|n| events.publish_later(event("burst", *n))).count();
    assert_eq!(queued, 2);
    blocked.release().await.unwrap();
    let mut kinds = vec![];
    for _ in 0..3 {
        let SubscriptionItem::Event(event) = subscription.next().await.unwrap() else { panic!() };
        kinds.push(event.kind.clone());
        if event.kind == "events.lost" {
            assert_eq!(event.data["count"], 8);
        }
    }
    assert_eq!(kinds, ["burst", "burst", "events.lost"]);
    assert_eq!(journal.stats().events_lost, 8);
    scenario.teardown();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_writer_makes_is_read_and_delivered_like_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let journal = opened(&Options::at(dir.path())).await;
    let events = journal.events();
    let made = |n: u64| MadeEvent { kind: "made", subject: format!("s{n}"), data: [n, n + 1] };
    // The first has no subscriber, the second one.
    assert!(events.publish_made_later(64, move || made(1)));
    events.publish(event("between", 2)).await.unwrap();
    let mut past = events.subscribe(Some(Seq::FIRST), 10);
    assert!(events.publish_made_later(64, move || made(3)));
    for (seq, n) in [(1, 1), (3, 3)] {
        let SubscriptionItem::Event(got) = past.next().await.unwrap() else { panic!() };
        assert_eq!((got.seq.get(), got.kind.as_str()), (seq, "made"));
        assert_eq!((&*got.subject, &got.data), (&*format!("s{n}"), &serde_json::json!([n, n + 1])));
        assert_eq!(events.read(Seq::new(seq), 1).unwrap().events, [(*got).clone()]);
        if n == 1 {
            assert_eq!(number(&mut past).await, 2);
        }
    }
    journal.close().await;
}
