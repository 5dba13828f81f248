//! `webview_wait`.

use std::time::Duration;

use hivekeep_kernel::{CallCx, Layer, ToolError, serve::Reply, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    act::act,
    browser::Browser,
    codes,
    page::{LivePage, MAX_SELECTOR},
};

/// Between two looks at the page.
const LOOK: Duration = Duration::from_millis(100);
/// A network that is idle has been for that long.
const IDLE: Duration = Duration::from_millis(500);
/// Longest wait.
const MAX_WAIT_SECS: u64 = 45;
/// Beyond it, for the answer that nothing came.
const BEYOND_SECS: u64 = 10;

fn default_wait_secs() -> u64 {
    30
}

/// State of elements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ElementState {
    /// An element that matches can be seen.
    #[default]
    Visible,
    /// An element that matches is in the page.
    Attached,
    /// None can be seen.
    Hidden,
}

/// Wait until the page is as you want it: all that is given has to hold.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wait {
    /// CSS selector; empty to wait for the rest alone.
    #[schemars(length(max = MAX_SELECTOR))]
    pub(crate) selector: String,
    /// Seconds, 1 to 45.
    #[schemars(range(min = 1, max = MAX_WAIT_SECS))]
    #[serde(default = "default_wait_secs")]
    pub(crate) timeout: u64,
    /// State that the selector's elements have to be in.
    #[serde(default)]
    pub(crate) state: ElementState,
    /// Text that the element, or the page without a selector, has to show.
    #[schemars(length(min = 1, max = 1_000))]
    pub(crate) text: Option<String>,
    /// Part of the URL that the page has to have.
    #[schemars(length(min = 1, max = 2_048))]
    pub(crate) url: Option<String>,
    /// Whether the page has to have no request running for half a second.
    #[serde(default)]
    pub(crate) network_idle: bool,
}

/// Wait that ended because all its conditions hold.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Waited {
    /// Always true; what did not come is an error.
    pub(crate) success: bool,
    /// After what time.
    pub(crate) message: String,
}

fn limit_secs(input: &Value) -> Option<u64> {
    let asked = input.get("timeout").and_then(Value::as_u64);
    Some(asked.unwrap_or_else(default_wait_secs) + BEYOND_SECS)
}

tools! { pub(crate) FAMILY: "browser" for Browser, singleton browsers;
    webview_wait: Wait => Waited = Browser::wait {
        title: "Wait for the page", effect: Read, open_world: true, limit_secs: limit_secs,
    };
}

impl Browser {
    fn wait(&mut self, cx: &CallCx, input: Wait) -> Result<Reply<Waited>, ToolError> {
        if input.selector.is_empty()
            && input.text.is_none()
            && input.url.is_none()
            && !input.network_idle
        {
            return Err(ToolError::invalid("give a selector, `text`, `url` or `network_idle`"));
        }
        // The wait ends first, and says what is missing.
        let limit = input.timeout + BEYOND_SECS / 2;
        Ok(act(self, cx, limit, move |page, _| wait(page, input)))
    }
}

async fn wait(page: LivePage, input: Wait) -> Result<Waited, ToolError> {
    let (begun, limit) = (Instant::now(), Duration::from_secs(input.timeout));
    let (mut missing, mut looking) = ("the element or text", true);
    let held = async {
        let mut idle = IdleMeter::default();
        loop {
            looking = true;
            match lacking(&page, &input, &mut idle).await? {
                None => return Ok(()),
                Some(what) => missing = what,
            }
            looking = false;
            sleep(LOOK).await;
        }
    };
    match timeout(limit, held).await {
        Ok(Ok(())) => {
            let message = format!("it was so after {} ms", begun.elapsed().as_millis());
            Ok(Waited { success: true, message })
        }
        Ok(Err(error)) => Err(error),
        Err(_) if looking && !page.chrome.answers(&page).await => {
            Err(page.chrome.overdue(&page, limit).await)
        }
        Err(_) => {
            let message = format!("not within {} s: {missing}", input.timeout);
            Err(ToolError::new(Layer::Actor, codes::BROWSER_TIMED_OUT, message)
                .next("look at the page with webview_snapshot")
                .detail("missing", missing))
        }
    }
}

/// Condition that does not hold yet; `None` once all hold.
async fn lacking(
    page: &LivePage,
    input: &Wait,
    idle: &mut IdleMeter,
) -> Result<Option<&'static str>, ToolError> {
    if input.url.as_ref().is_some_and(|part| !page.url().contains(part.as_str())) {
        return Ok(Some("the URL"));
    }
    if !input.selector.is_empty() || input.text.is_some() {
        let args = json!({
            "selector": input.selector, "state": input.state, "text": input.text,
        });
        // Without an answer the document went away, and the next one is looked at.
        if page.script::<bool>("holds", args).await? != Some(true) {
            return Ok(Some("the element or text"));
        }
    }
    if input.network_idle && !idle.is_idle(page) {
        return Ok(Some("an idle network"));
    }
    Ok(None)
}

/// Time since requests began or ended.
#[derive(Default)]
struct IdleMeter(Option<(u64, Instant)>);

impl IdleMeter {
    fn is_idle(&mut self, page: &LivePage) -> bool {
        let state = page.chrome.state();
        let Some(tab) = state.of_target(&page.target) else { return false };
        match self.0 {
            Some((traffic, since)) if traffic == tab.traffic => {
                tab.busy() == 0 && since.elapsed() >= IDLE
            }
            _ => {
                self.0 = Some((tab.traffic, Instant::now()));
                false
            }
        }
    }
}
