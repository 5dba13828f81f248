//! Chrome's events, applied to the browser's state, and their effects: pages attached to, dialogs
//! answered, downloads on their way from the browser's folder into the place of its session.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use hivekeep_kernel::ToolError;
use hivekeep_runtime::json_text;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::Chrome;
use crate::{
    cdp::{CdpError, CdpEvent},
    place::SAVING,
    state::{BrowserEffect, SavedFile},
};

/// Time limit of the requests that an event calls for.
const PATIENCE: Duration = Duration::from_secs(10);

impl Chrome {
    pub(super) fn apply(self: &Arc<Self>, event: &CdpEvent) {
        let params = match json_text::from_str::<Value>(event.params.get()) {
            Ok(params) => params,
            Err(error) => {
                return tracing::warn!(method = event.method, %error, "a browser's event is left out");
            }
        };
        let refused = |url: &str| self.refused(url);
        let effect = self.state().apply(&event.method, event.session.as_deref(), &params, &refused);
        self.changed.send_replace(());
        let Some(effect) = effect else { return };
        // The pump does not wait for answers, which come through it.
        let chrome = self.clone();
        if let BrowserEffect::SaveDownload(guid) = effect {
            self.saves.spawn(async move { chrome.save_download(&guid).await });
            return;
        }
        tokio::spawn(async move {
            if timeout(PATIENCE, chrome.perform(effect)).await.is_err() {
                tracing::debug!("a browser did not do what an event called for in its time");
            }
        });
    }

    async fn perform(self: &Arc<Self>, effect: BrowserEffect) {
        let cdp = &self.cdp;
        // An error is ignored: the page, dialog or download may be gone by now.
        let _done: Result<Value, CdpError> = match effect {
            BrowserEffect::Attach(target) => match self.attach(&target).await {
                Ok(_) => self.to_front().await,
                Err(error) => Err(error),
            },
            BrowserEffect::CloseTarget(target) => {
                cdp.call(None, "Target.closeTarget", json!({ "targetId": target })).await
            }
            BrowserEffect::Dialog { session, accept, text } => {
                let mut params = json!({ "accept": accept });
                if let Some(text) = text {
                    params["promptText"] = text.into();
                }
                cdp.call(Some(&session), "Page.handleJavaScriptDialog", params).await
            }
            BrowserEffect::SaveDownload(guid) | BrowserEffect::RemoveDownload(guid) => {
                self.remove_download(&guid).await;
                return self.tell_download(&guid);
            }
            BrowserEffect::TellDownload(guid) => return self.tell_download(&guid),
            BrowserEffect::TellPage(end) => {
                if !self.closing.load(Relaxed) {
                    self.place.tell_page(&end);
                }
                return;
            }
            BrowserEffect::CancelDownload(guid) => {
                self.tell_download(&guid);
                let params = json!({ "guid": guid, "browserContextId": self.context });
                cdp.call(None, "Browser.cancelDownload", params).await
            }
        };
    }

    /// Saves a complete download in the place, and publishes the outcome.
    async fn save_download(self: &Arc<Self>, guid: &str) {
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

    async fn remove_download(&self, guid: &str) {
        let (folder, guid) = (self.folder.clone(), guid.to_owned());
        let removed = tokio::task::spawn_blocking(move || folder?.remove_download(&guid).err());
        if let Ok(Some(error)) = removed.await
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::debug!(%error, "a download stays until its browser is closed");
        }
    }

    fn tell_download(&self, guid: &str) {
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
