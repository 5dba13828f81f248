//! `webview_navigate`.

use std::time::Duration;

use hivekeep_kernel::{CallCx, Layer, ToolError, serve::Reply, tools};
use hivekeep_runtime::egress::{EgressRefusal, EgressRules};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::timeout;
use url::Url;

use crate::{
    act::{MAX_SECS, act, default_secs},
    browser::Browser,
    codes,
    page::{LivePage, refused},
    state::Happened,
};

/// Time for the first word of a download that a navigation turns out to be.
const DOWNLOAD_BEGINS: Duration = Duration::from_secs(2);
/// Time for its end, which is waited for.
const DOWNLOAD_ENDS: Duration = Duration::from_secs(10);

/// How far a page is loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WaitUntil {
    /// With its pictures and scripts.
    #[default]
    Load,
    /// Its document is there.
    Dom,
    /// The server answered.
    Commit,
}

/// Load a URL in the browser's page. Only http and https, and only what the operator's rules let pages reach.
/// Then read the page with webview_snapshot.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Navigate {
    /// The URL.
    #[schemars(length(min = 1, max = 2048))]
    pub(crate) url: String,
    /// Stage of loading that is waited for.
    #[serde(default)]
    pub(crate) wait_until: WaitUntil,
    /// `new` for a new page, or the id of another page; calls are about it from then on.
    #[schemars(length(max = 100))]
    pub(crate) tab: Option<String>,
    /// Time limit, 1 to 120.
    #[schemars(range(min = 1, max = MAX_SECS))]
    #[serde(default = "default_secs")]
    pub(crate) timeout_secs: u64,
}

/// The page that was loaded.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Navigated {
    /// Always true; a failure is an error.
    pub(crate) success: bool,
    /// URL that it has, after redirects.
    pub(crate) url: String,
    /// HTTP status, where a server answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u64>,
    #[serde(flatten)]
    pub(crate) happened: Happened,
}

tools! { pub(crate) FAMILY: "browser" for Browser, singleton browsers;
    webview_navigate: Navigate => Navigated = Browser::navigate {
        title: "Load a page", open_world: true,
    };
}

impl Browser {
    fn navigate(&mut self, cx: &CallCx, input: Navigate) -> Result<Reply<Navigated>, ToolError> {
        let url = admitted(&self.shared.services.egress.rules, &input.url)?;
        self.shared.revive();
        let limit_secs = input.timeout_secs;
        Ok(act(self, cx, limit_secs, move |page, _| navigate(page, url, input)))
    }
}

/// A URL that may be loaded, as far as can be said before it is.
fn admitted(rules: &EgressRules, text: &str) -> Result<Url, ToolError> {
    let parsed = Url::parse(text).map_err(|error| {
        let message = format!("`{text:.200}` is not a valid URL: {error}");
        ToolError::new(Layer::Actor, codes::BROWSER_URL_REFUSED, message)
            .next("give an http or https URL")
    })?;
    if parsed.as_str() != "about:blank" {
        rules.admit(&parsed).map_err(denied)?;
    }
    Ok(parsed)
}

fn denied(refusal: EgressRefusal) -> ToolError {
    let message = refusal.to_string();
    match refusal {
        EgressRefusal::Url(_) => ToolError::new(Layer::Actor, codes::BROWSER_URL_REFUSED, message)
            .next("give an http or https URL without user and password"),
        EgressRefusal::Target(_) => ToolError::new(
            Layer::Policy,
            codes::BROWSER_TARGET_DENIED,
            message,
        )
        .next(
            "use another page, or ask the operator for `browser.allow_domains` or `browser.ports`",
        ),
        EgressRefusal::Address(_) => {
            ToolError::new(Layer::Policy, codes::BROWSER_ADDRESS_REFUSED, message)
                .next("use a public address, or ask the operator for `browser.allow_networks`")
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answered {
    loader_id: Option<String>,
    error_text: Option<String>,
    #[serde(default)]
    is_download: bool,
}

async fn navigate(page: LivePage, url: Url, input: Navigate) -> Result<Navigated, ToolError> {
    let page = match input.tab.as_deref() {
        None => page,
        Some("new") => {
            let made = page.chrome.new_tab().await.map_err(refused)?;
            page.chrome.turn_to(&made.target).await?
        }
        Some(tab) => page.chrome.turn_to(tab).await?,
    };
    let chrome = page.chrome.clone();
    let (mark, refusals) = (chrome.state().mark(), chrome.refusals.count());
    let before = chrome.state().of_target(&page.target).map(|tab| tab.loader.clone());
    let answered: Answered = page.call("Page.navigate", json!({ "url": url.as_str() })).await?;
    if answered.is_download {
        let begun = chrome.until(|state| state.downloads_since(mark).then_some(()));
        // A download that is refused never begins.
        if timeout(DOWNLOAD_BEGINS, begun).await.is_ok() {
            let over = chrome.until(|state| state.downloads_are_over().then_some(()));
            // A longer download is told by the answers to come.
            let _over = timeout(DOWNLOAD_ENDS, over).await;
        }
        return Ok(done(&page, mark, None));
    }
    if let Some(why) = answered.error_text {
        return Err(match chrome.refusals.since(refusals) {
            Some(refusal) if why.contains("SOCKS") => denied(refusal),
            _ => {
                let message = format!("{} was not loaded: {why}", url.as_str());
                ToolError::new(Layer::Actor, codes::BROWSER_NAVIGATION_FAILED, message)
                    .next("check the URL; webview_console has what failed")
            }
        });
    }
    let name = match input.wait_until {
        WaitUntil::Load => "load",
        WaitUntil::Dom => "DOMContentLoaded",
        WaitUntil::Commit => "",
    };
    if answered.loader_id.is_some() {
        // The document that was asked for, or one that took its place since.
        let loaded =
            |name: &str, all: &[String]| name.is_empty() || all.iter().any(|it| it == name);
        chrome
            .until(|state| {
                let tab = state.of_target(&page.target)?;
                let new = Some(&tab.loader) != before.as_ref();
                (new && loaded(name, &tab.loaded)).then_some(())
            })
            .await;
    }
    Ok(done(&page, mark, answered.loader_id))
}

fn done(page: &LivePage, mark: u64, loader: Option<String>) -> Navigated {
    let state = page.chrome.state();
    let status = state.of_target(&page.target).and_then(|tab| tab.status.clone());
    let status = status.filter(|(of, _)| loader.as_deref() == Some(of)).map(|(_, status)| status);
    drop(state);
    Navigated { success: true, url: page.url(), status, happened: page.since(mark) }
}
