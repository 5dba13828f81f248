//! Test fixture: a daemon's context for tests of one family.

use std::{path::Path, sync::Arc};

use hivekeep_kernel::ports::{SessionQuotas, Tools};
use hivekeep_store::Journal;

use crate::{Daemon, Folders};

impl Daemon {
    /// Makes a context with everything below one folder, nothing offered, rates limited, nothing
    /// redacted.
    pub fn for_tests(
        folder: &Path,
        journal: Journal,
        sessions: Arc<dyn SessionQuotas>,
        tools: Arc<dyn Tools>,
    ) -> Self {
        let [state, run, logs] = [(); 3].map(|()| folder.to_owned());
        Self {
            folders: Folders { state, run, logs },
            journal,
            census: Default::default(),
            sessions,
            tools,
            ports: Default::default(),
            room: Default::default(),
            redact: Arc::new(str::to_owned),
            rate_limits: true,
            closing: Default::default(),
        }
    }
}
