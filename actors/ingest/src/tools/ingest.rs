//! The tool `rag_ingest`.

use std::time::Duration;

use chrono::Utc;
use hivekeep_kernel::{CallCx, Layer, Reply, ToolError, codes as common, tools};
use hivekeep_runtime::saga::SagaHandle;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::default_collection;
use crate::{
    codes,
    collections::{Collections, Msg},
    embed,
    ingestion::Ingestion,
    reading::SourcePlace,
    state::{FailedFile, IngestionPlan, IngestionReport},
};

/// Time of an ingestion's call; the ingestion goes on behind it.
const INGEST_SECS: u64 = 3_600;
/// Time limit of questions that only decide.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for one that watches to end, before another begins.
const WATCH_ENDS: Duration = Duration::from_secs(60);
/// Margin before the call's deadline: the answer that says how to continue has to arrive.
const MARGIN: Duration = Duration::from_secs(1);

/// Ingest a file or a folder of a place into a collection, to be asked with rag_query. Markdown, text, source
/// code, HTML and PDF are read. Repeating it brings the collection up to date: only what has changed is
/// embedded, and what is of edited or removed files goes. Cancelling the call stops it; after its time limit it
/// goes on, and the same call follows it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RagIngest {
    /// File or folder, from the place's root.
    #[schemars(length(min = 1, max = 4096))]
    pub path: String,
    /// Collection; it is made if it is not there.
    #[serde(default = "default_collection")]
    #[schemars(length(min = 1, max = 64))]
    pub collection: String,
    /// Empty the collection first.
    #[serde(default)]
    pub recreate: bool,
    /// Place that the path is in, as for the file tools: `session`, a workspace, `volume:LABEL`, or a folder of
    /// the host that the operator opened. Default: that of the file tools.
    #[schemars(length(min = 1, max = 256))]
    pub place: Option<String>,
    /// True: stay, and ingest what changes, until a call with false ends that. It outlives the daemon.
    pub watch: Option<bool>,
}

/// Outcome of an ingestion.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Ingested {
    /// True if it came to its end. Single files may have failed all the same.
    pub success: bool,
    /// Path.
    pub path: String,
    /// Collection.
    pub collection: String,
    /// Passages of the files that were read.
    pub chunks: u64,
    /// All in a sentence.
    pub message: String,
    /// Place.
    pub place: String,
    /// Files with text.
    pub files: u64,
    /// Passages that were embedded now; the others were there.
    pub embedded: u64,
    /// Passages of edited and removed files that went.
    pub removed: u64,
    /// Files without text: blank, or not text.
    pub skipped: u64,
    /// Files that were skipped, or of which only a part was read, the first 20.
    pub left_out: Vec<FailedSource>,
    /// Files that failed, the first 20.
    pub failed: Vec<FailedSource>,
    /// Number of all files that failed.
    pub failed_count: u64,
    /// True if it stays and ingests what changes.
    pub watching: bool,
}

/// File that failed or was left out.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct FailedSource {
    /// Path.
    pub path: String,
    /// Why.
    pub why: String,
}

tools! {
    pub FAMILY: "rag" for Collections, singleton collections;
    rag_ingest: RagIngest => Ingested = Collections::on_ingest {
        title: "Ingest a folder", risk: Risk::Medium, timeout_secs: INGEST_SECS, told_by: Some("rag_collections"),
    };
}

impl Collections {
    pub(super) fn on_ingest(
        &mut self,
        cx: &CallCx,
        input: RagIngest,
    ) -> Result<Reply<Ingested>, ToolError> {
        let user = self.shared.user(cx.session)?;
        check_name(&input.collection)?;
        let places = self.shared.places()?;
        let (shared, manager, cx) = (self.shared.clone(), self.me.address.clone(), cx.clone());
        Ok(Reply::later(async move {
            let names = shared.embedder.names().await?;
            let found = manager
                .ask(PATIENCE, |reply| Msg::find(user, input.collection.clone(), reply))
                .await?;
            if let Some(kept) = found.ok().filter(|_| !input.recreate).and_then(|state| state.model)
            {
                embed::may_be_same(&input.collection, &kept.model, &names)?;
            }
            let located = places.locate(&cx, input.place.as_deref()).await?;
            let place = SourcePlace {
                files: places,
                session: cx.session,
                id: located.id.clone(),
                stop: cx.cancel.clone(),
            };
            let found = cx.guard(place.find(&input.path, shared.options.max_files)).await?;
            found.not_none(&input.path)?;
            let plan = IngestionPlan {
                session: cx.session,
                place: located.id,
                path: input.path.clone(),
                recreate: input.recreate,
                watch: input.watch == Some(true),
                at: Utc::now(),
            };
            let end_watch = input.watch == Some(false);
            let asked = |reply| Msg::begin(user, input.collection.clone(), plan, end_watch, reply);
            let handle = manager.ask(WATCH_ENDS, asked).await??;
            // From here on it only waits, and there are no more of its kind than ingestions that run.
            cx.slot.give_back();
            let report = follow(&input.collection, &cx, &shared.closing, &handle).await?;
            Ok(answer(located.name, input, report, handle.state().run.is_some()))
        }))
    }
}

/// # Errors
/// `invalid_input`.
fn check_name(name: &str) -> Result<(), ToolError> {
    let legal = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    match (1..=64).contains(&name.len()) && name.chars().all(legal) {
        true => Ok(()),
        false => {
            let why = format!(
                "`{name:.80}` is not a valid collection: 1 to 64 of letters, digits, `_`, `-` and `.`"
            );
            Err(ToolError::invalid(why))
        }
    }
}

/// Waits for the end, tells of the way there, and passes a cancellation on. A stop of the daemon is none.
async fn follow(
    collection: &str,
    cx: &CallCx,
    closing: &CancellationToken,
    handle: &SagaHandle<Ingestion>,
) -> Result<IngestionReport, ToolError> {
    let mut view = handle.watch();
    let soon = cx.deadline - MARGIN.min(cx.remaining() / 10);
    let goes_on = |code, why: &str| {
        let message = format!("{why}; the ingestion into `{collection}` goes on");
        Err(ToolError::new(Layer::Actor, code, message)
            .next("the same call follows it; rag_collections with show_stats shows how far it is"))
    };
    let mut told = (usize::MAX, 0);
    loop {
        {
            let view = view.borrow_and_update();
            let run = view.state.run.as_ref();
            if let (true, Some(report)) = (run.is_none_or(|run| run.watching), &view.state.last) {
                return ended(report);
            }
            if let Some(why) = &view.given_up {
                let message = format!("the ingestion stopped until the daemon's next start: {why}");
                return Err(ToolError::new(Layer::Actor, codes::INGESTION_FAILED, message));
            }
            let live = &view.live;
            let now = (live.files_done, live.embedded);
            if now != told && live.files_total > 0 {
                told = now;
                let message = format!(
                    "{} of {} files, {} passages embedded",
                    live.files_done, live.files_total, live.embedded
                );
                cx.progress.report(live.files_done as f64, Some(live.files_total as f64), message);
            }
        }
        tokio::select! {
            biased;
            // The handle keeps it open.
            _ = view.changed() => {}
            () = closing.cancelled() => {
                return goes_on(common::DAEMON_STOPPING, "the daemon is being stopped, and goes on with it at its next start");
            }
            () = tokio::time::sleep_until(soon) => {
                return goes_on(common::DEADLINE_EXCEEDED, "the call's time is over");
            }
            () = cx.cancel.cancelled() => {
                if Instant::now() >= soon {
                    return goes_on(common::DEADLINE_EXCEEDED, "the call's time is over");
                }
                handle.cancel().await?;
                let over = view.wait_for(|view| view.state.run.is_none() || view.given_up.is_some());
                // The handle keeps it open.
                let _over = over.await;
                return Err(ToolError::cancelled());
            }
        }
    }
}

fn ended(report: &IngestionReport) -> Result<IngestionReport, ToolError> {
    match &report.error {
        None => Ok(report.clone()),
        Some(error) => {
            let done = format!("; {} passages were embedded before, and stay", report.embedded);
            let message = format!("{}{done}", error.message);
            Err(ToolError { message, ..error.clone() }.detail("embedded", report.embedded))
        }
    }
}

fn answer(place: String, input: RagIngest, report: IngestionReport, watching: bool) -> Ingested {
    let IngestionReport {
        files,
        chunks,
        embedded,
        removed,
        skipped,
        left_out,
        failed,
        failed_total,
        error: _,
    } = report;
    let failures =
        if failed_total > 0 { format!(", {failed_total} files failed") } else { String::new() };
    let message = format!(
        "{files} files, {chunks} passages: {embedded} embedded, {} unchanged, {removed} removed{failures}",
        chunks.saturating_sub(embedded)
    );
    let named = |files: Vec<FailedFile>| {
        files.into_iter().map(|FailedFile { path, why }| FailedSource { path, why }).collect()
    };
    Ingested {
        success: true,
        path: input.path,
        collection: input.collection,
        chunks,
        message,
        place,
        files,
        embedded,
        removed,
        skipped,
        left_out: named(left_out),
        failed: named(failed),
        failed_count: failed_total,
        watching,
    }
}
