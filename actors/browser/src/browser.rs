//! Actor of a session's browser: serves its calls, and keeps the loop that starts Chrome, watches it, and ends it.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{Context, Entity, Fault, ToolCall, ToolGroup, serve};
use hivekeep_runtime::host_process::HostProgram;
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    carrier,
    chrome::{Chrome, ChromeSetup},
    process::{ChromeProcess, ChromeSpec},
    proxy::Refusals,
    session::{BrowserLink, BrowserTarget, SessionBrowser},
};

/// Time for Chrome's end in order.
const CLOSING: Duration = Duration::from_secs(12);
/// Time for Chrome's start on a busy host.
const START: Duration = Duration::from_secs(30);
/// Time for complete downloads to be saved when a browser is closed.
const SAVING_AT_END: Duration = Duration::from_secs(5);

/// Tools that a browser serves.
pub(crate) type BrowserTools = &'static [&'static ToolGroup<Browser>];

/// Message to a browser.
#[derive(Debug)]
pub(crate) enum BrowserMsg {
    Call(Box<ToolCall>),
    /// The loop ended.
    Ended(BrowserEnd),
}

impl From<ToolCall> for BrowserMsg {
    fn from(call: ToolCall) -> Self {
        Self::Call(Box::new(call))
    }
}

/// The actor.
pub(crate) struct Browser {
    me: Context<BrowserMsg>,
    pub(crate) shared: Arc<SessionBrowser>,
    tools: BrowserTools,
    closing: CancellationToken,
}

impl Entity for Browser {
    type Msg = BrowserMsg;
    type Args = (Arc<SessionBrowser>, BrowserTools);

    async fn start(args: Self::Args, me: Context<BrowserMsg>) -> Result<Self, Fault> {
        let (shared, tools) = args;
        shared.link.send_replace(BrowserLink::Starting);
        let seen = shared.clone();
        me.address.probe().set_detail(move || Some(detail(&seen)));
        let closing = CancellationToken::new();
        let kept = tokio::spawn(keep(shared.clone(), closing.clone()));
        let (mut kept, address) = (AbortOnDrop(kept), me.address.clone());
        let _detached = me.workers.spawn(async move {
            let panicked = |_| BrowserEnd::Crashed("its loop panicked".to_owned());
            let end = (&mut kept.0).await.unwrap_or_else(panicked);
            // Nobody there: the actor has ended already.
            let _ = address.send(BrowserMsg::Ended(end));
        });
        Ok(Self { me, shared, tools, closing })
    }

    fn handle(&mut self, message: BrowserMsg) -> Result<(), Fault> {
        match message {
            BrowserMsg::Call(call) => {
                let workers = self.me.workers.clone();
                serve::serve(self, self.tools, &workers, *call);
                Ok(())
            }
            BrowserMsg::Ended(BrowserEnd::Crashed(why)) => Err(Fault(why)),
            BrowserMsg::Ended(BrowserEnd::NotStarted | BrowserEnd::Closed) => {
                self.me.stop("no browser");
                Ok(())
            }
        }
    }

    async fn stop(&mut self) {
        self.closing.cancel();
        let mut link = self.shared.link.subscribe();
        let over =
            |link: &BrowserLink| matches!(link, BrowserLink::Closed | BrowserLink::Failed(_));
        // Beyond that it is killed with the loop.
        let _closed = timeout(CLOSING, link.wait_for(over)).await;
    }
}

/// Loop that ends with whoever watches it.
struct AbortOnDrop(JoinHandle<BrowserEnd>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn detail(shared: &SessionBrowser) -> String {
    match &*shared.link.borrow() {
        BrowserLink::Starting => "starting".to_owned(),
        BrowserLink::Failed(why) => format!("not there: {why:.100}"),
        BrowserLink::Closed => "closed".to_owned(),
        BrowserLink::Up(chrome) => {
            let state = chrome.state();
            let url = state.tab().map(|tab| tab.url.chars().take(80).collect::<String>());
            format!("pages: {}, at {}", state.tabs.len(), url.unwrap_or_default())
        }
    }
}

/// How a Chrome ended.
#[derive(Debug)]
pub(crate) enum BrowserEnd {
    NotStarted,
    /// Closed in order.
    Closed,
    /// Ended out of order, with the reason.
    Crashed(String),
}

/// Runs a browser until its end, or until `closing` is cancelled.
async fn keep(browser: Arc<SessionBrowser>, closing: CancellationToken) -> BrowserEnd {
    let opened = tokio::select! {
        biased;
        () = closing.cancelled() => {
            browser.link.send_replace(BrowserLink::Closed);
            return BrowserEnd::Closed;
        }
        opened = open(&browser) => opened,
    };
    let (mut process, chrome) = match opened {
        Ok(opened) => opened,
        Err(why) => {
            browser.publish("browser.failed", &why);
            browser.link.send_replace(BrowserLink::Failed(why));
            return BrowserEnd::NotStarted;
        }
    };
    browser.link.send_replace(BrowserLink::Up(chrome.clone()));
    browser.publish("browser.started", "");
    // When this loop is dropped, the link does not keep a Chrome that is gone.
    let _left = LeaveLink(&browser);
    let memory_mb = browser.services.options.memory_mb;
    let why = tokio::select! {
        biased;
        () = closing.cancelled() => None,
        () = chrome.cdp.ended() => Some(match &mut process {
            Some(process) => process.last_words().await,
            None => "the connection to it ended".to_owned(),
        }),
        () = chrome.hung.notified() => Some("it gave no answer any more".to_owned()),
        taken_mb = beyond(process.as_ref(), memory_mb) => {
            Some(format!("it took {taken_mb} MiB of memory, and may take {memory_mb}"))
        }
    };
    let Some(why) = why else {
        chrome.settle_downloads(SAVING_AT_END).await;
        chrome.close().await;
        if let Some(process) = process {
            process.end().await;
        }
        browser.link.send_replace(BrowserLink::Closed);
        browser.publish("browser.closed", "");
        return BrowserEnd::Closed;
    };
    tracing::warn!(session = %browser.session, %why, "a browser ended");
    browser.lose(&why);
    browser.link.send_replace(BrowserLink::Starting);
    if let Some(mut process) = process {
        process.kill();
        process.end().await;
    }
    // Workers of the calls end with the actor.
    browser.answered().await;
    BrowserEnd::Crashed(why)
}

async fn beyond(process: Option<&ChromeProcess>, memory_mb: u64) -> u64 {
    match process {
        Some(process) => process.beyond(memory_mb).await,
        None => std::future::pending().await,
    }
}

async fn open(browser: &SessionBrowser) -> Result<(Option<ChromeProcess>, Arc<Chrome>), String> {
    let services = &browser.services;
    let options = &services.options;
    let mut setup = ChromeSetup {
        dialogs: browser.dialogs.clone(),
        place: browser.place.clone(),
        folder: None,
        download_bytes: 0,
        refusals: Refusals::default(),
    };
    let (process, frames) = match &browser.target {
        BrowserTarget::Attached(url) => (None, carrier::over_socket(url).await?),
        BrowserTarget::Local => {
            let program = options.found_program().ok_or("there is no Chrome or Chromium")?;
            let name = format!("{}-{}", browser.session, Uuid::new_v4().simple());
            let spec = ChromeSpec {
                program,
                folder: services.folder.join(name),
                uid: services.users.uid(HostProgram::Browser),
                memory_mb: options.memory_mb,
                download_mb: options.download_mb,
                egress: services.egress.clone(),
            };
            let (process, frames) = ChromeProcess::start(&spec).await?;
            setup.folder = Some(process.folder.clone());
            setup.download_bytes = options.download_mb * 1024 * 1024;
            setup.refusals = process.refusals.clone();
            (Some(process), frames)
        }
    };
    let opened = match timeout(START, Chrome::open(frames, setup)).await {
        Ok(opened) => opened,
        Err(_) => Err(format!("it did not answer within {} s", START.as_secs())),
    };
    match (opened, process) {
        (Ok(chrome), process) => Ok((process, chrome)),
        (Err(why), Some(mut process)) => {
            process.kill();
            Err(format!("{why}: {}", process.last_words().await))
        }
        (Err(why), None) => Err(why),
    }
}

/// Takes a Chrome out of the link when its loop is dropped.
struct LeaveLink<'a>(&'a SessionBrowser);

impl Drop for LeaveLink<'_> {
    fn drop(&mut self) {
        self.0.link.send_if_modified(|link| match link {
            BrowserLink::Up(_) => {
                *link = BrowserLink::Starting;
                self.0.lose("its actor was ended");
                true
            }
            _ => false,
        });
    }
}
