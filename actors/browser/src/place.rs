//! Place of a session as its browser sees it: where downloads go, and where uploads come from.

use std::{sync::Arc, time::Duration};

use hivekeep_file_engine::{
    ByteRange, FileOperation, FilePut, MAX_CONTENT_BYTES, Operation, PutFile, ReadBytes, decode,
    encode,
};
use hivekeep_kernel::{CallCx, Layer, SessionId, ToolError};
use hivekeep_ports::{LocatedPlace, PlaceFiles};
use hivekeep_store::{Events, NewEvent};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    codes,
    state::{PageEnd, SavedFile, SeenDownload},
};

/// Files that are carried at a time, of all browsers.
pub(crate) const CARRIERS: usize = 2;
/// Folder of a place that downloads go to.
const FOLDER: &str = "downloads";
/// Time for a download to get into the place, whose workspace may have to be made first.
pub(crate) const SAVING: Duration = Duration::from_secs(120);
/// Bytes of a file that are read at a time.
const PIECE_BYTES: u64 = 4 * 1024 * 1024;
/// Bytes of a file's name.
const NAME_BYTES: usize = 120;
/// The same of its extension.
const EXTENSION_BYTES: usize = 16;

/// The place.
pub(crate) struct BrowserPlace {
    pub(crate) session: SessionId,
    /// Its name; `None` is the session's default place.
    pub(crate) place: Option<String>,
    /// `None` in a daemon without places.
    pub(crate) files: Option<Arc<dyn PlaceFiles>>,
    pub(crate) events: Events,
    /// Permits of files that are carried, of all browsers: each is in memory.
    pub(crate) carriers: Arc<Semaphore>,
}

fn internal(why: &str) -> ToolError {
    ToolError::internal(format!("files of a place: {why}"))
}

impl BrowserPlace {
    fn files(&self) -> Result<&dyn PlaceFiles, ToolError> {
        self.files.as_deref().ok_or_else(|| internal("this daemon has none"))
    }

    /// Where it is. A session's own workspace is made for it.
    async fn locate(&self, cx: &CallCx) -> Result<LocatedPlace, ToolError> {
        self.files()?.locate(cx, self.place.as_deref()).await
    }

    /// Runs an operation in it.
    async fn ask<O: Operation>(
        &self,
        cx: &CallCx,
        at: &LocatedPlace,
        operation: O,
    ) -> Result<O::Outcome, ToolError> {
        let operation: FileOperation = operation.into();
        let encoded = encode(&operation).map_err(|error| internal(&error.to_string()))?;
        let answer = self.files()?.run(cx, &at.id, encoded).await?;
        let outcome = decode(&answer).map_err(|why| internal(&why))?;
        O::outcome_of(outcome).ok_or_else(|| internal("another's outcome"))
    }

    /// Puts a download into the place, under the name that it suggests as far as that is one. `read` is begun when
    /// the place is there and few others are carried.
    ///
    /// # Errors
    /// Those of the place, and of `read`.
    pub(crate) async fn put(
        &self,
        suggested: &str,
        read: impl Future<Output = Result<Vec<u8>, ToolError>>,
    ) -> Result<SavedFile, ToolError> {
        let span = tracing::info_span!("download", session = %self.session);
        let cx = CallCx::internal(self.session, SAVING, CancellationToken::new(), span);
        let at = self.locate(&cx).await?;
        // Never closed.
        let _permit = self.carriers.acquire().await;
        let (path, content) = (format!("{FOLDER}/{}", file_name(suggested)), read.await?.into());
        let FilePut { name } = self.ask(&cx, &at, PutFile { path, content }).await?;
        Ok(SavedFile { place: at.name, path: format!("{FOLDER}/{name}") })
    }

    /// Reads files for an upload, with the name of each; all together have at most what one may have.
    ///
    /// # Errors
    /// Those of the place; `browser_upload_refused`.
    pub(crate) async fn get(
        &self,
        cx: &CallCx,
        paths: &[String],
    ) -> Result<Vec<(String, Vec<u8>)>, ToolError> {
        let refused = |path: &str, why: &str| {
            let message = format!("`{path:.200}` {why}");
            ToolError::new(Layer::Actor, codes::BROWSER_UPLOAD_REFUSED, message)
        };
        let (mut left, mut read) = (MAX_CONTENT_BYTES, Vec::new());
        let at = self.locate(cx).await?;
        let _permit = self.carriers.acquire().await;
        for path in paths {
            let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
            if matches!(name, "" | "." | "..") {
                return Err(refused(path, "is not a valid path of a file"));
            }
            let mut content = Vec::new();
            loop {
                let (offset, limit) = (content.len() as u64, PIECE_BYTES);
                let piece = ReadBytes { path: path.clone(), offset, limit };
                let ByteRange { bytes, size_bytes } = self.ask(cx, &at, piece).await?;
                if size_bytes > left || offset + bytes.len() as u64 > left {
                    let mb = MAX_CONTENT_BYTES / (1024 * 1024);
                    return Err(refused(path, &format!("makes more than {mb} MiB")));
                }
                content.extend(&bytes);
                if bytes.is_empty() || content.len() as u64 >= size_bytes {
                    break;
                }
            }
            left -= content.len() as u64;
            read.push((name.to_owned(), content));
        }
        Ok(read)
    }

    /// Publishes what became of a download.
    pub(crate) fn tell_download(&self, seen: &SeenDownload) {
        self.publish("browser.download", json!(seen));
    }

    /// Publishes what became of a page.
    pub(crate) fn tell_page(&self, PageEnd { target, url, crashed }: &PageEnd) {
        let kind = if crashed.is_some() { "browser.page_crashed" } else { "browser.page_closed" };
        self.publish(kind, json!({ "tab": target, "url": url, "why": crashed }));
    }

    /// Publishes an event of the session's browser.
    pub(crate) fn publish(&self, kind: &str, mut data: Value) {
        data["session"] = json!(self.session);
        let (kind, subject) = (kind.to_owned(), self.session.to_string());
        let _lost_is_counted = self.events.publish_later(NewEvent { kind, subject, data });
    }
}

/// A name for a file, out of what a server or a page suggests: the last part alone, nothing hidden, nothing
/// that changes how it is read, and not too long.
fn file_name(suggested: &str) -> String {
    let turns = |it: char| matches!(it, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let last = suggested.rsplit(['/', '\\']).next().unwrap_or_default();
    let shown: String = last.chars().filter(|it| !it.is_control() && !turns(*it)).collect();
    let name = shown.trim().trim_start_matches(['.', ' ']);
    let (stem, extension) = match name.rsplit_once('.') {
        Some((stem, extension)) if extension.len() <= EXTENSION_BYTES => {
            (stem, format!(".{extension}"))
        }
        _ => (name, String::new()),
    };
    let stem = &stem[..stem.floor_char_boundary(NAME_BYTES - extension.len())];
    match stem.is_empty() {
        true => format!("download{extension}"),
        false => format!("{stem}{extension}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_pages_suggest_are_names_of_files_in_one_folder() {
        for (suggested, name) in [
            ("report.pdf", "report.pdf"),
            ("../../etc/passwd", "passwd"),
            ("..\\..\\boot.ini", "boot.ini"),
            ("/etc/cron.d/x", "x"),
            (".bashrc", "bashrc"),
            ("...", "download"),
            ("..", "download"),
            ("", "download"),
            ("a/", "download"),
            ("a\0b\nc.txt", "abc.txt"),
            ("invoice\u{202e}fdp.exe", "invoicefdp.exe"),
            (".tar.gz", "tar.gz"),
            ("  a b.txt ", "a b.txt"),
        ] {
            assert_eq!(file_name(suggested), name, "{suggested:?}");
        }
        let long = file_name(&format!("{}.html", "ä".repeat(500)));
        assert!(long.len() <= NAME_BYTES && long.ends_with("ä.html"), "{long}");
        let long = file_name(&format!("a.{}", "x".repeat(500)));
        assert!(long.len() <= NAME_BYTES && long.starts_with("a.xxx"), "{long}");
    }
}
