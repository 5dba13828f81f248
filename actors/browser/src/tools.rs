//! Tools of the browsers: connecting them here, and one file for each thing that is done with a page.

mod click;
mod console;
mod eval;
mod navigate;
mod query;
mod screenshot;
mod snapshot;
mod wait;
mod write;

use hivekeep_kernel::{ToolInfo, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    act::{MAX_SECS, default_secs},
    browser::BrowserTools,
    browsers::Browsers,
};

/// Answer to dialogs of pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DialogChoice {
    /// Cancel them.
    #[default]
    Dismiss,
    /// Confirm them.
    Accept,
}

impl DialogChoice {
    pub(crate) fn accepts(self) -> bool {
        self == Self::Accept
    }
}

/// Use this first to test or use a web page: gives your session a Chrome of its own, in a sandbox, with one
/// empty page. It stays until webview_disconnect.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Connect {
    /// `local` for a Chrome of your own; or name or URL of a browser that the operator opened.
    #[schemars(length(min = 1, max = 500))]
    pub(crate) debug_url: String,
    /// Seconds to wait for it, 1 to 120.
    #[schemars(range(min = 1, max = MAX_SECS))]
    #[serde(default = "default_secs")]
    pub(crate) timeout: u64,
    /// Answer to dialogs of pages. They are told with the answer of the call.
    #[serde(default)]
    pub(crate) dialogs: DialogChoice,
    /// Text for prompts, where dialogs are accepted.
    #[schemars(length(max = 1_000))]
    pub(crate) prompt_text: Option<String>,
    /// Place that downloads go to, and uploads come from. Default: the session's.
    #[schemars(length(min = 1, max = 200))]
    pub(crate) place: Option<String>,
}

/// Close your session's browser with its pages and cookies. Downloads stay in their place.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Disconnect {}

/// Browser that was started, attached to or closed.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ConnectionDone {
    /// Always true; a failure is an error.
    pub(crate) success: bool,
    /// Sentence on the browser and its connection.
    pub(crate) message: String,
    /// Whether this call started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) started: Option<bool>,
}

tools! { pub(crate) OF_ALL: "browser" for Browsers, singleton browsers;
    webview_connect: Connect => ConnectionDone = Browsers::connect {
        title: "Start a browser",
        effect: Idempotent,
        open_world: true,
        timeout_secs: MAX_SECS + 5,
    };
    webview_disconnect: Disconnect => ConnectionDone = Browsers::disconnect {
        title: "Close the browser",
        effect: Destroy,
    };
}

/// Tools that a session's browser serves.
pub(crate) const OF_A_BROWSER: BrowserTools = &[
    &navigate::FAMILY,
    &snapshot::FAMILY,
    &click::FAMILY,
    &write::FAMILY,
    &query::FAMILY,
    &wait::FAMILY,
    &eval::FAMILY,
    &console::FAMILY,
    &screenshot::FAMILY,
];

/// Declarations, in the order of a session.
pub(crate) fn catalogue() -> Vec<&'static ToolInfo> {
    let all = OF_ALL.rows.iter().map(|row| &row.0);
    all.chain(OF_A_BROWSER.iter().flat_map(|group| group.rows.iter().map(|row| &row.0))).collect()
}
