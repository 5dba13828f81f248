//! A guest that writes nothing to its disk while that is frozen.

use std::time::Duration;

use hivekeep_kernel::{CallCx, Layer, ToolError};
use hivekeep_link::{CallTerms, Link};
use hivekeep_protocol::{Quiesce, Thaw};

use crate::{codes, link_state::LinkState};

/// Time for the guest to write its cache to its disk.
const SYNC_PATIENCE: Duration = Duration::from_secs(60);
/// Longest time that the guest's writes are held back.
pub(super) const MAX_FREEZE: Duration = Duration::from_secs(30);
/// Time for the guest to answer a thaw.
const THAW_PATIENCE: Duration = Duration::from_secs(5);

/// A guest whose disk holds all that was written.
pub(super) struct Quiet {
    link: Link,
    frozen_for: Option<(Duration, tokio::time::Instant)>,
}

impl Quiet {
    /// Syncs, and holds back writes for at most `freeze`.
    pub(crate) async fn begin(
        link_state: &LinkState,
        freeze: Option<Duration>,
        cx: &CallCx,
    ) -> Result<Self, ToolError> {
        let (LinkState::Up(link) | LinkState::Unresponsive(link)) = link_state else {
            let message = format!("the guest cannot be reached: {}", link_state.word());
            return Err(ToolError::new(Layer::Link, codes::GUEST_UNREACHABLE, message).retryable());
        };
        let freeze_ms = freeze.and_then(|freeze| u32::try_from(freeze.as_millis()).ok());
        let wait = CallTerms::at_most(SYNC_PATIENCE.min(cx.remaining()));
        let quiesced =
            link.ask(Quiesce { freeze_ms }, wait).await.map_err(hivekeep_link::link_error)?;
        if quiesced.frozen != freeze.is_some() {
            return Err(ToolError::new(
                Layer::Guest,
                codes::GUEST_NOT_FROZEN,
                "the guest's root file system could not be frozen",
            )
            .next("workspace_logs shows the console; a snapshot with memory needs no freezing"));
        }
        let frozen_for = freeze.map(|freeze| (freeze, tokio::time::Instant::now()));
        Ok(Self { link: link.clone(), frozen_for })
    }

    /// Lets writes go on. A guest that cannot be reached thaws by itself.
    ///
    /// # Errors
    /// `snapshot_torn` when the guest may have written meanwhile.
    pub(crate) async fn end(self) -> Result<(), ToolError> {
        let Some((freeze, since)) = self.frozen_for else { return Ok(()) };
        let held = since.elapsed() < freeze;
        if let Err(error) = self.link.ask(Thaw, CallTerms::at_most(THAW_PATIENCE)).await {
            tracing::warn!(%error, "a guest could not be told to thaw; it does so by itself");
        }
        if held {
            return Ok(());
        }
        Err(ToolError::new(
            Layer::Machine,
            codes::SNAPSHOT_TORN,
            "the guest's disk was not quiet for as long as saving took",
        )
        .next("try again when the host is less busy, or use include_memory")
        .retryable())
    }
}
