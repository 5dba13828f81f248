//! Manager of the browsers: one for each session that asked for one. Routes calls by their sessions.

use std::{collections::HashMap, sync::Arc, time::Duration};

use hivekeep_kernel::{
    Address, CallCx, Census, ChildEnd, Children, Context, Entity, Fault, Layer, RestartPolicy,
    SessionId, ToolCall, ToolError, User,
    children::ChildOutcome,
    serve::{self, Reply},
};
use tokio::time::interval;

use crate::{
    browser::{Browser, BrowserMsg},
    codes, folder,
    options::LOCAL,
    session::{BrowserLink, BrowserServices, BrowserTarget, SessionBrowser, not_connected},
    state::DialogPolicy,
    tools::{Connect, ConnectionDone, Disconnect, OF_A_BROWSER, OF_ALL},
};

/// Path of the manager in the tree.
pub(crate) const PATH: &str = "root/browsers";
/// Between two looks for browsers whose sessions are over or that nobody uses.
const LOOK: Duration = Duration::from_secs(5);

/// Message to the manager.
#[derive(Debug)]
pub(crate) enum BrowsersMsg {
    Call(Box<ToolCall>),
    /// Look which browsers nobody needs.
    Look,
    /// Close one.
    Close(SessionId, &'static str),
}

impl From<ToolCall> for BrowsersMsg {
    fn from(call: ToolCall) -> Self {
        Self::Call(Box::new(call))
    }
}

/// Start arguments.
#[derive(Clone)]
pub(crate) struct Args {
    pub(crate) census: Census,
    pub(crate) services: Arc<BrowserServices>,
}

struct Kept {
    /// Name of the child; one that closes and the next of its session are two.
    name: String,
    address: Address<BrowserMsg>,
    shared: Arc<SessionBrowser>,
}

/// The manager.
pub(crate) struct Browsers {
    me: Context<BrowsersMsg>,
    children: Children,
    services: Arc<BrowserServices>,
    kept: HashMap<SessionId, Kept>,
    started: u64,
}

impl Entity for Browsers {
    type Msg = BrowsersMsg;
    type Args = Args;

    async fn start(args: Args, me: Context<BrowsersMsg>) -> Result<Self, Fault> {
        let Args { census, services } = args;
        // Browsers of a daemon that was killed died with it, their folders did not.
        folder::removed(services.folder.clone()).await;
        let children = Children::new(PATH, census, me.cell.clone());
        let address = me.address.clone();
        let _detached = me.workers.spawn(async move {
            let mut looks = interval(LOOK);
            loop {
                looks.tick().await;
                if address.send(BrowsersMsg::Look).is_err() {
                    return;
                }
            }
        });
        Ok(Self { me, children, services, kept: HashMap::new(), started: 0 })
    }

    fn handle(&mut self, message: BrowsersMsg) -> Result<(), Fault> {
        match message {
            BrowsersMsg::Call(call)
                if OF_ALL.rows.iter().any(|row| row.0.spec.name == call.tool.name) =>
            {
                let workers = self.me.workers.clone();
                serve::serve(self, &[&OF_ALL], &workers, *call);
            }
            BrowsersMsg::Call(call) => self.pass_on(*call),
            BrowsersMsg::Look => self.look(),
            BrowsersMsg::Close(session, why) => {
                if let Some(kept) = self.kept.remove(&session) {
                    tracing::info!(%session, why, "a browser is closed");
                    self.children.stop(&kept.name, why);
                }
            }
        }
        Ok(())
    }

    fn child(&mut self, end: ChildEnd) -> Result<(), Fault> {
        let (name, why) = match self.children.handle_end(end)? {
            ChildOutcome::Gone { name, .. } => (name, None),
            ChildOutcome::GaveUp { name, reason } => (name, Some(reason)),
            ChildOutcome::Restarting { .. } | ChildOutcome::Stranger => return Ok(()),
        };
        let found = self.kept.iter().find(|(_, kept)| kept.name == name);
        if let Some((session, kept)) = found.map(|(session, kept)| (*session, kept)) {
            if let Some(why) = why {
                let why = format!("it ended too often, the last time: {why}");
                kept.shared.link.send_replace(BrowserLink::Failed(why));
            }
            self.kept.remove(&session);
        }
        Ok(())
    }
}

impl Browsers {
    fn pass_on(&mut self, mut call: ToolCall) {
        let disabled = self.enabled().err();
        let kept = self.kept.get(&call.cx.session).filter(|_| disabled.is_none());
        match kept {
            Some(kept) if !kept.shared.starting() => drop(kept.address.send(call.into())),
            // Beside the mailbox of a browser that may end before it is there.
            Some(kept) => {
                let (shared, address) = (kept.shared.clone(), kept.address.clone());
                let _detached = self.me.workers.spawn(async move {
                    call.reply.begin();
                    match call.cx.guard(shared.up()).await {
                        Ok(_) => drop(address.send(call.into())),
                        Err(error) => call.reply.answer(Err(error)),
                    }
                });
            }
            None => {
                call.reply.begin();
                call.reply.answer(Err(disabled.unwrap_or_else(not_connected)));
            }
        }
    }

    fn enabled(&self) -> Result<(), ToolError> {
        if self.services.options.enabled {
            return Ok(());
        }
        let message = "sessions may not have browsers";
        Err(ToolError::new(Layer::Policy, codes::BROWSER_DISABLED, message)
            .next("work without it, or ask the operator for `browser.enabled`"))
    }

    /// Serves `webview_connect`.
    pub(crate) fn connect(
        &mut self,
        cx: &CallCx,
        input: Connect,
    ) -> Result<Reply<ConnectionDone>, ToolError> {
        self.enabled()?;
        let target = self.target(&input.debug_url)?;
        let dialogs =
            DialogPolicy { accept: input.dialogs.accepts(), prompt_text: input.prompt_text };
        let known = self.kept.get(&cx.session);
        let same = |Kept { shared, .. }: &Kept| {
            shared.target == target
                && shared.dialogs == dialogs
                && shared.place.place == input.place
        };
        if known.is_some_and(|kept| !same(kept)) {
            let message = "the session has a browser already, connected otherwise";
            return Err(ToolError::invalid(message).next("webview_disconnect closes it"));
        }
        let (shared, again) = match known {
            Some(kept) => (kept.shared.clone(), true),
            None => (self.begin(cx.session, target, dialogs, input.place)?, false),
        };
        let (cx, limit) = (cx.clone(), Duration::from_secs(input.timeout));
        Ok(Reply::later(async move {
            let up = tokio::time::timeout(limit, cx.guard(shared.up()));
            let late = |_| {
                let message = format!(
                    "Chrome is not there within {} s; it goes on starting",
                    limit.as_secs()
                );
                ToolError::new(Layer::Actor, codes::BROWSER_TIMED_OUT, message).retryable()
            };
            let chrome = up.await.map_err(late)??;
            let version: serde_json::Value = chrome
                .cdp
                .call(None, "Browser.getVersion", serde_json::json!({}))
                .await
                .map_err(crate::page::refused)?;
            let product = version["product"].as_str().unwrap_or("Chrome");
            let how = if again { "is connected already" } else { "is connected" };
            Ok(ConnectionDone {
                success: true,
                message: format!("{product:.80} {how}"),
                started: Some(!again),
            })
        }))
    }

    fn begin(
        &mut self,
        session: SessionId,
        target: BrowserTarget,
        dialogs: DialogPolicy,
        place: Option<String>,
    ) -> Result<Arc<SessionBrowser>, ToolError> {
        let user = self.services.sessions.user(session).unwrap_or(User::Nobody);
        // Those that close have their processes still, and their places.
        let held = self.services.running.take(user)?;
        let services = self.services.clone();
        let shared = SessionBrowser::new(session, services, target, dialogs, place, held);
        self.started += 1;
        let name = format!("{session}-{}", self.started);
        let policy = RestartPolicy::ENTITY;
        let address = self.children.address(&name, "browser", policy);
        let started = {
            let args = (shared.clone(), OF_A_BROWSER);
            self.children.start::<Browser>(&name, policy, &address, args)
        };
        started.map_err(|fault| ToolError::internal(fault.0))?;
        self.kept.insert(session, Kept { name, address, shared: shared.clone() });
        Ok(shared)
    }

    fn target(&self, asked: &str) -> Result<BrowserTarget, ToolError> {
        if asked == LOCAL {
            return Ok(BrowserTarget::Local);
        }
        let known = self.services.options.attach_url(asked);
        known.map(|url| BrowserTarget::Attached(url.to_owned())).ok_or_else(|| {
            let names: Vec<_> = self.services.options.attach.keys().map(String::as_str).collect();
            let message = match names.is_empty() {
                true => format!(
                    "`{asked:.100}` is not \"local\", and the operator opened no other browser"
                ),
                false => {
                    format!("`{asked:.100}` is neither \"local\" nor one of {}", names.join(", "))
                }
            };
            ToolError::new(Layer::Policy, codes::BROWSER_ATTACH_DENIED, message)
                .next("use \"local\", or ask the operator for an entry of `[browser.attach]`")
        })
    }

    /// Serves `webview_disconnect`: answers when the browser is gone with all that it had.
    pub(crate) fn disconnect(
        &mut self,
        cx: &CallCx,
        _: Disconnect,
    ) -> Result<Reply<ConnectionDone>, ToolError> {
        let Some(kept) = self.kept.remove(&cx.session) else {
            let message = "the session has no browser".to_owned();
            return Ok(Reply::Now(ConnectionDone { success: true, message, started: None }));
        };
        self.children.stop(&kept.name, "disconnected");
        let cx = cx.clone();
        Ok(Reply::later(async move {
            let mut link = kept.shared.link.subscribe();
            let over =
                |link: &BrowserLink| matches!(link, BrowserLink::Closed | BrowserLink::Failed(_));
            let gone = async {
                // Its sender lives as long as this.
                let _gone = link.wait_for(over).await;
                Ok(())
            };
            cx.guard(gone).await?;
            let message = "the browser is closed".to_owned();
            Ok(ConnectionDone { success: true, message, started: None })
        }))
    }

    /// Looks, beside the mailbox, which sessions are over.
    fn look(&mut self) {
        let idle = Duration::from_secs(self.services.options.idle_minutes * 60);
        for (session, kept) in &self.kept {
            let (session, unused) = (*session, kept.shared.idle_for() > idle);
            let (sessions, address) = (self.services.sessions.clone(), self.me.address.clone());
            let _detached = self.me.workers.spawn(async move {
                let why = match unused {
                    true => Some("no call used it"),
                    false => {
                        sessions.standing(session).await.ended.then_some("its session is over")
                    }
                };
                if let Some(why) = why {
                    // A manager that is gone has no browsers.
                    let _ = address.send(BrowsersMsg::Close(session, why));
                }
            });
        }
    }
}
