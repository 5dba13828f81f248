use proptest::prelude::*;

use super::*;
use crate::mailbox::records;

const BOUNDS: Bounds = Bounds { messages: 8, bytes: 8 * 600 };

fn message(content: &str) -> Message {
    Message {
        id: MessageId::new(),
        from: "a".to_owned(),
        to: "b".to_owned(),
        kind: "text".to_owned(),
        content: content.into(),
        at: DateTime::UNIX_EPOCH,
    }
}

fn put(book: &mut Book, content: &str) -> MessageId {
    let message = message(content);
    let id = message.id;
    book.admit(&message).expect("room");
    book.arrive(message);
    id
}

fn said(lent: &[Lent]) -> Vec<&str> {
    lent.iter().map(|lent| &*lent.message.content).collect()
}

#[test]
fn what_comes_back_is_handed_out_first_and_says_so() {
    let mut book = Book::new(BOUNDS, 0);
    put(&mut book, "1");
    put(&mut book, "2");
    let (loan, lent) = book.lend(1, 9_999).expect("some");
    assert_eq!((said(&lent), lent[0].again), (vec!["1"], false));
    assert!(book.on_loan());
    assert!(book.settle(loan, false).is_empty());
    assert!(book.settle(loan, true).is_empty(), "settled before");
    let (loan, lent) = book.lend(9, 9_999).expect("some");
    assert_eq!(said(&lent), ["1", "2"]);
    assert_eq!([lent[0].again, lent[1].again], [true, false]);
    assert_eq!(book.settle(loan, true).len(), 2);
    assert!(book.lend(9, 9_999).is_none() && book.is_empty());
}

#[test]
fn the_bounds_count_what_is_being_written_and_a_large_one_is_handed_out_alone() {
    let mut book = Book::new(Bounds { messages: 2, bytes: 4_000 }, 0);
    let large = message(&"x".repeat(3_000));
    book.admit(&large).expect("room");
    assert!(book.admit(&message("xx")).is_err_and(|full| full.messages == 1));
    book.arrive(large);
    let (loan, lent) = book.lend(9, 10).expect("one at least");
    assert_eq!(lent.len(), 1);
    book.settle(loan, true);
    put(&mut book, "1");
    put(&mut book, "2");
    assert!(book.admit(&message("3")).is_err());
}

#[test]
fn what_is_confirmed_is_gone_once() {
    let mut book = Book::new(BOUNDS, 0);
    let (one, two) = (put(&mut book, "1"), put(&mut book, "2"));
    assert_eq!(book.confirm(&[two, MessageId::new()].into()), [two]);
    assert_eq!(book.confirm(&[two].into()), []);
    assert_eq!(book.held().map(|message| message.id).collect::<Vec<_>>(), [one]);
}

#[derive(Debug, Clone)]
enum Step {
    Put,
    Lend(usize),
    Settle(bool),
    Confirm(prop::sample::Index),
    /// What is in memory is lost; the journal is read again.
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Put),
        3 => (1..5usize).prop_map(Step::Lend),
        3 => any::<bool>().prop_map(Step::Settle),
        1 => any::<prop::sample::Index>().prop_map(Step::Confirm),
        1 => Just(Step::Crash),
    ]
}

proptest! {
    /// Against a journal and a receiver: nothing acknowledged is lost, nothing is handed out
    /// again after it was recorded as taken, a repeat says so, and the order is kept.
    #[test]
    fn nothing_is_lost_and_order_is_kept(steps in proptest::collection::vec(step(), 1..80)) {
        let mut book = Book::new(BOUNDS, 0);
        let (mut journal, mut sent, mut received) = (Vec::new(), 0u32, Vec::new());
        let (mut loan, mut seen) = (None, BTreeSet::new());
        for step in steps {
            match step {
                Step::Put => {
                    let new = message(&sent.to_string());
                    if book.admit(&new).is_ok() {
                        journal.push(records::put(&new));
                        book.arrive(new);
                        sent += 1;
                    } else {
                        prop_assert_eq!(book.len(), BOUNDS.messages);
                    }
                }
                Step::Lend(limit) => if !book.on_loan() && let Some((number, lent)) = book.lend(limit, 99_999) {
                    for one in &lent {
                        prop_assert!(one.again || !seen.contains(&one.message.id), "an unmarked repeat");
                    }
                    seen.extend(lent.iter().map(|lent| lent.message.id));
                    loan = Some((number, lent));
                },
                Step::Settle(taken) => if let Some((number, lent)) = loan.take() {
                    let gone = book.settle(number, taken);
                    prop_assert_eq!(gone.is_empty(), !taken);
                    if taken {
                        received.extend(lent.into_iter().map(|lent| lent.message.content));
                        journal.push(records::taken(&gone));
                    }
                },
                Step::Confirm(which) => {
                    let first = book.held().next().map(|message| (message.id, message.content.clone()));
                    if let Some((id, content)) = first.filter(|_| loan.is_none() && which.index(2) == 0) {
                        prop_assert_eq!(book.confirm(&[id].into()), [id]);
                        received.push(content);
                        journal.push(records::taken(&[id]));
                    }
                }
                Step::Crash => {
                    loan = None;
                    book = Book::new(BOUNDS, 0);
                    book.restore(records::replay(None, &journal).expect("readable"));
                }
            }
            let held: Vec<_> = book.held().cloned().collect();
            let folded = records::replay(Some(&records::snapshot(&held)), &[]).expect("readable");
            prop_assert_eq!(folded, held);
        }
        let rest: Vec<_> = book.held().map(|message| message.content.clone()).collect();
        let all: Vec<_> = received.into_iter().chain(rest).collect();
        prop_assert_eq!(all, (0..sent).map(|n| n.to_string().into()).collect::<Vec<Arc<str>>>());
    }
}
