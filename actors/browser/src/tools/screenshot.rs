//! `webview_screenshot`.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hivekeep_kernel::{CallCx, ToolError, User, serve::Reply, tools};
use hivekeep_ports::LargeResult;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    act::{MAX_SECS, act, default_secs},
    browser::Browser,
    page::{LivePage, Located, MAX_SELECTOR},
};

/// Longest side of a picture in pixels; what is beyond is left out.
const MAX_SIDE: f64 = 16_384.0;

/// Format of a picture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ImageFormat {
    /// Lossless.
    #[default]
    Png,
    /// Small, for photographs.
    Jpeg,
    /// The smallest.
    Webp,
}

/// Take a picture of the page, the whole of it, or one element. Use webview_snapshot to read a page.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Screenshot {
    /// Format.
    #[serde(default)]
    pub(crate) format: ImageFormat,
    /// Whether the page is taken to its end, and not only the part in the window.
    #[serde(default)]
    pub(crate) full_page: bool,
    /// Only this element: reference of webview_snapshot, or CSS selector.
    #[schemars(length(min = 1, max = MAX_SELECTOR))]
    pub(crate) selector: Option<String>,
    /// Quality of jpeg and webp, 1 to 100.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) quality: Option<u8>,
    /// Whether it is kept as an artifact, too.
    #[serde(default = "yes")]
    pub(crate) keep: bool,
    /// Time limit, 1 to 120.
    #[schemars(range(min = 1, max = MAX_SECS))]
    #[serde(default = "default_secs")]
    pub(crate) timeout_secs: u64,
}

fn yes() -> bool {
    true
}

/// A picture.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Pictured {
    /// Always true; a failure is an error.
    pub(crate) success: bool,
    /// The picture, as base64.
    pub(crate) data: String,
    /// Its format.
    pub(crate) format: ImageFormat,
    /// Its MIME type.
    pub(crate) mime_type: &'static str,
    /// Its size in bytes.
    pub(crate) bytes: usize,
    /// Whether the page was longer than a picture may be.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) truncated: bool,
    /// URI of the artifact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) artifact: Option<String>,
    /// Why it was not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) not_kept: Option<String>,
}

tools! { pub(crate) FAMILY: "browser" for Browser, singleton browsers;
    webview_screenshot: Screenshot => Pictured = Browser::screenshot {
        title: "Take a picture of the page", effect: Read, open_world: true,
        result_budget_bytes: 16 * 1024 * 1024, content: blocks,
    };
}

/// The picture as models see it, behind everything else that is told of it.
fn blocks(result: &Value) -> Option<Vec<Value>> {
    let mut beside = result.clone();
    let data = beside.as_object_mut()?.remove("data")?;
    let image = json!({ "type": "image", "data": data, "mimeType": result["mime_type"] });
    Some(vec![json!({ "type": "text", "text": beside.to_string() }), image])
}

impl Browser {
    fn screenshot(&mut self, cx: &CallCx, input: Screenshot) -> Result<Reply<Pictured>, ToolError> {
        if input.full_page && input.selector.is_some() {
            return Err(ToolError::invalid("give either `full_page` or `selector`"));
        }
        let (shared, call) = (self.shared.clone(), cx.clone());
        Ok(act(self, cx, input.timeout_secs, move |page, _| async move {
            let mut taken = take(&page, &input).await?;
            let Some(keeper) = shared.services.keeper.as_ref().filter(|_| input.keep) else {
                return Ok(taken);
            };
            let kept = LargeResult {
                user: shared.services.sessions.user(call.session).unwrap_or(User::Nobody),
                session: call.session,
                call: call.id,
                tool: call.tool,
                value: json!({
                    "mime_type": taken.mime_type, "url": page.url(), "data": taken.data,
                }),
            };
            match keeper.keep(kept).await {
                Ok(kept) => taken.artifact = Some(kept.uri),
                Err(error) => taken.not_kept = Some(error.to_string()),
            }
            Ok(taken)
        }))
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Area {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

async fn take(page: &LivePage, input: &Screenshot) -> Result<Pictured, ToolError> {
    let mut params = json!({ "format": input.format });
    if let Some(quality) = input.quality.filter(|_| input.format != ImageFormat::Png) {
        params["quality"] = quality.into();
    }
    let mut truncated = false;
    if let Some(area) = area(page, input).await? {
        let (width, height) = (area.width.clamp(1.0, MAX_SIDE), area.height.clamp(1.0, MAX_SIDE));
        truncated = width < area.width || height < area.height;
        params["clip"] = json!({
            "x": area.x, "y": area.y, "width": width, "height": height, "scale": 1,
        });
        params["captureBeyondViewport"] = true.into();
    }
    #[derive(Deserialize)]
    struct Captured {
        data: String,
    }
    // A page that one of another opened, or that a person looks at, may be before it.
    let _shown = page.chrome.to_front().await;
    let Captured { data } = page.call("Page.captureScreenshot", params).await?;
    let mime_type = match input.format {
        ImageFormat::Png => "image/png",
        ImageFormat::Jpeg => "image/jpeg",
        ImageFormat::Webp => "image/webp",
    };
    let pad = data.bytes().rev().take_while(|&byte| byte == b'=').count();
    let bytes = data.len() / 4 * 3 - pad.min(2);
    let head = STANDARD.decode(&data.as_bytes()[..data.len().min(16)]).unwrap_or_default();
    if !is_of(input.format, &head) {
        return Err(ToolError::internal(
            "Chrome's picture is not of the format that was asked for",
        ));
    }
    Ok(Pictured {
        success: true,
        data,
        format: input.format,
        mime_type,
        bytes,
        truncated,
        artifact: None,
        not_kept: None,
    })
}

fn is_of(format: ImageFormat, head: &[u8]) -> bool {
    match format {
        ImageFormat::Png => head.starts_with(b"\x89PNG"),
        ImageFormat::Jpeg => head.starts_with(b"\xff\xd8\xff"),
        ImageFormat::Webp => head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP"),
    }
}

/// The part of the page that is wanted; `None` for what its window shows.
async fn area(page: &LivePage, input: &Screenshot) -> Result<Option<Area>, ToolError> {
    if let Some(selector) = &input.selector {
        let located = Located::parse(selector);
        return page.on_element("place", &located, json!({})).await.map(Some);
    }
    if !input.full_page {
        return Ok(None);
    }
    let metrics: Value = page.call("Page.getLayoutMetrics", json!({})).await?;
    let size = serde_json::from_value(metrics["cssContentSize"].clone());
    size.map(Some).map_err(|error| ToolError::internal(format!("the page's size: {error}")))
}
