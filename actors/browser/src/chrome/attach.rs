//! Pages: made, attached to, and prepared before anything is asked of them.

use std::sync::Arc;

use futures::future::try_join_all;
use serde_json::{Value, json};

use super::Chrome;
use crate::{cdp::CdpError, page::LivePage, state::Tab};

/// Size of a page's window in CSS pixels.
pub(crate) const VIEWPORT: (u32, u32) = (1280, 800);

impl Chrome {
    /// Opens an empty page.
    pub(crate) async fn new_tab(self: &Arc<Self>) -> Result<LivePage, CdpError> {
        let params = json!({ "url": "about:blank", "browserContextId": self.context });
        let made: Value = self.cdp.call(None, "Target.createTarget", params).await?;
        let target = made["targetId"].as_str().unwrap_or_default().to_owned();
        self.attach(&target).await
    }

    /// Attaches to a page, and takes it in when it is prepared.
    pub(super) async fn attach(self: &Arc<Self>, target: &str) -> Result<LivePage, CdpError> {
        let params = json!({ "targetId": target, "flatten": true });
        let attached: Value = self.cdp.call(None, "Target.attachToTarget", params).await?;
        let session = attached["sessionId"].as_str().unwrap_or_default().to_owned();
        // Before its events come.
        self.state().add(Tab {
            target: target.to_owned(),
            session: session.clone(),
            ..Tab::default()
        });
        let (width, height) = VIEWPORT;
        let window =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        let calls = [
            ("Page.enable", json!({})),
            ("Page.setLifecycleEventsEnabled", json!({ "enabled": true })),
            ("Inspector.enable", json!({})),
            ("Runtime.enable", json!({})),
            ("Log.enable", json!({})),
            // Bodies are not asked for.
            ("Network.enable", json!({ "maxTotalBufferSize": 0, "maxResourceBufferSize": 0 })),
            ("Emulation.setDeviceMetricsOverride", window),
            ("Emulation.setFocusEmulationEnabled", json!({ "enabled": true })),
        ];
        let session = &session;
        let calls = calls.map(|(method, params)| async move {
            self.cdp.call::<Value>(Some(session), method, params).await
        });
        try_join_all(calls).await?;
        let tree: Value = self.cdp.call(Some(session), "Page.getFrameTree", json!({})).await?;
        let frame = &tree["frameTree"]["frame"];
        let mut state = self.state();
        if let Some(tab) = state.tabs.iter_mut().find(|tab| tab.target == target) {
            tab.frame = frame["id"].as_str().unwrap_or_default().to_owned();
            tab.url = frame["url"].as_str().unwrap_or_default().to_owned();
        }
        drop(state);
        Ok(LivePage { chrome: self.clone(), target: target.to_owned(), session: session.clone() })
    }
}
