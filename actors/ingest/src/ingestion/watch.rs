//! Watcher of files: the kernel's notices for a folder of the host, and polling elsewhere.
//!
//! A notice says only that something may have changed, so notices need no queue. The next round finds the
//! changes by itself, also those of lost notices.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hivekeep_kernel::{CallCx, ToolError, codes as common};
use notify::{
    Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode},
};
use tokio::{sync::Notify, task::spawn_blocking, time::timeout};

use super::Ingestion;
use crate::{
    Options,
    state::{IngestionReport, IngestionRun},
};

/// Time without a change that ends a burst of them.
const QUIET: Duration = Duration::from_millis(300);
/// Time limit to locate the watched place.
const LOCATE_LIMIT: Duration = Duration::from_secs(30);
/// Longest wait for the end of a burst.
const LONGEST_BURST: Duration = Duration::from_secs(5);

/// Watcher of one path.
pub(super) struct Watcher {
    notices: Option<Notices>,
    /// Time after which files are looked at without a notice.
    interval: Duration,
    /// Why there are no notices.
    why: String,
}

struct Notices {
    new: Arc<Notify>,
    /// Ends the notices when it is dropped.
    _watcher: RecommendedWatcher,
}

impl Watcher {
    /// Watches a path in a folder of the host. In another place, in one that was not found, or where the
    /// kernel refuses a watch, the path is polled.
    pub(super) async fn begin(
        folder: Result<Option<PathBuf>, ToolError>,
        path: &str,
        options: &Options,
    ) -> Self {
        let polled = |why: String| Self {
            notices: None,
            interval: Duration::from_secs(options.poll_secs),
            why,
        };
        let folder = match folder {
            Ok(Some(folder)) => folder,
            Ok(None) => return polled(String::new()),
            Err(error) => return polled(format!(": {}", error.message)),
        };
        let path = folder.join(path.trim_start_matches('/'));
        match spawn_blocking(move || Notices::begin(&path)).await {
            Ok(Ok(notices)) => Self {
                notices: Some(notices),
                interval: Duration::from_secs(options.full_pass_secs),
                why: String::new(),
            },
            Ok(Err(error)) => polled(format!(": {error}")),
            Err(panic) => polled(format!(": {panic}")),
        }
    }

    /// How changes are noticed, for people.
    pub(super) fn told(&self) -> String {
        let secs = self.interval.as_secs();
        match &self.notices {
            Some(_) => format!("at once, and by a look every {secs} s"),
            None => format!("by a look every {secs} s{}", self.why),
        }
    }

    /// Waits until something may be new, and a burst of changes is over.
    pub(super) async fn changed(&self) {
        let Some(Notices { new, .. }) = &self.notices else {
            return tokio::time::sleep(self.interval).await;
        };
        if timeout(self.interval, new.notified()).await.is_err() {
            return;
        }
        let burst = async { while timeout(QUIET, new.notified()).await.is_ok() {} };
        let _long_enough = timeout(LONGEST_BURST, burst).await;
    }
}

impl Ingestion {
    /// Watcher of the plan's path; `None` if the plan does not watch.
    pub(super) async fn watcher(&self, run: &IngestionRun) -> Option<Watcher> {
        if !run.plan.watch {
            return None;
        }
        let (span, stop) = (tracing::Span::current(), self.handle.cancelled().clone());
        let cx = CallCx::internal(run.plan.session, LOCATE_LIMIT, stop, span);
        let folder = match self.shared.places() {
            Ok(places) => places.locate(&cx, Some(&run.plan.place)).await.map(|place| place.folder),
            Err(error) => Err(error),
        };
        Some(Watcher::begin(folder, &run.plan.path, &self.shared.options).await)
    }

    /// Waits until something may be new; false without a watcher, or when the ingestion is cancelled.
    pub(super) async fn changed(&self, watcher: Option<Watcher>) -> bool {
        let Some(watcher) = watcher else { return false };
        self.handle.update(|live| live.waits = Some(watcher.told()));
        self.handle.cancelled().run_until_cancelled(watcher.changed()).await.is_some()
    }
}

/// Whether a round has done anything, or has another outcome than the last that had.
pub(super) fn is_news(report: &IngestionReport, last: &IngestionReport) -> bool {
    let outcome = |report: &IngestionReport| {
        let error = report.error.as_ref().map(|error| error.code.clone());
        let named = (report.left_out.clone(), report.failed.clone());
        (report.files, report.chunks, report.skipped, named, error)
    };
    report.embedded + report.removed > 0 || outcome(report) != outcome(last)
}

/// Whether the watched place is gone for good, or another's.
pub(super) fn is_over(error: &ToolError) -> bool {
    error.is_any(&[
        common::PLACE_UNKNOWN,
        common::NOT_OWNER,
        common::WORKSPACE_NOT_FOUND,
        common::VOLUME_NOT_FOUND,
    ])
}

impl Notices {
    /// Begins to watch a path. Blocks: the folder is walked.
    fn begin(path: &Path) -> notify::Result<Self> {
        // Editors replace a file: only a watch of its folder notices that.
        let (folder, mode) = match path.is_dir() {
            true => (path, RecursiveMode::Recursive),
            false => (path.parent().unwrap_or(path), RecursiveMode::NonRecursive),
        };
        let new = Arc::new(Notify::new());
        let (noticed, root) = (new.clone(), folder.to_owned());
        let tell = move |event: notify::Result<Event>| {
            // An error may stand for a change.
            if event.as_ref().map_or(true, |event| is_change(&root, event)) {
                noticed.notify_one();
            }
        };
        let config = Config::default().with_follow_symlinks(false);
        let mut watcher = RecommendedWatcher::new(tell, config)?;
        watcher.watch(folder, mode)?;
        Ok(Self { new, _watcher: watcher })
    }
}

/// Whether an event may be of a file that is ingested: not of one that is only read, and of no hidden one.
fn is_change(root: &Path, event: &Event) -> bool {
    let hidden = |path: &PathBuf| {
        let below = path.strip_prefix(root).unwrap_or(path);
        below.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"."))
            && !below.ends_with(".gitignore")
    };
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => {}
        EventKind::Access(_) => return false,
        _ => {}
    }
    event.paths.is_empty() || !event.paths.iter().all(hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn changes_are_noticed_and_reading_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("deep/a.md");
        std::fs::create_dir(folder.path().join("deep")).expect("made");
        std::fs::write(&file, "a").expect("writes");
        let begin = async |path: &str| {
            Watcher::begin(Ok(Some(folder.path().to_owned())), path, &Options::default()).await
        };
        let watcher = begin(".").await;
        std::fs::write(&file, "b").expect("writes");
        watcher.changed().await;
        // Another folder is watched as soon as it is there, and a file by the folder that it is in.
        let single = begin("deep/a.md").await;
        std::fs::write(folder.path().join("deep/.new"), "c").expect("writes");
        std::fs::rename(folder.path().join("deep/.new"), &file).expect("renamed");
        watcher.changed().await;
        single.changed().await;
        assert!(watcher.told().starts_with("at once"), "{}", watcher.told());
        let away = Watcher::begin(Ok(None), ".", &Options::default()).await;
        assert_eq!(away.told(), "by a look every 30 s");
        let lost =
            ToolError::new(hivekeep_kernel::Layer::Actor, common::WORKSPACE_STATE, "box is asleep");
        let lost = Watcher::begin(Err(lost), ".", &Options::default()).await;
        assert_eq!(lost.told(), "by a look every 30 s: box is asleep");
        // Where the kernel gives no notices, it says why.
        let refused = begin("nothing/of/it").await.told();
        assert!(refused.starts_with("by a look every 30 s: "), "{refused}");
    }

    #[test]
    fn what_is_read_or_hidden_is_no_change() {
        let root = Path::new("/r");
        let event = |kind, path: &str| Event::new(kind).add_path(root.join(path));
        let modify = EventKind::Modify(notify::event::ModifyKind::Any);
        assert!(is_change(root, &event(modify, "a/b.md")));
        assert!(is_change(root, &event(modify, "a/.gitignore")));
        assert!(!is_change(root, &event(modify, ".git/index")));
        assert!(!is_change(root, &event(EventKind::Access(AccessKind::Read), "a/b.md")));
        assert!(is_change(root, &Event::new(EventKind::Other)), "of nobody knows what");
    }
}
