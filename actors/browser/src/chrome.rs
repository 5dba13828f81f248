//! A connected Chrome: one browser context with its pages, which are attached to, and prepared before anything is
//! asked of them.

mod effects;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::future::try_join_all;
use hivekeep_kernel::{Layer, ToolError, lock};
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, Semaphore, mpsc, watch},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::task::TaskTracker;
use url::Url;

use crate::{
    cdp::{Cdp, CdpError, CdpEvent, Frames},
    codes,
    folder::BrowserFolder,
    page::LivePage,
    place::BrowserPlace,
    proxy::Refusals,
    state::{BrowserState, DialogPolicy, Tab},
};

/// Size of a page's window in CSS pixels.
const VIEWPORT: (u32, u32) = (1280, 800);

/// Parameters of a connection to a browser.
pub(crate) struct ChromeSetup {
    pub(crate) dialogs: DialogPolicy,
    pub(crate) place: Arc<BrowserPlace>,
    /// Folder of a Chrome that the daemon runs. An attached one has none, and downloads nothing.
    pub(crate) folder: Option<Arc<BrowserFolder>>,
    pub(crate) download_bytes: u64,
    pub(crate) refusals: Refusals,
}

/// A connected Chrome. The value outlives the process; calls fail then.
pub(crate) struct Chrome {
    pub(crate) cdp: Cdp,
    pub(crate) folder: Option<Arc<BrowserFolder>>,
    pub(crate) place: Arc<BrowserPlace>,
    pub(crate) refusals: Refusals,
    /// Downloads on their way into the place, one after the other.
    saves: TaskTracker,
    saving: Semaphore,
    context: String,
    state: Mutex<BrowserState>,
    /// Notifies of changes of the state.
    changed: watch::Sender<()>,
    /// Whether Chrome is being closed in order: ends of its pages are not published then.
    closing: AtomicBool,
    /// Asks the owner of the process to kill it.
    pub(crate) hung: Notify,
    pump: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Chrome {
    fn drop(&mut self) {
        let pump = self.pump.get_mut().unwrap_or_else(PoisonError::into_inner);
        pump.take().iter().for_each(JoinHandle::abort);
    }
}

impl Chrome {
    /// Makes a context with one empty page.
    ///
    /// # Errors
    /// The reason, for people.
    pub(crate) async fn open(frames: Frames, setup: ChromeSetup) -> Result<Arc<Self>, String> {
        let (cdp, events) = Cdp::over(frames);
        let failed = |error: CdpError| error.to_string();
        let made: Value = cdp
            .call(None, "Target.createBrowserContext", json!({ "disposeOnDetach": true }))
            .await
            .map_err(failed)?;
        let context = made["browserContextId"].as_str().unwrap_or_default().to_owned();
        let state = BrowserState {
            context: context.clone(),
            dialogs: setup.dialogs,
            download_bytes: setup.download_bytes,
            ..BrowserState::default()
        };
        let chrome = Arc::new(Self {
            cdp,
            folder: setup.folder,
            place: setup.place,
            saves: TaskTracker::new(),
            saving: Semaphore::new(1),
            refusals: setup.refusals,
            context,
            state: Mutex::new(state),
            changed: watch::channel(()).0,
            closing: AtomicBool::new(false),
            hung: Notify::new(),
            pump: Mutex::default(),
        });
        let pump = tokio::spawn(pump(Arc::downgrade(&chrome), events));
        *lock(&chrome.pump) = Some(pump);
        chrome.prepare().await.map_err(failed)?;
        Ok(chrome)
    }

    async fn prepare(self: &Arc<Self>) -> Result<(), CdpError> {
        let downloads = match &self.folder {
            Some(_) => json!({
                "behavior": "allowAndName", "browserContextId": self.context,
                "downloadPath": BrowserFolder::downloads(), "eventsEnabled": true,
            }),
            None => json!({ "behavior": "deny", "browserContextId": self.context }),
        };
        let _set: Value = self.cdp.call(None, "Browser.setDownloadBehavior", downloads).await?;
        let discover = json!({ "discover": true });
        let _set: Value = self.cdp.call(None, "Target.setDiscoverTargets", discover).await?;
        self.new_tab().await.map(drop)
    }

    /// Opens an empty page.
    pub(crate) async fn new_tab(self: &Arc<Self>) -> Result<LivePage, CdpError> {
        let params = json!({ "url": "about:blank", "browserContextId": self.context });
        let made: Value = self.cdp.call(None, "Target.createTarget", params).await?;
        let target = made["targetId"].as_str().unwrap_or_default().to_owned();
        self.attach(&target).await
    }

    /// Attaches to a page, and takes it in when it is prepared.
    async fn attach(self: &Arc<Self>, target: &str) -> Result<LivePage, CdpError> {
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

    /// State of the browser. The lock is held only for a read or a change in memory.
    pub(crate) fn state(&self) -> MutexGuard<'_, BrowserState> {
        lock(&self.state)
    }

    /// Receiver of changes of the state.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Waits until the state answers a question.
    pub(crate) async fn until<T>(&self, mut answer: impl FnMut(&BrowserState) -> Option<T>) -> T {
        let mut changes = self.changes();
        loop {
            changes.mark_unchanged();
            if let Some(found) = answer(&self.state()) {
                return found;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The page that calls are about.
    ///
    /// # Errors
    /// When its session has closed all of them.
    pub(crate) fn page(self: &Arc<Self>) -> Option<LivePage> {
        let state = self.state();
        let tab = state.tab()?;
        let (target, session) = (tab.target.clone(), tab.session.clone());
        Some(LivePage { chrome: self.clone(), target, session })
    }

    /// Makes another page the one that calls are about.
    ///
    /// # Errors
    /// `browser_element_not_found` if there is no such page.
    pub(crate) async fn turn_to(self: &Arc<Self>, tab: &str) -> Result<LivePage, ToolError> {
        if self.state().of_target(tab).is_none() {
            let what = "page of this browser";
            return Err(ToolError::not_found(
                Layer::Actor,
                codes::BROWSER_ELEMENT_NOT_FOUND,
                what,
                tab,
            ));
        }
        tab.clone_into(&mut self.state().active);
        let _shown = self.to_front().await;
        self.page().ok_or_else(|| ToolError::internal("the page is gone"))
    }

    /// Brings the page that calls are about to the front: a page behind another one is not drawn.
    pub(crate) async fn to_front(&self) -> Result<Value, CdpError> {
        let target = self.state().tab().map(|tab| tab.target.clone());
        self.cdp.call(None, "Target.activateTarget", json!({ "targetId": target })).await
    }

    /// Closes a browser of the daemon, or the context in an attached one. The owner of the process waits for
    /// its end.
    pub(crate) async fn close(&self) {
        self.closing.store(true, Relaxed);
        let call = match self.folder {
            Some(_) => self.cdp.call::<Value>(None, "Browser.close", json!({})),
            None => {
                let context = json!({ "browserContextId": self.context });
                self.cdp.call(None, "Target.disposeBrowserContext", context)
            }
        };
        // A browser that does not answer is killed by its owner.
        let _closed = timeout(Duration::from_secs(2), call).await;
    }

    /// Why the host of a URL was refused, if it was.
    fn refused(&self, url: &str) -> Option<String> {
        let host = Url::parse(url).ok()?.host_str()?.to_owned();
        self.refusals.of(&host).map(|refusal| refusal.to_string())
    }
}

/// Applies events until there are no more, or the [`Chrome`] is dropped.
async fn pump(chrome: Weak<Chrome>, mut events: mpsc::Receiver<CdpEvent>) {
    while let Some(event) = events.recv().await {
        let Some(chrome) = chrome.upgrade() else { return };
        chrome.apply(&event);
    }
}
