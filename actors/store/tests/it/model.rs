//! Model test: any sequence of operations and restarts reads back as a plain model.

use std::collections::BTreeMap;

use hivekeep_store::{Error, Options, Replay, Seq};
use proptest::prelude::*;

use crate::util::{contents, event, opened, stream};

#[derive(Debug, Clone)]
enum Op {
    Append(u8, Vec<usize>),
    Snapshot(u8, u64, usize),
    Forget(u8),
    Publish,
    /// Churn that suffices for a compaction, which then runs beside what follows.
    Churn,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    // Sizes on both sides of one piece and of several, and zero.
    let size = prop_oneof![Just(0), 1..300usize, 4000..4200usize, 8000..20_000usize];
    prop_oneof![
        6 => (0..3u8, prop::collection::vec(size.clone(), 1..5)).prop_map(|(s, n)| Op::Append(s, n)),
        3 => (0..3u8, 0..12u64, size).prop_map(|(s, back, n)| Op::Snapshot(s, back, n)),
        1 => (0..3u8).prop_map(Op::Forget),
        1 => Just(Op::Publish),
        2 => Just(Op::Churn),
        2 => Just(Op::Reopen),
    ]
}

async fn run(ops: Vec<Op>) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { compact_at_mb: 0, ..Options::at(dir.path()) };
    let mut journal = opened(&options).await;
    let mut model = BTreeMap::<String, Replay>::new();
    let mut events = 0;
    for (number, op) in ops.into_iter().enumerate() {
        let fill = |size| vec![number as u8; size];
        match op {
            Op::Append(which, sizes) => {
                let name = format!("model/{which}");
                let replay = model.entry(name.clone()).or_default();
                let records: Vec<_> = sizes.into_iter().map(fill).collect();
                for bytes in &records {
                    replay.records.push((replay.last().next(), bytes.clone()));
                }
                let last = journal.append(&stream(&name), records).await.unwrap();
                assert_eq!(last, replay.last());
            }
            Op::Snapshot(which, back, size) => {
                let name = format!("model/{which}");
                let old = model.get(&name).cloned().unwrap_or_default();
                let compacted = old.snapshot.as_ref().map_or(Seq::ZERO, |(upto, _)| *upto);
                let upto = Seq::new(old.last().get().saturating_sub(back));
                let done = journal.snapshot(&stream(&name), upto, fill(size)).await;
                if upto < compacted {
                    assert!(matches!(done, Err(Error::Invalid { .. })));
                    continue;
                }
                done.unwrap();
                let records = old.records.into_iter().filter(|(seq, _)| *seq > upto).collect();
                model.insert(name, Replay { snapshot: Some((upto, fill(size))), records });
            }
            Op::Forget(which) => {
                let name = format!("model/{which}");
                journal.forget(&stream(&name)).await.unwrap();
                model.remove(&name);
            }
            Op::Publish => {
                events += 1;
                let seq = journal.events().publish(event("model", events)).await.unwrap();
                assert_eq!(seq.get(), events);
            }
            Op::Churn => {
                for _ in 0..4 {
                    journal.append(&stream("churn/a"), vec![fill(200_000); 5]).await.unwrap();
                    journal.forget(&stream("churn/a")).await.unwrap();
                }
            }
            Op::Reopen => {
                journal.close().await;
                journal = opened(&options).await;
                assert_eq!(contents(&journal), model);
            }
        }
    }
    assert_eq!(contents(&journal), model);
    journal.close().await;
    let journal = opened(&options).await;
    assert_eq!(contents(&journal), model);
    assert_eq!(journal.events().last().get(), events);
    journal.close().await;
    // Large values must not end up in files that the database never syncs.
    let outside = std::fs::read_dir(dir.path().join("journal/blobs")).unwrap().count();
    assert_eq!(outside, 0, "a page grew above the database's limit");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]

    #[test]
    fn replay_equals_the_model(ops in prop::collection::vec(op(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(run(ops));
    }
}
