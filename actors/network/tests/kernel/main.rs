//! The network on this kernel, with real packets, in namespaces of its own. Needs root.
#![allow(clippy::unwrap_used)]

mod actor;
mod ensure;
mod flows;
mod killed;
mod machine;
mod rights;
mod sabotage;
mod selftest;
mod step;

use hivekeep_network::HostAccess;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Why tests of this binary cannot run here, if they cannot.
fn obstacle() -> Option<String> {
    let found = block_on(hivekeep_network::capability::detect(&HostAccess::default()));
    (!found.missing.is_empty()).then(|| found.missing.join("; "))
}

/// Ends a test that cannot run, loudly.
macro_rules! needs_root {
    () => {
        if let Some(why) = crate::obstacle() {
            return hivekeep_skip::skip(why);
        }
    };
}
pub(crate) use needs_root;
