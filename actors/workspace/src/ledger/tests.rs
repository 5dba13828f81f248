use hivekeep_link::LinkToken;
use hivekeep_machine::Isolation;

use super::*;
use crate::records::{Spec, StopHow};
use proptest::prelude::*;

fn plan() -> Planned {
    let id = hivekeep_kernel::WorkspaceId::new();
    Planned {
        id,
        name: crate::name::Name::default_for(id),
        owner: SessionId::new(),
        spec: Spec {
            image: "base".to_owned(),
            isolation: Isolation::Vm,
            vcpus: 1,
            memory_mb: 256,
            disk_gb: 1,
        },
        at: Utc::now(),
        token: LinkToken::from_bytes([7; 32]),
        slot: 3,
        uuid: uuid::Uuid::nil(),
        fork: None,
        network: Default::default(),
        recipe: None,
        pool: None,
    }
}

fn record() -> impl Strategy<Value = Record> {
    let at = Utc::now();
    prop_oneof![
        Just(Record::StartWanted),
        Just(Record::Created { boot_time_ms: 5 }),
        Just(Record::Up { boot_time_ms: 7, at }),
        Just(Record::StopWanted),
        Just(Record::Stopped { at, how: StopHow::Guest }),
        Just(Record::Crashed { at, reason: "oom".to_owned() }),
        Just(Record::DestroyWanted),
        Just(Record::Owned { by: None }),
        Just(Record::Claimed {
            owner: SessionId::new(),
            name: "w".parse().expect("a name"),
            at,
            network: Default::default(),
        }),
        "[A-C]".prop_map(|name| Record::EnvSet { vars: [(name, Some("1".to_owned()))].into() }),
        "[A-C]".prop_map(|name| Record::EnvSet { vars: [(name, None)].into() }),
    ]
}

/// Ids from a small pool, so that records meet.
fn layer() -> impl Strategy<Value = LayerId> {
    let pool: Vec<LayerId> = (0..4).map(|_| LayerId::new()).collect();
    prop::sample::select(pool)
}

fn snapshot_record() -> impl Strategy<Value = Record> {
    let at = Utc::now();
    let ids: Vec<SnapshotId> = (0..3).map(|_| SnapshotId::new()).collect();
    let id = move || prop::sample::select(ids.clone());
    let node = move |id: SnapshotId| Node {
        id,
        name: id.to_string(),
        parent: None,
        layers: Vec::new(),
        memory: None,
        jobs: BTreeSet::new(),
        at,
        by_backup: false,
    };
    prop_oneof![
        (id(), layer(), layer()).prop_map(move |(id, frozen, top)| {
            Record::SnapshotWanted { node: Box::new(node(id)), frozen, top, paused: false }
        }),
        Just(Record::SnapshotMade { memory_bytes: None }),
        any::<bool>().prop_map(|switched| Record::SnapshotFailed { switched }),
        (id(), layer()).prop_map(|(snapshot, top)| Record::RestoreWanted { snapshot, top }),
        any::<bool>()
            .prop_map(|discard_newer| Record::Restored { with_memory: false, discard_newer }),
        id().prop_map(|snapshot| Record::SnapshotDeleted { snapshot }),
        (layer(), layer(), layer()).prop_map(|(lower, upper, into)| Record::MergeWanted(Merge {
            lower,
            upper,
            into
        })),
        Just(Record::Merged),
    ]
}

fn numbered(records: Vec<Record>) -> Vec<(Seq, Record)> {
    (1..).map(Seq::new).zip(records).collect()
}

proptest! {
    /// A snapshot of the first `upto` records, with all that a reading may have found beside it:
    /// also records that it covers already.
    #[test]
    fn a_snapshot_anywhere_changes_nothing(
        records in prop::collection::vec(prop_oneof![record(), snapshot_record()], 0..40),
        places in any::<[prop::sample::Index; 2]>(),
    ) {
        let all = numbered(std::iter::once(Record::Planned(plan())).chain(records).collect());
        let json = |ledger: &Ledger| serde_json::to_value(ledger).expect("serialises");
        let whole = Ledger::replay(None, all.clone()).expect("a plan");
        prop_assert_eq!(whole.0, Seq::new(all.len() as u64));
        let mut places = places.map(|place| place.index(all.len() + 1));
        places.sort_unstable();
        let [from, upto] = [places[0], places[1].max(1)];
        let (covered, first) = Ledger::replay(None, all[..upto].to_vec()).expect("a plan");
        let stored = serde_json::from_value(json(&first)).expect("reads back");
        let continued = Ledger::replay(Some((covered, stored)), all[from..].to_vec());
        let continued = continued.expect("a snapshot");
        prop_assert_eq!(json(&whole.1), json(&continued.1));
        prop_assert_eq!(whole.0, continued.0);
    }
}

#[test]
fn a_stream_without_a_plan_is_none() {
    assert!(Ledger::replay(None, [(Seq::FIRST, Record::StartWanted)]).is_none());
    assert!(Ledger::replay(None, []).is_none());
}

#[test]
fn records_read_back() {
    let record = Record::EnvSet { vars: [("A".to_owned(), None)].into() };
    let json = serde_json::to_string(&record).expect("serialises");
    assert_eq!(json, r#"{"record":"env_set","vars":{"A":null}}"#);
    let planned = serde_json::to_string(&Record::Planned(plan())).expect("serialises");
    assert!(matches!(serde_json::from_str(&planned), Ok(Record::Planned(plan)) if plan.slot == 3));
}
