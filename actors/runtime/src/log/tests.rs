//! Logs over a real journal.

use hivekeep_kernel::ToolError;
use hivekeep_store::Options;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;

/// Sum that may not go below zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Account {
    sum: u64,
    changes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
enum Record {
    Opened { sum: u64 },
    Put { amount: u64 },
    Taken { amount: u64 },
}

impl Sourced for Account {
    const KIND: &'static str = "account";
    const FOLD_EVERY: usize = 7;
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        match record {
            Record::Opened { sum } => Ok(Self { sum, changes: 0 }),
            other => Err(other),
        }
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        let sum = match record {
            Record::Put { amount } => self.sum.checked_add(amount),
            Record::Taken { amount } => self.sum.checked_sub(amount),
            Record::Opened { .. } => None,
        };
        self.sum = sum.ok_or(record)?;
        self.changes += 1;
        Ok(())
    }

    fn fold(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(snapshot).map_err(|error| error.to_string())
    }
}

/// Texts, which clones share.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Texts(Vec<Arc<String>>);

impl Sourced for Texts {
    const KIND: &'static str = "texts";
    const SHARED: bool = true;
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        Ok(Self(vec![Arc::new(format!("{record:?}"))]))
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        self.0.push(Arc::new(format!("{record:?}")));
        Ok(())
    }
}

fn journal(folder: &std::path::Path) -> Journal {
    Journal::open(Options::at(folder)).expect("it opens").0
}

fn id() -> StreamId {
    stream::<Account>("a").expect("a name")
}

/// Takes an amount that the sum covers, and no more.
async fn take(log: &Log<Account>, amount: u64) -> Result<(), ToolError> {
    let written = log.decide(|account| match account {
        Some(account) if account.sum >= amount => Ok(Decision::record(Record::Taken { amount })),
        _ => Err(ToolError::invalid("not enough")),
    })?;
    Ok(written.await?)
}

async fn note(log: &Log<Account>, record: Record) {
    let written = log.decide::<LogError>(|_| Ok(Decision::record(record))).expect("it is open");
    written.await.expect("it is written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn decisions_side_by_side_never_contradict_each_other_and_survive_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = Log::<Account>::open(journal(folder.path()), id()).await.expect("it opens");
    assert_eq!(log.state(), None);
    note(&log, Record::Opened { sum: 100 }).await;
    // Two hundred want one each, of a hundred.
    let all = (0..200).map(|_| {
        let log = log.clone();
        tokio::spawn(async move { take(&log, 1).await.is_ok() })
    });
    let taken = futures::future::join_all(all).await;
    assert_eq!(taken.into_iter().filter(|taken| *taken.as_ref().expect("no panic")).count(), 100);
    let durable = log.state().expect("it has begun");
    assert_eq!(durable, Account { sum: 0, changes: 100 });
    let journal = log.0.journal.clone();
    assert!(journal.replay(&id()).expect("readable").records.len() < 7 + 64, "it was folded");

    drop(log);
    journal.close().await;
    let again = Log::<Account>::open(self::journal(folder.path()), id()).await.expect("it opens");
    assert_eq!(again.state(), Some(durable));
}

#[tokio::test]
async fn a_state_whose_clones_share_is_in_memory_once_when_all_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let stream = stream::<Texts>("a").expect("a name");
    let log = Log::<Texts>::open(journal(folder.path()), stream.clone()).await.expect("it opens");
    let put = |amount| {
        let record = Decision::record(Record::Put { amount });
        log.decide::<LogError>(|_| Ok(record)).expect("it is open")
    };
    let (first, second) = (put(1), put(2));
    assert_eq!(
        log.views(|decided, durable| (decided.map(|it| it.0.len()), durable.cloned())),
        (Some(2), None)
    );
    futures::future::try_join(first, second).await.expect("written");
    let third = put(3);
    assert_eq!(log.state().map(|it| it.0.len()), Some(2), "what is not written is not seen");
    third.await.expect("written");
    let texts = |state: Option<&Texts>| state.map(|it| it.0.clone()).unwrap_or_default();
    let (decided, durable) = log.views(|decided, durable| (texts(decided), texts(durable)));
    assert_eq!((decided.len(), &decided), (3, &durable));
    assert!(std::iter::zip(&decided, &durable).all(|(one, other)| Arc::ptr_eq(one, other)));
    let journal = log.0.journal.clone();
    journal.close().await;
    let again = Log::<Texts>::open(self::journal(folder.path()), stream).await.expect("it opens");
    assert_eq!(again.state(), log.state());
}

#[tokio::test]
async fn nothing_is_seen_before_it_is_durable_and_nothing_decided_after_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    let log = Log::<Account>::open(journal.clone(), id()).await.expect("it opens");
    note(&log, Record::Opened { sum: 3 }).await;
    let written = log.decide::<LogError>(|_| Ok(Decision::record(Record::Put { amount: 4 })));
    assert_eq!(log.state().expect("it has begun").sum, 3, "it is decided, and not durable");
    written.expect("it is open").await.expect("it is written");
    assert_eq!(log.state().expect("it has begun").sum, 7);

    log.forget().await.expect("it is forgotten");
    assert_eq!(log.state(), None);
    assert_eq!(take(&log, 1).await.expect_err("it has ended").code, "journal_failed");
    assert!(load_all::<Account>(&journal).expect("readable").loaded.is_empty());

    let log = Log::<Account>::open(journal.clone(), id()).await.expect("it opens anew");
    note(&log, Record::Opened { sum: 1 }).await;
    journal.close().await;
    let lost = log.decide::<LogError>(|_| Ok(Decision::record(Record::Put { amount: 1 })));
    lost.expect("nobody knows yet").await.expect_err("nobody writes any more");
    assert_eq!(log.state(), Some(Account { sum: 1, changes: 0 }));
    assert!(log.ended().is_some(), "only the journal knows what is durable");
}

#[tokio::test]
async fn one_that_is_refused_leaves_the_log_to_the_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = Journal::open(Options { max_record_kb: 1, ..Options::at(folder.path()) });
    let journal = journal.expect("it opens").0;
    let log = Log::<Account>::open(journal.clone(), id()).await.expect("it opens");
    note(&log, Record::Opened { sum: 1 }).await;
    let event = |text: String| NewEvent {
        kind: "account.put".to_owned(),
        subject: "a".to_owned(),
        data: text.into(),
    };
    let put = Record::Put { amount: 1 };
    let large = Decision::record(put.clone()).event(event("x".repeat(2048)));
    let refused = log.decide::<ToolError>(|_| Ok(large)).err().expect("it is too large");
    assert_eq!(refused.code, "too_large");
    // The second does not follow, so the first is not decided either.
    let both = Decision::record(put.clone()).and(Record::Taken { amount: 9 });
    let refused = log.decide::<ToolError>(|_| Ok(both)).err().expect("it does not follow");
    assert_eq!(refused.code, "internal");
    let small = Decision::record(put.clone()).event(event("x".to_owned()));
    let written = log.decide::<LogError>(|_| Ok(small)).expect("nobody ended the log");
    written.await.expect("it is written");
    assert_eq!(log.state(), Some(Account { sum: 2, changes: 1 }));

    // No other task runs on this thread meanwhile.
    let decide = || log.decide::<ToolError>(|_| Ok(Decision::record(put.clone())));
    let all: Vec<_> = (0..=MOST_WAITING).map(|_| decide()).collect();
    let (last, waiting) =
        all.into_iter().rev().fold((None, Vec::new()), |(last, mut all), one| match (last, one) {
            (None, one) => (Some(one), all),
            (last, one) => {
                all.push(one.unwrap_or_else(|error| panic!("{error:?}")));
                (last, all)
            }
        });
    assert_eq!(last.and_then(Result::err).expect("one too many").code, "busy");
    for written in waiting {
        written.await.expect("it is written");
    }
    assert_eq!(log.state().expect("it is there").sum, 2 + MOST_WAITING as u64);
    journal.close().await;
}

#[tokio::test]
async fn continuations_are_called_in_the_order_of_decisions_and_when_the_log_has_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    let log = Log::<Account>::open(journal.clone(), id()).await.expect("it opens");
    note(&log, Record::Opened { sum: 0 }).await;
    let (told, mut heard) = tokio::sync::mpsc::channel(256);
    let decide = |nth: u64| {
        let (told, seen) = (told.clone(), log.clone());
        let then = move |outcome: Result<(), LogError>| {
            let changes = seen.view(|account| account.map(|account| account.changes));
            told.try_send((nth, outcome.is_ok(), changes)).expect("it is heard");
        };
        let put = Ok(Decision::record(Record::Put { amount: 1 }));
        log.decide_then::<LogError>(|_| put, then).expect("it is decided");
    };
    (1..=200).for_each(&decide);
    for nth in 1..=200 {
        let (told, written, changes) = heard.recv().await.expect("one for each");
        assert!((told, written) == (nth, true) && changes >= Some(nth), "{told} at {changes:?}");
    }
    journal.close().await;
    (201..=203).for_each(&decide);
    for nth in 201..=203 {
        assert_eq!(heard.recv().await, Some((nth, false, Some(200))));
    }
}

#[tokio::test]
async fn an_answer_without_a_record_comes_behind_what_was_decided() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = Log::<Account>::open(journal(folder.path()), id()).await.expect("it opens");
    let opened = log.decide::<LogError>(|_| Ok(Decision::record(Record::Opened { sum: 1 })));
    let both = log.views(|decided, durable| (decided.is_some(), durable.is_some()));
    assert_eq!(both, (true, false));
    log.settled().await.expect("it is written");
    assert_eq!(log.state().map(|account| account.sum), Some(1));
    opened.expect("it is open").await.expect("it is written");
    log.0.journal.close().await;
    log.settled().await.expect("everything that was decided is on the disk");
    let put = log.decide::<LogError>(|_| Ok(Decision::record(Record::Put { amount: 1 })));
    put.expect("it is open").await.expect_err("the journal stopped");
    log.settled().await.expect_err("it has ended");
}

#[tokio::test]
async fn whoever_opens_a_log_again_goes_on_with_it_until_it_has_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    let logs = LogSet::<Account>::new(journal.clone());
    let first = logs.begin(id());
    // Its actor dies before any of this is handed to the journal.
    let unwritten = first.decide::<LogError>(|_| Ok(Decision::record(Record::Opened { sum: 1 })));
    drop((unwritten, first));
    let next = logs.open(id()).await.expect("it opens");
    note(&next, Record::Put { amount: 1 }).await;
    logs.settled().await;
    assert_eq!(next.state(), Some(Account { sum: 2, changes: 1 }));
    logs.forget(&id()).await.expect("it is removed");
    assert!(logs.open(id()).await.expect("it opens").state().is_none());
    let broken = stream::<Account>("broken").expect("a name");
    journal.append(&broken, vec![b"no record".to_vec()]).await.expect("written");
    assert!(logs.open(broken.clone()).await.is_err());
    logs.forget(&broken).await.expect("what cannot be read can be removed");
    assert!(journal.streams("account/").expect("readable").is_empty());
}

#[tokio::test]
async fn a_removal_is_done_although_nobody_waits_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    let log = Log::<Account>::open(journal.clone(), id()).await.expect("it opens");
    note(&log, Record::Opened { sum: 1 }).await;
    assert!(futures::FutureExt::now_or_never(log.forget()).is_none(), "it takes its time");
    while log.state().is_some() {
        tokio::task::yield_now().await;
    }
    assert!(journal.streams("account/").expect("readable").is_empty());
    log.forget().await.expect_err("there is nothing any more");
    journal.close().await;
}

#[tokio::test]
async fn streams_that_do_not_begin_are_stray_and_records_that_do_not_follow_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path());
    let write = async |name: &str, records: &[Record]| {
        let records = records.iter().map(|it| serde_json::to_vec(it).expect("JSON")).collect();
        let stream = stream::<Account>(name).expect("a name");
        journal.append(&stream, records).await.expect("it is written");
    };
    write("good", &[Record::Opened { sum: 1 }, Record::Put { amount: 2 }]).await;
    write("stray", &[Record::Put { amount: 2 }]).await;
    let all = load_all::<Account>(&journal).expect("readable");
    assert_eq!(all.stray, [stream::<Account>("stray").expect("a name")]);
    assert_eq!(all.loaded.len(), 1);
    assert_eq!((all.loaded[0].1.state.sum, all.loaded[0].1.unfolded), (3, 2));

    write("bad", &[Record::Opened { sum: 1 }, Record::Taken { amount: 2 }]).await;
    let refused = load_all::<Account>(&journal).expect_err("a sum below zero").to_string();
    assert!(refused.contains("account/bad") && refused.contains("does not follow"), "{refused}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A snapshot of the first j records and those from i on, for every i <= j, is equal to the
    /// whole: here over whatever the log has folded, and when.
    #[test]
    fn whatever_is_folded_adds_up_to_the_whole(amounts in prop::collection::vec(0_u64..9, 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let log = Log::<Account>::open(journal(folder.path()), id()).await.unwrap();
            let mut whole = Account { sum: 5, changes: 0 };
            note(&log, Record::Opened { sum: 5 }).await;
            for (nth, amount) in amounts.into_iter().enumerate() {
                let put = nth % 3 != 0 || amount > whole.sum;
                let record = if put { Record::Put { amount } } else { Record::Taken { amount } };
                whole.apply(record.clone()).unwrap();
                note(&log, record).await;
                let read = load::<Account>(&log.0.journal, &id()).unwrap().unwrap();
                prop_assert_eq!(&read.state, &whole);
                prop_assert!(read.unfolded < 2 * Account::FOLD_EVERY);
            }
            log.0.journal.close().await;
            Ok(())
        })?;
    }
}
