//! Downloads as Chrome reports them: begun, running, over. [`crate::chrome`] saves them in the session's
//! place.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{BrowserEffect, BrowserState, apply::text};

/// Downloads of one browser.
pub(super) const MAX_DOWNLOADS: usize = 50;

/// State of a download.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DownloadState {
    /// Chrome is receiving the file.
    #[default]
    Running,
    /// Chrome has the whole file, which is on its way into the place.
    Saving,
    /// The file is in the place.
    Saved,
    /// The page, or its server, ended it.
    Cancelled,
    /// The file is larger than a download may be, and the download was stopped.
    Oversized,
    /// The file could not be put into the place; `why` says the reason.
    Failed,
}

/// File of a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SavedFile {
    pub(crate) place: String,
    pub(crate) path: String,
}

impl DownloadState {
    pub(crate) fn is_final(self) -> bool {
        !matches!(self, Self::Running | Self::Saving)
    }
}

/// A download.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct SeenDownload {
    /// Name that the server or the page suggests.
    pub(crate) name: String,
    /// URL.
    pub(crate) url: String,
    /// State of the download.
    pub(crate) state: DownloadState,
    /// Bytes received.
    pub(crate) bytes: u64,
    /// Place that it was saved in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<String>,
    /// Path in the place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    /// Why it was not saved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
}

impl BrowserState {
    pub(super) fn download(&mut self, method: &str, params: &Value) -> Option<BrowserEffect> {
        let guid = text(params, "guid");
        match method {
            "Browser.downloadWillBegin" => self.download_begins(guid, params),
            "Browser.downloadProgress" => self.download_goes_on(guid, params),
            _ => None,
        }
    }

    fn download_begins(&mut self, guid: &str, params: &Value) -> Option<BrowserEffect> {
        // The id names a file in the browser's folder.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if guid.is_empty() || guid.len() > 64 || !guid.bytes().all(plain) {
            return None;
        }
        let short = |key: &str, most: usize| text(params, key).chars().take(most).collect();
        let (name, url): (String, String) = (short("suggestedFilename", 200), short("url", 500));
        if self.downloads.len() >= MAX_DOWNLOADS {
            let why = format!("{name} was not downloaded: {MAX_DOWNLOADS} were, as many as may");
            self.console.push("error", &why, &url, None);
            return Some(BrowserEffect::CancelDownload(guid.to_owned()));
        }
        let download = SeenDownload { name, url, ..SeenDownload::default() };
        self.happened.download(guid);
        self.downloads.insert(guid.to_owned(), download);
        None
    }

    fn download_goes_on(&mut self, guid: &str, params: &Value) -> Option<BrowserEffect> {
        let most = self.download_bytes;
        let seen = self.downloads.get_mut(guid)?;
        if seen.state != DownloadState::Running {
            return None;
        }
        let number = |key: &str| params[key].as_f64().unwrap_or_default() as u64;
        seen.bytes = number("receivedBytes");
        let word = text(params, "state");
        let (guid, over) = (guid.to_owned(), word == "completed");
        let (state, effect) = match word {
            "canceled" => (DownloadState::Cancelled, BrowserEffect::TellDownload(guid.clone())),
            _ if seen.bytes.max(number("totalBytes")) > most => {
                let mb = most / (1024 * 1024);
                let why = format!("it is larger than {mb} MiB");
                self.console.push("error", &format!("{}: {why}", seen.name), &seen.url, None);
                seen.why = Some(why);
                let effect = match over {
                    true => BrowserEffect::RemoveDownload(guid.clone()),
                    false => BrowserEffect::CancelDownload(guid.clone()),
                };
                (DownloadState::Oversized, effect)
            }
            "completed" => (DownloadState::Saving, BrowserEffect::SaveDownload(guid.clone())),
            _ => return None,
        };
        seen.state = state;
        self.happened.download(&guid);
        Some(effect)
    }

    /// Records the outcome of saving a download.
    pub(crate) fn download_saved(&mut self, guid: &str, saved: Result<SavedFile, String>) {
        let Some(seen) = self.downloads.get_mut(guid) else { return };
        match saved {
            Ok(SavedFile { place, path }) => {
                (seen.place, seen.path) = (Some(place), Some(path));
                seen.state = DownloadState::Saved;
            }
            Err(why) => {
                let told = format!("{} was not saved: {why}", seen.name);
                self.console.push("error", &told, &seen.url, None);
                (seen.state, seen.why) = (DownloadState::Failed, Some(why));
            }
        }
        self.happened.download(guid);
    }
}
