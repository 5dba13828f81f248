//! Copy-on-write catalogue: readers have the tools of one moment, sources publish others beside them.

use std::{fmt, sync::Arc};

use arc_swap::ArcSwap;
use hivekeep_kernel::ports::{ForeignSource, SourceTool, ToolPublisher};
use tokio::sync::watch;

use super::Catalogue;

/// The tools as they are now. A call keeps the catalogue that it began with.
pub struct SharedCatalogue {
    current: ArcSwap<Catalogue>,
    changes: watch::Sender<u64>,
}

impl SharedCatalogue {
    /// The catalogue before any source has published.
    pub fn new(own: Catalogue) -> Self {
        Self { current: ArcSwap::from_pointee(own), changes: watch::Sender::default() }
    }

    /// The tools as they are now.
    pub fn now(&self) -> Arc<Catalogue> {
        self.current.load_full()
    }

    /// Counts publications.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

impl ToolPublisher for SharedCatalogue {
    fn publish(&self, source: Arc<dyn ForeignSource>, tools: Vec<SourceTool>) {
        self.current.rcu(|now| now.with(&source, tools.clone()));
        self.changes.send_modify(|count| *count += 1);
    }
}

impl fmt::Debug for SharedCatalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCatalogue").finish_non_exhaustive()
    }
}
