//! Roots of volumes that are worked in, shared by all who work in one at a time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use hivekeep_file_engine::FileRoot;
use hivekeep_kernel::VolumeId;

/// Roots of volumes that are worked in. All work in one volume has the same, for an edit is compared and put
/// in place in its turn; without work it is closed, so that the volume can be unmounted.
#[derive(Default)]
pub(crate) struct VolumeRoots(BTreeMap<VolumeId, Weak<FileRoot>>);

impl VolumeRoots {
    /// Root of a volume: the one that others work beneath, or the new one.
    pub(crate) fn root(&mut self, id: VolumeId, new: FileRoot) -> Arc<FileRoot> {
        self.0.retain(|_, root| root.strong_count() > 0);
        self.0.get(&id).and_then(Weak::upgrade).unwrap_or_else(|| {
            let root = Arc::new(new);
            self.0.insert(id, Arc::downgrade(&root));
            root
        })
    }
}
