use hivekeep_link::LinkToken;
use hivekeep_machine::Isolation;

use super::*;
use crate::lifetime::{AtEnd, EndChange, LifetimeChange};
use crate::records::{StopHow, WorkspaceSpec};
use proptest::prelude::*;

fn plan() -> Planned {
    let id = hivekeep_kernel::WorkspaceId::new();
    Planned {
        id,
        name: crate::name::WorkspaceName::default_for(id),
        owner: SessionId::new(),
        user: Some(User::Uid(1)),
        spec: WorkspaceSpec {
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
        several_users: false,
        volumes: Vec::new(),
        labels: Default::default(),
        lifetime: None,
    }
}

fn record() -> impl Strategy<Value = Record> {
    let at = Utc::now();
    prop_oneof![
        Just(Record::StartWanted),
        Just(Record::VolumesSet { volumes: Vec::new() }),
        Just(Record::Created { boot_time_ms: 5 }),
        Just(Record::Up { boot_time_ms: 7, at }),
        Just(Record::StopWanted),
        Just(Record::Stopped { at, how: StopHow::Guest }),
        Just(Record::Crashed { at, reason: "oom".to_owned() }),
        Just(Record::DestroyWanted),
        Just(Record::Owned { by: None, user: Some(User::Uid(2)) }),
        Just(Record::Claimed {
            owner: SessionId::new(),
            user: Some(User::Bearer),
            name: "w".parse().expect("a name"),
            at,
            network: Default::default(),
            labels: Default::default(),
            lifetime: None,
        }),
        "[A-C]".prop_map(|name| Record::EnvSet { vars: [(name, Some("1".to_owned()))].into() }),
        "[A-C]".prop_map(|name| Record::EnvSet { vars: [(name, None)].into() }),
    ]
}

fn sleep_record() -> impl Strategy<Value = Record> {
    let at = Utc::now();
    let parks: Vec<SnapshotId> = (0..2).map(|_| SnapshotId::new()).collect();
    let park = move || prop::sample::select(parks.clone());
    let end = move |secs| at + chrono::TimeDelta::seconds(secs);
    prop_oneof![
        (park(), any::<bool>()).prop_map(|(park, paused)| {
            Record::ParkWanted(ParkPlan { park, base: None, paused })
        }),
        park().prop_map(move |park| Record::Parked { park, memory_bytes: 9, at }),
        Just(Record::ParkFailed),
        Just(Record::ParkEnded),
        Just(Record::Woken),
        Just(Record::MemoryGivenUp),
        any::<Option<u64>>().prop_map(|secs| Record::IdleParkSet { secs }),
        (0..3i64).prop_map(move |secs| Record::LifetimeSet(LifetimeChange {
            end: EndChange::NotBefore(end(secs)),
            at_end: None,
        })),
        (0..3i64).prop_map(move |secs| Record::LifetimeSet(LifetimeChange {
            end: EndChange::At(end(secs)),
            at_end: Some(AtEnd::Park),
        })),
        (0..3i64).prop_map(move |secs| Record::LifetimeOver { ends_at: end(secs), at }),
        (0..3i64).prop_map(move |secs| Record::LifetimeEnded { ends_at: end(secs) }),
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
    let node = move |id: SnapshotId| SnapshotNode {
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

fn fold(begun: Option<Ledger>, records: &[Record]) -> Ledger {
    let mut records = records.iter().cloned();
    let begun = begun.or_else(|| Ledger::begin(records.next()?).ok());
    records.fold(begun.expect("a plan"), |mut ledger, record| {
        ledger.apply(record).expect("every record follows");
        ledger
    })
}

proptest! {
    /// A snapshot anywhere changes nothing, and reads back as the version before wrote it.
    #[test]
    fn a_snapshot_anywhere_changes_nothing(
        records in prop::collection::vec(prop_oneof![record(), snapshot_record(), sleep_record()], 0..40),
        place in any::<prop::sample::Index>(),
    ) {
        let all: Vec<_> = std::iter::once(Record::Planned(plan())).chain(records).collect();
        let json = |ledger: &Ledger| serde_json::to_value(ledger).expect("serialises");
        let (first, rest) = all.split_at(1 + place.index(all.len()));
        let snapshot = fold(None, first).fold().expect("serialises");
        let stored = Ledger::unfold(&snapshot).expect("reads back");
        prop_assert_eq!(json(&fold(Some(stored), rest)), json(&fold(None, &all)));
    }
}

#[test]
fn a_stream_without_a_plan_does_not_begin() {
    assert!(Ledger::begin(Record::StartWanted).is_err());
}

#[test]
fn records_read_back() {
    let record = Record::EnvSet { vars: [("A".to_owned(), None)].into() };
    let json = serde_json::to_string(&record).expect("serialises");
    assert_eq!(json, r#"{"record":"env_set","vars":{"A":null}}"#);
    let planned = serde_json::to_string(&Record::Planned(plan())).expect("serialises");
    assert!(matches!(serde_json::from_str(&planned), Ok(Record::Planned(plan)) if plan.slot == 3));
}
