use proptest::prelude::*;

use super::*;

const BOUNDS: InboxBounds = InboxBounds { messages: 8, bytes: 8 * 600 };

fn message(content: &str) -> Arc<Message> {
    Arc::new(Message {
        id: MessageId::new(),
        from: "a".to_owned(),
        to: "b".to_owned(),
        kind: "text".to_owned(),
        content: content.into(),
        at: DateTime::UNIX_EPOCH,
    })
}

fn texts<'m>(items: impl IntoIterator<Item = &'m Arc<Message>>) -> Vec<&'m str> {
    items.into_iter().map(|message| &*message.content).collect()
}

/// The inbox that a journal's records add up to.
fn replay(snapshot: Option<&[u8]>, records: &[Vec<u8>]) -> Inbox {
    let mut inbox = snapshot.map_or_else(Inbox::default, |it| Inbox::unfold(it).expect("readable"));
    for bytes in records {
        inbox.apply(Record::decode(bytes).expect("readable")).expect("it follows");
    }
    inbox
}

#[test]
fn the_bounds_count_what_is_decided_and_a_large_one_is_picked_alone() {
    let (bounds, mut inbox) = (InboxBounds { messages: 2, bytes: 4_000 }, Inbox::default());
    let large = message(&"x".repeat(3_000));
    inbox.room(bounds, &large).expect("room");
    inbox.put(large.clone());
    assert!(inbox.room(bounds, &message("xx")).is_err_and(|full| full.messages == 1));
    inbox.put(message("2"));
    assert!(inbox.room(bounds, &message("3")).is_err());
    assert_eq!(pick(inbox.items(), 9, 10).len(), 1, "one at least");
    assert_eq!(pick(inbox.items(), 9, 99_999).len(), 2);
    assert_eq!(pick(inbox.items(), 1, 99_999), std::slice::from_ref(&large));
    inbox.take(&[large.id, MessageId::new()].into());
    inbox.take(&[large.id].into());
    assert_eq!((texts(inbox.items()), inbox.bytes()), (vec!["2"], ENVELOPE_BYTES + 1));
    inbox.room(bounds, &message("3")).expect("room again");
}

/// As the version before this one wrote them.
#[test]
fn streams_of_before_are_read() {
    let put = "{\"record\":\"put\",\"id\":\"msg_0191d4f0a7b07c3e8f2a5d6b7c8d9e0f\",\"from\":\"a\",\
               \"to\":\"*\",\"kind\":\"text\",\"at\":\"2026-01-02T03:04:05.678Z\"}\n\u{1}two\nlines";
    let taken = "{\"record\":\"taken\",\"ids\":[\"msg_0191d4f0a7b07c3e8f2a5d6b7c8d9e0f\"]}\n";
    let snapshot = [&(put.len() as u32).to_le_bytes(), put.as_bytes()].concat();
    let inbox = replay(Some(&snapshot), &[]);
    assert_eq!(texts(inbox.items()), ["\u{1}two\nlines"]);
    assert_eq!(inbox.fold(), Some(snapshot.clone()), "and written as they were");
    assert!(replay(Some(&snapshot), &[taken.into()]).is_empty());
    assert!(replay(Some(&[]), &[put.into(), taken.into()]).is_empty());
    // A snapshot of before may lack what is recorded as taken behind it.
    assert!(replay(None, &[taken.into()]).is_empty());
    for bytes in [put.as_bytes(), taken.as_bytes()] {
        let record = Record::decode(bytes).expect("readable");
        assert_eq!(record.encode().expect("plain data"), bytes);
    }
    assert!(Inbox::unfold(&snapshot[..snapshot.len() - 1]).is_err(), "cut short");
}

#[derive(Debug, Clone)]
enum Step {
    Put,
    /// All that was decided is written.
    Write,
    Take(usize),
    /// Memory is lost; the journal is read again.
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Put),
        3 => Just(Step::Write),
        2 => (1..5usize).prop_map(Step::Take),
        1 => Just(Step::Crash),
    ]
}

proptest! {
    /// Against a journal and a receiver: only what is durable is delivered, nothing acknowledged is
    /// lost, nothing is delivered after it was decided to be taken, and the order is kept.
    #[test]
    fn nothing_is_lost_and_order_is_kept(steps in proptest::collection::vec(step(), 1..80)) {
        let (mut decided, mut durable) = (Inbox::default(), Inbox::default());
        let (mut journal, mut unwritten) = (Vec::new(), Vec::<Record>::new());
        let (mut sent, mut acknowledged, mut received) = (0u32, Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Put => {
                    let new = message(&sent.to_string());
                    if decided.room(BOUNDS, &new).is_ok() {
                        decided.put(new.clone());
                        unwritten.push(Record::Put(new));
                        sent += 1;
                    } else {
                        prop_assert_eq!(decided.len(), BOUNDS.messages);
                    }
                }
                Step::Write => for record in unwritten.drain(..) {
                    journal.push(record.encode().expect("plain data"));
                    if let Record::Put(message) = &record {
                        acknowledged.push(message.content.clone());
                    }
                    durable.apply(record).expect("it follows");
                },
                Step::Take(limit) => {
                    let there: Vec<_> = decided.deliverable(&durable).cloned().collect();
                    for message in &there {
                        prop_assert!(acknowledged.contains(&message.content), "delivered too early");
                    }
                    let picked = pick(there.iter(), limit, 99_999);
                    let ids: Vec<_> = picked.iter().map(Item::id).collect();
                    decided.take(&ids.iter().copied().collect());
                    received.extend(picked.into_iter().map(|message| message.content.clone()));
                    unwritten.push(Record::Taken(ids));
                }
                Step::Crash => {
                    // Nobody was told of a message that is lost; one that was taken comes again.
                    for record in unwritten.drain(..).rev() {
                        if let Record::Taken(ids) = record {
                            received.truncate(received.len() - ids.len());
                        }
                    }
                    sent = acknowledged.len() as u32;
                    durable = replay(None, &journal);
                    decided = durable.clone();
                }
            }
            let folded = Inbox::unfold(&decided.fold().expect("it is folded")).expect("readable");
            prop_assert_eq!(texts(folded.items()), texts(decided.items()));
            prop_assert_eq!(folded.bytes(), decided.bytes());
        }
        let rest = decided.items().map(|message| message.content.clone());
        let all: Vec<_> = received.into_iter().chain(rest).collect();
        prop_assert_eq!(all, (0..sent).map(|n| n.to_string().into()).collect::<Vec<Arc<str>>>());
    }
}
