#![allow(clippy::unwrap_used)]

use chrono::Utc;
use hivekeep_kernel::{SessionId, SnapshotId};
use hivekeep_link::LinkToken;

use super::*;
use crate::{
    name::WorkspaceName,
    records::{Planned, WorkspaceSpec},
    snapshots::{SnapshotMemory, SnapshotNode},
};

fn ledger(isolation: Isolation, layers: &[LayerId]) -> Ledger {
    let id = WorkspaceId::new();
    let spec =
        WorkspaceSpec { image: "base".to_owned(), isolation, vcpus: 1, memory_mb: 256, disk_gb: 1 };
    let plan = Planned::new(id, WorkspaceName::default_for(id), SessionId::new(), spec).unwrap();
    let mut ledger = Ledger::new(plan);
    ledger.disk.layers = layers.to_vec();
    ledger.disk.top = Some(LayerId::new());
    ledger.base = Some(PathBuf::from("/images/objects/1234/rootfs.ext4"));
    ledger
}

fn snapshot(ledger: &mut Ledger, layers: &[LayerId], memory: bool) {
    let token = LinkToken::from_bytes([7; 32]);
    ledger.snapshots.add(SnapshotNode {
        id: SnapshotId::new(),
        name: "one".to_owned(),
        parent: None,
        layers: layers.to_vec(),
        memory: memory.then_some(SnapshotMemory { bytes: 1, token }),
        jobs: BTreeSet::new(),
        at: Utc::now(),
        by_backup: false,
    });
}

fn ids<const N: usize>() -> [LayerId; N] {
    std::array::from_fn(|_| LayerId::new())
}

#[test]
fn frozen_layers_and_their_bases_are_named_and_tops_are_not() {
    let [one, two, old, nobodys] = ids();
    let mut vm = ledger(Isolation::Vm, &[one, two]);
    snapshot(&mut vm, &[one, old], true);
    let top = vm.disk.top.unwrap();
    let found = BTreeSet::from([one, two, old, nobodys, top]);
    let frozen = BTreeSet::from([vm.plan.id]);
    let named = Named::of(&[vm.clone()], &frozen, Vec::new(), &found).unwrap();
    assert_eq!(named.layers, BTreeSet::from([one, two, old]));
    assert_eq!(named.bases.len(), 1);
    assert_eq!((named.kept.len(), named.left_out.len(), named.memories), (1, 0, 1));

    // One that a deletion or a merge took ends the backup, and says so.
    let found = BTreeSet::from([one, two]);
    let error = Named::of(&[vm], &frozen, Vec::new(), &found).unwrap_err();
    assert!(error.code == "backup_raced" && error.retryable, "{error:?}");
}

#[test]
fn what_was_not_frozen_is_left_out_by_name_and_ends_nothing() {
    let [one, lost] = ids();
    let sandbox = ledger(Isolation::Sandbox, &[]);
    let mut busy = ledger(Isolation::Vm, &[one]);
    snapshot(&mut busy, &[lost], false);
    let late = ledger(Isolation::Vm, &[one]);
    let mut failed = ledger(Isolation::Vm, &[lost]);
    failed.failed = Some(("x".to_owned(), "y".to_owned()));
    let mut going = ledger(Isolation::Vm, &[lost]);
    going.destroying = true;
    let refused = ToolError::foreign(Layer::Actor, "workspace_busy", "it is starting");
    let left = |ledger: &Ledger| LeftOut::new(ledger.plan.id, &"before", &refused);
    let left_out = vec![left(&sandbox), left(&busy), left(&ledger(Isolation::Vm, &[]))];
    let all = [sandbox, busy.clone(), late.clone(), failed, going];
    let named = Named::of(&all, &BTreeSet::new(), left_out, &BTreeSet::from([one])).unwrap();
    assert_eq!(named.left_out.len(), 3, "{named:?}");
    assert!(named.kept.is_empty());
    let of = |ledger: &Ledger| {
        let name = ledger.plan.name.to_string();
        named.left_out.iter().find(|left| left.name == name).unwrap()
    };
    assert_eq!(of(&busy).missing_layers, [lost.to_string()]);
    assert_eq!(of(&busy).code, "workspace_busy");
    assert_eq!(of(&late).code, "made_meanwhile");
    assert_eq!(named.layers, BTreeSet::from([one]));
}
