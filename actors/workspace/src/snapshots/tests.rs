use hivekeep_kernel::WorkspaceId;
use proptest::prelude::*;

use super::*;

fn node(name: &str, parent: Option<SnapshotId>, layers: &[LayerId]) -> SnapshotNode {
    SnapshotNode {
        id: SnapshotId::new(),
        name: name.to_owned(),
        parent,
        layers: layers.to_vec(),
        memory: None,
        jobs: BTreeSet::new(),
        at: Utc::now(),
        by_backup: false,
    }
}

#[test]
fn a_removed_node_hands_its_children_to_its_parent() {
    let mut tree = Tree::default();
    let a = node("a", None, &[]);
    let b = node("b", Some(a.id), &[]);
    let c = node("c", Some(b.id), &[]);
    let (a_id, b_id, c_id) = (a.id, b.id, c.id);
    [a, b, c].into_iter().for_each(|node| tree.add(node));
    assert_eq!(tree.newer_than(a_id), [c_id, b_id]);
    tree.remove(b_id);
    assert_eq!(tree.get(c_id).and_then(|node| node.parent), Some(a_id));
    assert_eq!(tree.at, Some(c_id));
    tree.remove(c_id);
    assert_eq!(tree.at, Some(a_id));
    assert_eq!(tree.children(a_id).count(), 0);
}

#[test]
fn a_snapshot_is_found_by_name_before_id() {
    let mut tree = Tree::default();
    let first = node("first", None, &[]);
    let id = first.id;
    tree.add(first);
    let imitator = node(&id.to_string(), None, &[]);
    let imitator_id = imitator.id;
    assert_eq!(tree.find(&id.to_string()).map(|node| node.id), Some(id));
    tree.add(imitator);
    assert_eq!(tree.find(&id.to_string()).map(|node| node.id), Some(imitator_id));
    assert!(tree.find("none").is_none());
}

#[test]
fn a_piece_is_free_when_its_last_holder_lets_go() {
    let holds = RefCounts::default();
    let (a, b) = (Artifact::Layer(LayerId::new()), Artifact::Memory(SnapshotId::new()));
    holds.take([a, b]);
    holds.take([a]);
    assert_eq!(holds.release([a, b]), [b]);
    assert!(holds.held(a) && !holds.held(b));
    assert_eq!(holds.release([a]), [a]);
    // Letting go twice frees nothing twice.
    assert_eq!(holds.release([a]), []);

    // What a workspace needs is said as a whole, and may be said again.
    let (one, two) = (WorkspaceId::new(), WorkspaceId::new());
    let [none, both] = [BTreeSet::new(), BTreeSet::from([a, b])];
    for id in [one, one, two] {
        assert_eq!(holds.replace(id, both.clone()), []);
    }
    assert_eq!((holds.count(a), holds.count(b)), (2, 2));
    assert_eq!(holds.replace(one, BTreeSet::from([a])), []);
    assert_eq!(holds.replace(two, none.clone()), [b]);
    assert_eq!(holds.replace(one, none.clone()), [a]);
    assert_eq!(holds.replace(one, none), []);
}

proptest! {
    /// Whatever is snapshotted, restored and removed: the disk under the present state and under
    /// each snapshot is the one that was frozen, and parents exist.
    #[test]
    fn disks_stay_what_they_were(steps in proptest::collection::vec((0..3u8, any::<prop::sample::Index>()), 1..60)) {
        let (mut tree, mut disk) = (Tree::default(), DiskLayers::default());
        let mut frozen: BTreeMap<SnapshotId, Vec<LayerId>> = BTreeMap::new();
        for (step, index) in steps {
            let ids: Vec<_> = tree.nodes().map(|node| node.id).collect();
            match step {
                0 => {
                    disk.freeze(disk.top.unwrap_or_else(LayerId::new), LayerId::new());
                    let node = node("x", tree.at, &disk.layers);
                    frozen.insert(node.id, disk.layers.clone());
                    tree.add(node);
                }
                1 if !ids.is_empty() => {
                    let node = tree.get(ids[index.index(ids.len())]).expect("listed");
                    disk = DiskLayers { layers: node.layers.clone(), top: Some(LayerId::new()) };
                    tree.at = Some(node.id);
                }
                2 if !ids.is_empty() => {
                    let id = ids[index.index(ids.len())];
                    tree.remove(id);
                    frozen.remove(&id);
                }
                _ => {}
            }
            prop_assert!(disk.top.is_none_or(|top| !disk.layers.contains(&top)));
            for node in tree.nodes() {
                prop_assert_eq!(&frozen[&node.id], &node.layers);
                prop_assert!(node.parent.is_none_or(|parent| tree.get(parent).is_some()));
                // Nothing that is written is part of a snapshot.
                prop_assert!(disk.top.is_none_or(|top| !node.layers.contains(&top)));
            }
            prop_assert!(tree.at.is_none_or(|at| tree.get(at).is_some()));
        }
    }
}

/// A workspace that made these snapshots one after the other: each its own layer.
fn line(count: usize) -> (Tree, DiskLayers, Vec<SnapshotId>) {
    let (mut tree, mut disk, mut ids) = (Tree::default(), DiskLayers::default(), Vec::new());
    for nth in 0..count {
        disk.freeze(LayerId::new(), LayerId::new());
        let node = node(&nth.to_string(), None, &disk.layers);
        ids.push(node.id);
        tree.add(node);
    }
    (tree, disk, ids)
}

#[test]
fn layers_that_end_a_snapshot_or_belong_to_others_stay_apart() {
    let (mut tree, disk, ids) = line(3);
    let find = |tree: &Tree, disk: &DiskLayers| Merge::find(disk, tree, |_| true);
    assert_eq!(find(&tree, &disk), None);
    tree.remove(ids[1]);
    let merge = find(&tree, &disk).unwrap();
    assert_eq!([merge.lower, merge.upper], disk.layers[1..]);
    for foreign in &disk.layers[1..] {
        assert_eq!(Merge::find(&disk, &tree, |layer| layer != *foreign), None);
    }
    // Another branch stands on the lower one alone.
    let branch = node("branch", None, &[disk.layers[0], disk.layers[1], LayerId::new()]);
    let branch_id = branch.id;
    tree.add(branch);
    assert_eq!(find(&tree, &disk), None);
    tree.remove(branch_id);
    // The disk is elsewhere: the snapshots' own chains count as well.
    let elsewhere = DiskLayers { layers: vec![disk.layers[0]], top: Some(LayerId::new()) };
    assert!(find(&tree, &elsewhere).is_some());
}

proptest! {
    #[test]
    fn merging_ends_with_a_layer_for_each_snapshot_and_one_for_the_rest(
        count in 1_usize..12,
        deleted in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let (mut tree, mut disk, ids) = line(count);
        for index in deleted {
            tree.remove(*index.get(&ids));
        }
        let mut merges = 0;
        while let Some(merge) = Merge::find(&disk, &tree, |_| true) {
            merge.apply_to(&mut disk.layers);
            tree.merged(&merge);
            merges += 1;
            prop_assert!(merges < count, "it goes on for ever");
        }
        // Each snapshot keeps a chain that the disk has as its beginning.
        for node in tree.nodes() {
            prop_assert!(disk.layers.starts_with(&node.layers));
        }
        let ends: BTreeSet<_> = tree.nodes().map(|node| node.layers.len()).collect();
        let last_is_a_snapshots = ends.contains(&disk.layers.len());
        prop_assert_eq!(disk.layers.len(), ends.len() + usize::from(!last_is_a_snapshots));
    }
}
