//! Actor of a session's browser: serves its calls, and keeps the loop that has Chrome.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{Context, Entity, Fault, ToolCall, ToolGroup, serve};
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    keep::{BrowserEnd, keep},
    session::{BrowserLink, SessionBrowser},
};

/// Time for Chrome's end in order.
const CLOSING: Duration = Duration::from_secs(12);

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
    type Seed = (Arc<SessionBrowser>, BrowserTools);

    async fn start(seed: Self::Seed, me: Context<BrowserMsg>) -> Result<Self, Fault> {
        let (shared, tools) = seed;
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
