//! Diagnosis of a call that is not answered in its time: a page that takes long, one that hangs, or a
//! browser that does.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{Layer, ToolError};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::Chrome;
use crate::{codes, page::LivePage};

/// Time for an idle page to answer, on a busy host.
const PAGE_ANSWER: Duration = Duration::from_secs(2);
/// Time for the browser to answer, on a busy host.
const BROWSER_ANSWER: Duration = Duration::from_secs(5);

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
    pub(crate) fn unstick(self: &Arc<Self>, page: &LivePage) {
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
