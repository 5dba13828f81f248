//! Artifact store: results too large for their answers, kept for their users until they expire.
//!
//! An artifact is one immutable file, the result as JSON and one line about it, which gets its name when
//! it is whole and on the disk. What there is, is what a listing of the folder says: no second record can
//! contradict it, and a crash at any line leaves the artifact or nothing. It belongs to a user, and for
//! others it is not there.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod artifacts;
pub mod codes;
mod documents;
mod folder;
mod info;
mod options;
mod tools;

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{ErrorCode, RestartPolicy, ServiceActor, ToolError, ToolInfo};
use hivekeep_ports::ResultKeeper;
use hivekeep_runtime::{Daemon, Family, Mounted};

pub use artifacts::{ArtifactAccess, ArtifactText, Artifacts, OpenArtifact};
pub use info::{ArtifactInfo, MIME_TYPE, artifact_id};
pub use options::Options;

/// How often expiries are looked for. Times are given in hours, and what has expired is not found before
/// it is removed.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Family of the artifacts. Offers [`ResultKeeper`], and [`Artifacts`] to doors.
pub struct ArtifactFamily;

impl Family for ArtifactFamily {
    type Options = Options;

    const INSTRUCTIONS: &'static str = "\
- A result too large for its answer is kept: the error result_too_large names its URI, and artifact_read \
reads it in ranges.";

    const HOLDS: &'static [&'static str] = &[artifacts::HELD];

    fn tools() -> Vec<&'static ToolInfo> {
        tools::FAMILY.rows.iter().map(|row| &row.0).collect()
    }

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        let enabled = options.enabled;
        let artifacts = Artifacts::open_store(daemon, options).await?;
        if enabled {
            daemon.ports.offer::<dyn ResultKeeper>(Arc::new(artifacts.clone()));
        }
        let artifacts = Arc::new(artifacts);
        daemon.ports.offer(artifacts.clone());
        let address = daemon.address("artifacts", RestartPolicy::ENTITY);
        let expiry = daemon.address("artifact-expiry", RestartPolicy::ENTITY);
        Ok(Mounted::default()
            .serving::<ServiceActor<Artifacts>>(&address, artifacts.clone())
            .periodic(&expiry, LOOK_EVERY, artifacts.clone(), |artifacts| async move {
                artifacts.expire(Utc::now()).await;
            })
            .documents(artifacts.clone())
            .names(artifacts))
    }
}

#[cfg(test)]
mod tests;
