//! Downloads on their way from the browser's folder into the place of its session.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::ToolError;
use tokio::time::timeout;

use super::Chrome;
use crate::{place::SAVING, state::SavedFile};

impl Chrome {
    /// Saves a complete download in the place, and publishes the outcome.
    pub(super) async fn save_download(self: &Arc<Self>, guid: &str) {
        // The semaphore is never closed. The wait for it does not count towards the place's time limit.
        let _turn = self.saving.acquire().await;
        let saved = match timeout(SAVING, self.saved(guid)).await {
            Ok(saved) => saved,
            // A write that has begun happens whole or not at all; its outcome is not known here.
            Err(_) => Err(format!(
                "the place gave no answer within {} s; it may be there all the same",
                SAVING.as_secs()
            )),
        };
        self.remove_download(guid).await;
        self.state().download_saved(guid, saved);
        self.changed.send_replace(());
        self.tell_download(guid);
    }

    async fn saved(&self, guid: &str) -> Result<SavedFile, String> {
        let seen = self.state().downloads.get(guid).cloned();
        let (Some(seen), Some(folder)) = (seen, self.folder.clone()) else {
            return Err("it is gone".to_owned());
        };
        let (most, guid) = (self.state().download_bytes, guid.to_owned());
        let read = async move {
            let read = tokio::task::spawn_blocking(move || folder.read_download(&guid, most));
            let read = read.await.unwrap_or_else(|panic| Err(std::io::Error::other(panic)));
            read.map_err(|error| ToolError::internal(format!("what Chrome downloaded: {error}")))
        };
        self.place.put(&seen.name, read).await.map_err(|error| format!("{error:.500}"))
    }

    pub(super) async fn remove_download(&self, guid: &str) {
        let (folder, guid) = (self.folder.clone(), guid.to_owned());
        let removed = tokio::task::spawn_blocking(move || folder?.remove_download(&guid).err());
        if let Ok(Some(error)) = removed.await
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::debug!(%error, "a download stays until its browser is closed");
        }
    }

    pub(super) fn tell_download(&self, guid: &str) {
        let seen = self.state().downloads.get(guid).cloned();
        if let Some(seen) = seen.filter(|seen| seen.state.is_final()) {
            self.place.tell_download(&seen);
        }
    }

    /// Waits until complete downloads are saved, at most for `limit`; the others are lost.
    pub(crate) async fn settle_downloads(&self, limit: Duration) {
        self.saves.close();
        if timeout(limit, self.saves.wait()).await.is_err() {
            tracing::warn!("a browser was closed before its downloads were saved");
        }
    }
}
