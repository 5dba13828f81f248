//! `webview_click`.

use std::time::Duration;

use futures::future::try_join;
use hivekeep_kernel::{CallCx, ToolError, serve::Reply, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    act::{MAX_SECS, act},
    browser::Browser,
    page::{LivePage, Located, MAX_SELECTOR},
    state::Happened,
};

/// Left of a call's time for the click itself.
const MARGIN: Duration = Duration::from_millis(500);

pub(crate) fn default_element_secs() -> u64 {
    10
}

/// Button of the mouse.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MouseButton {
    /// The main one.
    #[default]
    Left,
    /// Opens menus.
    Right,
    /// The wheel.
    Middle,
}

/// Click an element as a person would: it is scrolled into view, and waited for until it stands still and
/// nothing covers it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Click {
    /// Reference of webview_snapshot (`e12`), or CSS selector; the first match is clicked, also in open shadow
    /// roots and frames of the same origin.
    #[schemars(length(min = 1, max = MAX_SELECTOR))]
    pub(crate) selector: String,
    /// Button.
    #[serde(default)]
    pub(crate) button: MouseButton,
    /// Whether it is a double click.
    #[serde(default)]
    pub(crate) double: bool,
    /// Time limit, 1 to 120: for the element to be there and ready, too.
    #[schemars(range(min = 1, max = MAX_SECS))]
    #[serde(default = "default_element_secs")]
    pub(crate) timeout_secs: u64,
}

/// The click was made.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Acted {
    /// Always true; a failure is an error.
    pub(crate) success: bool,
    /// URL of the page then. What it loads may still be on its way.
    pub(crate) url: String,
    #[serde(flatten)]
    pub(crate) happened: Happened,
}

tools! { pub(crate) FAMILY: "browser" for Browser, singleton browsers;
    webview_click: Click => Acted = Browser::click {
        title: "Click an element", open_world: true,
    };
}

impl Browser {
    fn click(&mut self, cx: &CallCx, input: Click) -> Result<Reply<Acted>, ToolError> {
        let limit_secs = input.timeout_secs;
        Ok(act(self, cx, limit_secs, move |page, limit| click(page, limit, input)))
    }
}

/// Point in the page's window, in CSS pixels.
#[derive(Debug, Clone, Copy, Deserialize)]
struct ClickPoint {
    x: f64,
    y: f64,
}

/// Time that a script may try, of a call's limit.
pub(crate) fn trying_ms(limit: Duration) -> u64 {
    u64::try_from(limit.saturating_sub(MARGIN).as_millis()).unwrap_or(u64::MAX)
}

async fn click(page: LivePage, limit: Duration, input: Click) -> Result<Acted, ToolError> {
    let mark = page.chrome.state().mark();
    let located = Located::parse(&input.selector);
    let args = json!({ "limit_ms": trying_ms(limit) });
    let point: ClickPoint = page.on_element("ready", &located, args).await?;
    // Sent in this order, and answered when the page has handled them.
    let moved = mouse(&page, "mouseMoved", point, input.button, 0);
    try_join(moved, press(&page, point, input.button, 1)).await?;
    if input.double {
        press(&page, point, input.button, 2).await?;
    }
    Ok(Acted { success: true, url: page.url(), happened: page.since(mark) })
}

async fn mouse(
    page: &LivePage,
    kind: &str,
    ClickPoint { x, y }: ClickPoint,
    button: MouseButton,
    count: u32,
) -> Result<(), ToolError> {
    let params = json!({
        "type": kind, "x": x, "y": y, "button": button, "clickCount": count, "pointerType": "mouse",
    });
    page.call::<Value>("Input.dispatchMouseEvent", params).await.map(drop)
}

async fn press(
    page: &LivePage,
    point: ClickPoint,
    button: MouseButton,
    count: u32,
) -> Result<(), ToolError> {
    let pressed = mouse(page, "mousePressed", point, button, count);
    let released = mouse(page, "mouseReleased", point, button, count);
    try_join(pressed, released).await.map(drop)
}
