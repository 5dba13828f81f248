//! Choice of two layers that nothing tells apart, and the handle of a merge that is under way.
//!
//! ```text
//!  image ◄── a ◄── b ◄── c ◄── top      b ended a snapshot that was deleted: whoever stands
//!            ▲           ▲              on it stands on c as well, so the two can be one
//!         "clean"     "built"
//! ```

use hivekeep_kernel::LayerId;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{DiskLayers, Tree};

/// Two neighbours of a chain, and the layer that they become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merge {
    /// The older one.
    pub lower: LayerId,
    /// The one that stands on it.
    pub upper: LayerId,
    /// Reads as the two do.
    pub into: LayerId,
}

impl Merge {
    /// Two layers that every chain of this workspace has together or not at all, and that are
    /// `alone`: no other workspace needs them.
    pub(crate) fn find(
        disk: &DiskLayers,
        tree: &Tree,
        alone: impl Fn(LayerId) -> bool,
    ) -> Option<Self> {
        let chains = || tree.nodes().map(|node| &node.layers).chain([&disk.layers]);
        // Where a layer is, this one stands on it, in every chain.
        let inseparable = |lower: LayerId, upper: LayerId| {
            chains().all(|chain| {
                let at = chain.iter().position(|layer| *layer == lower);
                at.is_none_or(|at| chain.get(at + 1) == Some(&upper))
            })
        };
        let pairs = chains().flat_map(|chain| chain.windows(2));
        pairs
            .filter_map(
                |pair| if let [lower, upper] = pair { Some((*lower, *upper)) } else { None },
            )
            .find(|(lower, upper)| alone(*lower) && alone(*upper) && inseparable(*lower, *upper))
            .map(|(lower, upper)| Self { lower, upper, into: LayerId::new() })
    }

    /// The chain with one layer for the two.
    pub(crate) fn apply_to(&self, chain: &mut Vec<LayerId>) {
        let at = chain.windows(2).position(|pair| pair == [self.lower, self.upper]);
        if let Some(at) = at {
            chain.splice(at..at + 2, [self.into]);
        }
    }
}

/// A merge of layers that runs beside the mailbox.
pub(crate) struct Merger {
    pub(crate) wanted: CancellationToken,
    pub(crate) ended: CancellationToken,
}

impl Merger {
    /// Cancels the merge, without waiting for its end.
    pub(crate) fn cancel(&self) {
        self.wanted.cancel();
    }

    /// Cancels the merge; the future resolves once it writes no more records.
    pub(crate) fn end(&self) -> impl Future<Output = ()> + Send + 'static {
        self.wanted.cancel();
        self.ended.clone().cancelled_owned()
    }
}
