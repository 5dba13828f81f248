//! A session's browser, shared by its actor, its calls and the manager. It outlives restarts of the actor:
//! the loss of a Chrome is reported once.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use hivekeep_kernel::{Layer, PoolPlace, SessionId, SharedPool, ToolError, lock};
use hivekeep_ports::{PlaceFiles, ResultKeeper, SessionQuotas};
use hivekeep_runtime::host_process::HostUsers;
use hivekeep_store::Events;
use serde_json::json;
use tokio::{
    sync::{Semaphore, watch},
    time::Instant,
};

use crate::{
    Options, chrome::Chrome, codes, page::LivePage, place::BrowserPlace, proxy::BrowserEgress,
    state::DialogPolicy,
};

/// Services shared by all browsers.
pub(crate) struct BrowserServices {
    pub(crate) options: Options,
    pub(crate) egress: BrowserEgress,
    /// Folder of all browsers' folders.
    pub(crate) folder: PathBuf,
    pub(crate) users: HostUsers,
    pub(crate) events: Events,
    pub(crate) sessions: Arc<dyn SessionQuotas>,
    pub(crate) keeper: Option<Arc<dyn ResultKeeper>>,
    pub(crate) files: Option<Arc<dyn PlaceFiles>>,
    /// Pool of the browsers that run.
    pub(crate) running: SharedPool,
    /// Permits for transfers of files between places and browsers.
    pub(crate) carriers: Arc<Semaphore>,
}

/// Where a browser is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BrowserTarget {
    /// A Chrome that the daemon runs.
    Local,
    /// A Chrome that runs elsewhere, by its address.
    Attached(String),
}

/// State of the connection.
#[derive(Clone)]
pub(crate) enum BrowserLink {
    Starting,
    Up(Arc<Chrome>),
    /// The start or the connection failed, with the reason.
    Failed(String),
    /// Closed in order, or given up.
    Closed,
}

/// A session's browser.
pub(crate) struct SessionBrowser {
    pub(crate) session: SessionId,
    pub(crate) services: Arc<BrowserServices>,
    pub(crate) target: BrowserTarget,
    pub(crate) dialogs: DialogPolicy,
    pub(crate) place: Arc<BrowserPlace>,
    pub(crate) link: watch::Sender<BrowserLink>,
    /// Number of running calls.
    calls: watch::Sender<usize>,
    told: Mutex<Told>,
    /// Place in the pool, held as long as the browser exists.
    _held: PoolPlace,
}

/// Counts a running call until it is dropped.
pub(crate) struct RunningCall<'a>(&'a SessionBrowser);

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        self.0.calls.send_modify(|running| *running -= 1);
    }
}

struct Told {
    used: Instant,
    /// Why the Chrome before this one ended, until a call has reported it.
    lost: Option<String>,
    /// Why the last Chrome ended, for calls that ran then.
    ended: String,
}

impl SessionBrowser {
    pub(crate) fn new(
        session: SessionId,
        services: Arc<BrowserServices>,
        target: BrowserTarget,
        dialogs: DialogPolicy,
        place: Option<String>,
        held: PoolPlace,
    ) -> Arc<Self> {
        let (files, events) = (services.files.clone(), services.events.clone());
        let carriers = services.carriers.clone();
        let place = Arc::new(BrowserPlace { session, place, files, events, carriers });
        let told = Told { used: Instant::now(), lost: None, ended: String::new() };
        let link = watch::channel(BrowserLink::Starting).0;
        let (calls, told) = (watch::channel(0).0, Mutex::new(told));
        Arc::new(Self { session, services, target, dialogs, place, link, calls, told, _held: held })
    }

    /// Time since the last call that used the browser.
    pub(crate) fn idle_for(&self) -> Duration {
        lock(&self.told).used.elapsed()
    }

    /// Records that a Chrome ended out of order.
    pub(crate) fn lose(&self, why: &str) {
        let mut told = lock(&self.told);
        told.lost = Some(why.to_owned());
        why.clone_into(&mut told.ended);
        drop(told);
        self.publish("browser.crashed", why);
    }

    /// Publishes an event about the browser.
    pub(crate) fn publish(&self, kind: &str, why: &str) {
        self.place.publish(kind, json!({ "why": why }));
    }

    pub(crate) fn starting(&self) -> bool {
        matches!(*self.link.borrow(), BrowserLink::Starting)
    }

    /// Waits for the browser, which may be starting.
    ///
    /// # Errors
    /// `browser_unavailable`, `browser_not_connected`.
    pub(crate) async fn up(&self) -> Result<Arc<Chrome>, ToolError> {
        let mut link = self.link.subscribe();
        let settled = link.wait_for(|link| !matches!(link, BrowserLink::Starting)).await;
        match settled.map(|link| link.clone()) {
            Ok(BrowserLink::Up(chrome)) => Ok(chrome),
            Ok(BrowserLink::Failed(why)) => Err(unavailable(&why)),
            _ => Err(not_connected()),
        }
    }

    /// Counts a call as long as it runs.
    pub(crate) fn running(&self) -> RunningCall<'_> {
        self.calls.send_modify(|running| *running += 1);
        RunningCall(self)
    }

    /// Waits until the calls that Chrome's end cut short are answered, at most 5 s.
    pub(crate) async fn answered(&self) {
        let mut calls = self.calls.subscribe();
        let none = calls.wait_for(|running| *running == 0);
        let _answered = tokio::time::timeout(Duration::from_secs(5), none).await;
    }

    /// The page that a call is about. The first call after a loss gets an error about it instead.
    ///
    /// # Errors
    /// `browser_state_lost`, and those of [`Self::up`].
    pub(crate) async fn page(&self) -> Result<LivePage, ToolError> {
        lock(&self.told).used = Instant::now();
        if self.starting() {
            // Calls come after the start, so a Chrome has ended since.
            let mut told = lock(&self.told);
            let why = told.lost.take().unwrap_or_else(|| told.ended.clone());
            drop(told);
            return Err(lost(&why).retryable());
        }
        let chrome = self.up().await?;
        if let Some(why) = lock(&self.told).lost.take() {
            return Err(lost(&why));
        }
        if let Some(page) = chrome.page() {
            return Ok(page);
        }
        // All pages were closed by their scripts.
        chrome.new_tab().await.map_err(crate::page::refused)
    }

    /// Forgets that the page's process ended, as the page is loaded again.
    pub(crate) fn revive(&self) {
        if let BrowserLink::Up(chrome) = &*self.link.borrow() {
            chrome.state().revive();
        }
    }

    /// Error of a call that ran when Chrome ended. It reports the loss too, so the next call does not.
    pub(crate) async fn crashed(&self, chrome: &Arc<Chrome>) -> ToolError {
        let mut link = self.link.subscribe();
        let left = |link: &BrowserLink| match link {
            BrowserLink::Up(now) => !Arc::ptr_eq(now, chrome),
            _ => true,
        };
        // The owner of the process finds out how it ended.
        let settled = tokio::time::timeout(Duration::from_secs(5), link.wait_for(left)).await;
        if matches!(settled, Ok(Ok(link)) if matches!(*link, BrowserLink::Closed)) {
            return not_connected();
        }
        let mut told = lock(&self.told);
        told.lost = None;
        let message = format!("Chrome ended while the call ran: {}", told.ended);
        ToolError::new(Layer::Actor, codes::BROWSER_CRASHED, message)
            .next("a new Chrome is started; begin again with webview_navigate")
            .detail("outcome", "unknown")
    }
}

fn lost(why: &str) -> ToolError {
    let message = format!("Chrome ended ({why}), and what it had is lost; there is a new one");
    ToolError::new(Layer::Actor, codes::BROWSER_STATE_LOST, message)
        .next("begin again with webview_navigate")
}

pub(crate) fn not_connected() -> ToolError {
    let message = "the session has no browser";
    ToolError::new(Layer::Actor, codes::BROWSER_NOT_CONNECTED, message)
        .next("call webview_connect with `debug_url` \"local\"")
}

pub(crate) fn unavailable(why: &str) -> ToolError {
    ToolError::new(Layer::Actor, codes::BROWSER_UNAVAILABLE, format!("no browser: {why}"))
        .next("see the reason; `hivekeep check` says what the host lacks")
}
