//! Frame of each call about a page: its page, its time, and what becomes of either.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{CallCx, Layer, ToolError, serve::Reply};
use tokio::time::sleep;

use crate::{
    browser::Browser, chrome::Chrome, codes, page::Page, session::SessionBrowser,
};

/// Left of a call's time for its answer, and for finding out why there was none.
const MARGIN: Duration = Duration::from_millis(500);

/// Runs work about the session's page beside the mailbox, for `limit_secs` at most.
pub(crate) fn act<T, F>(
    browser: &Browser,
    cx: &CallCx,
    limit_secs: u64,
    work: impl FnOnce(Page, Duration) -> F + Send + 'static,
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
    work: impl FnOnce(Page, Duration) -> F,
) -> Result<T, ToolError>
where
    F: Future<Output = Result<T, ToolError>>,
{
    let page = cx.guard(shared.page(cx)).await?;
    let limit = Duration::from_secs(limit_secs).min(cx.remaining().saturating_sub(MARGIN));
    let chrome = page.chrome.clone();
    let mut doubt = Doubt(Some(page.clone()));
    let outcome = tokio::select! {
        biased;
        why = page_crashed(&chrome, &page) => Err(why),
        done = work(page.clone(), limit) => match done {
            Err(error) if error.is(codes::BROWSER_CRASHED) => Err(shared.crashed(&chrome).await),
            done => done,
        },
        () = cx.cancel.cancelled() => return Err(ToolError::cancelled()),
        () = chrome.cdp.ended() => Err(shared.crashed(&chrome).await),
        () = sleep(limit) => Err(chrome.overdue(&page, limit).await),
    };
    doubt.0 = None;
    outcome
}

/// Waits until the page's process ends.
async fn page_crashed(chrome: &Arc<Chrome>, page: &Page) -> ToolError {
    let why = chrome.until(|state| state.of_target(&page.target)?.crashed.clone()).await;
    let message = format!("the page's process ended ({why})");
    ToolError::new(Layer::Actor, codes::BROWSER_PAGE_CRASHED, message)
        .next("load it again with webview_navigate, or another page")
        .detail("outcome", "unknown")
}

/// Stops what a call that nobody waits for any more may have left running in its page.
struct Doubt(Option<Page>);

impl Drop for Doubt {
    fn drop(&mut self) {
        if let Some(page) = self.0.take() {
            page.chrome.clone().unstick(&page);
        }
    }
}
