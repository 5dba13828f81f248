//! Frame of each call about a page: its page, its time, and what becomes of either.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{CallCx, Layer, ToolError, serve::Reply};
use tokio::time::sleep;

use crate::{browser::Browser, chrome::Chrome, codes, page::LivePage, session::SessionBrowser};

/// Left of a call's time for its answer, and for finding out why there was none.
const MARGIN: Duration = Duration::from_millis(500);

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
