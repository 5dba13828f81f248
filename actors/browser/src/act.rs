//! Frame of each call about a page: its page, its time, and what becomes of either. A call that is not answered in
//! its time is diagnosed: a page that takes long, one that hangs, or a browser that does.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{CallCx, Layer, ToolError, serve::Reply};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::{browser::Browser, chrome::Chrome, codes, page::LivePage, session::SessionBrowser};

/// Longest time of a call about a page.
pub(crate) const MAX_SECS: u64 = 120;
/// Left of a call's time for its answer, and for finding out why there was none.
const MARGIN: Duration = Duration::from_millis(500);
/// Time for an idle page to answer, on a busy host.
const PAGE_ANSWER: Duration = Duration::from_secs(2);
/// Time for the browser to answer, on a busy host.
const BROWSER_ANSWER: Duration = Duration::from_secs(5);

pub(crate) fn default_secs() -> u64 {
    30
}

/// Runs work about the session's page beside the mailbox, for `limit_secs` at most.
pub(crate) fn act<T, F>(
    browser: &Browser,
    cx: &CallCx,
    limit_secs: u64,
    work: impl FnOnce(LivePage, Duration) -> F + Send + 'static,
) -> Reply<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T, ToolError>> + Send,
{
    let (shared, cx) = (browser.shared.clone(), cx.clone());
    Reply::later(async move { acted(&shared, &cx, limit_secs, work).await })
}

async fn acted<T, F>(
    shared: &Arc<SessionBrowser>,
    cx: &CallCx,
    limit_secs: u64,
    work: impl FnOnce(LivePage, Duration) -> F,
) -> Result<T, ToolError>
where
    F: Future<Output = Result<T, ToolError>>,
{
    let _running = shared.running();
    let page = cx.guard(shared.page()).await?;
    let limit = Duration::from_secs(limit_secs).min(cx.remaining().saturating_sub(MARGIN));
    let chrome = page.chrome.clone();
    let mut doubt = Doubt(Some(page.clone()));
    let outcome = tokio::select! {
        biased;
        why = page_over(&chrome, &page) => Err(why),
        done = work(page.clone(), limit) => match done {
            Err(error) if error.is(codes::BROWSER_CRASHED) => Err(shared.crashed(&chrome).await),
            // Its event is on its way.
            Err(error) if error.is(codes::BROWSER_PAGE_CLOSED) => Err(page_over(&chrome, &page).await),
            done => done,
        },
        () = cx.cancel.cancelled() => return Err(ToolError::cancelled()),
        () = chrome.cdp.ended() => Err(shared.crashed(&chrome).await),
        () = sleep(limit) => Err(chrome.overdue(&page, limit).await),
    };
    doubt.0 = None;
    outcome
}

/// Waits until the page is gone, or its process.
async fn page_over(chrome: &Arc<Chrome>, page: &LivePage) -> ToolError {
    let over = chrome.until(|state| match state.of_target(&page.target) {
        Some(tab) => tab.crashed.clone().map(Some),
        None => Some(None),
    });
    let Some(why) = over.await else {
        let message = "the page was closed while the call ran";
        return ToolError::new(Layer::Actor, codes::BROWSER_PAGE_CLOSED, message)
            .next("go on with another page, or load one with webview_navigate")
            .detail("outcome", "unknown");
    };
    let message = format!("the page's process ended ({why})");
    ToolError::new(Layer::Actor, codes::BROWSER_PAGE_CRASHED, message)
        .next("load it again with webview_navigate, or another page")
        .detail("outcome", "unknown")
}

/// Stops what a call that nobody waits for any more may have left running in its page.
struct Doubt(Option<LivePage>);

impl Drop for Doubt {
    fn drop(&mut self) {
        if let Some(page) = self.0.take() {
            page.chrome.clone().unstick(&page);
        }
    }
}

impl Chrome {
    /// Says why a page gave no answer in time. A script that runs without an end is stopped; a browser
    /// that gives no answer is ended.
    pub(crate) async fn overdue(self: &Arc<Self>, page: &LivePage, limit: Duration) -> ToolError {
        let secs = limit.as_secs_f64();
        if self.answers(page).await {
            let message = format!("it was not done within {secs:.1} s; the page answers");
            return ToolError::new(Layer::Actor, codes::BROWSER_TIMED_OUT, message)
                .next("look at the page with webview_snapshot");
        }
        // While a document is loading, the one before it does not answer.
        let loading = self.state().of_target(&page.target).is_some_and(|tab| tab.loading);
        let stop = self.cdp.call::<Value>(Some(&page.session), "Page.stopLoading", json!({}));
        if loading && timeout(PAGE_ANSWER, stop).await.is_ok() && self.answers(page).await {
            let message =
                format!("nothing came within {secs:.1} s, and the page's loading was stopped");
            return ToolError::new(Layer::Actor, codes::BROWSER_TIMED_OUT, message)
                .next("try again with a larger limit, or another page")
                .detail("loading_stopped", true);
        }
        let call = self.cdp.call::<Value>(None, "Browser.getVersion", json!({}));
        if !matches!(timeout(BROWSER_ANSWER, call).await, Ok(Ok(_))) {
            self.hung.notify_one();
            let message = "Chrome gives no answer any more and is ended";
            return ToolError::new(Layer::Actor, codes::BROWSER_CRASHED, message)
                .next("begin again with webview_navigate")
                .detail("outcome", "unknown");
        }
        let stop =
            self.cdp.call::<Value>(Some(&page.session), "Runtime.terminateExecution", json!({}));
        let _stopped = timeout(PAGE_ANSWER, stop).await;
        let again = self.answers(page).await;
        let data = json!({ "tab": page.target, "url": page.url(), "page_answers_again": again });
        self.place.publish("browser.page_hung", data);
        let message = format!("a script of the page runs without an end, for {secs:.1} s at least");
        ToolError::new(Layer::Actor, codes::BROWSER_PAGE_HUNG, message)
            .next("webview_navigate loads it again, or another page")
            .detail("page_answers_again", again)
    }

    /// Stops a script that nobody waits for any more, if it keeps the page from answering.
    fn unstick(self: &Arc<Self>, page: &LivePage) {
        let (chrome, page) = (self.clone(), page.clone());
        tokio::spawn(async move {
            if !chrome.answers(&page).await {
                let (session, none) = (Some(page.session.as_str()), json!({}));
                let stop = chrome.cdp.call::<Value>(session, "Runtime.terminateExecution", none);
                // A script that cannot be stopped is diagnosed by the next call.
                let _stopped = timeout(PAGE_ANSWER, stop).await;
            }
        });
    }

    /// Whether the page's scripts run to their ends.
    pub(crate) async fn answers(&self, page: &LivePage) -> bool {
        let params = json!({ "expression": "1", "returnByValue": true });
        let call = self.cdp.call::<Value>(Some(&page.session), "Runtime.evaluate", params);
        matches!(timeout(PAGE_ANSWER, call).await, Ok(Ok(_)))
    }
}
