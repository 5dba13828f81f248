//! The link into the guest as a workspace's actor keeps it: its state, watched by all who want to reach
//! the guest.

use std::time::Duration;

use hivekeep_kernel::{CallCx, Layer, ToolError};
use hivekeep_link::{CallTerms, Link, LinkError, LinkToken};
use hivekeep_protocol::GuestRequest;
use tokio::{sync::watch, time::Instant};

use crate::codes;

/// Part of a call's time that is left for the answer after a wait.
const ANSWER_MARGIN: Duration = Duration::from_secs(2);

/// The link into the guest, and the secret that the guest accepts.
pub(crate) struct GuestLink {
    state: watch::Sender<LinkState>,
    token: watch::Sender<LinkToken>,
}

impl GuestLink {
    pub(crate) fn new(token: LinkToken) -> Self {
        Self { state: watch::channel(LinkState::Absent).0, token: watch::channel(token).0 }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<LinkState> {
        self.state.subscribe()
    }

    pub(crate) fn now(&self) -> LinkState {
        self.state.borrow().clone()
    }

    /// The link, if calls can be made and the guest answers.
    pub(crate) fn up(&self) -> Option<Link> {
        match &*self.state.borrow() {
            LinkState::Up(link) => Some(link.clone()),
            _ => None,
        }
    }

    /// Changes the state; returns the one before.
    pub(crate) fn set(&self, state: LinkState) -> LinkState {
        self.state.send_replace(state)
    }

    /// The secret that the next connection shows.
    pub(crate) fn token(&self) -> watch::Receiver<LinkToken> {
        self.token.subscribe()
    }

    /// Sets the secret that the guest accepts from now on.
    pub(crate) fn set_token(&self, token: LinkToken) {
        let _before = self.token.send_replace(token);
    }

    /// Waits for a usable link on behalf of a call, at most `patience`.
    pub(crate) fn reach(
        &self,
        cx: &CallCx,
        patience: Duration,
    ) -> impl Future<Output = Result<Link, ToolError>> + Send + use<> {
        let (mut state, cx) = (self.subscribe(), cx.clone());
        async move { cx.guard(usable(&mut state, patience)).await }
    }
}

/// State of the link into the guest.
#[derive(Debug, Clone)]
pub enum LinkState {
    /// There is no machine.
    Absent,
    /// A link is being made.
    Connecting(String),
    /// Calls can be made.
    Up(Link),
    /// The link is up, and the guest answers no pings.
    Unresponsive(Link),
    /// The guest will not serve this daemon.
    Refused(String),
    /// The machine ended.
    Gone(String),
}

impl LinkState {
    /// Text for people.
    pub(crate) fn word(&self) -> String {
        match self {
            Self::Absent => "absent".to_owned(),
            Self::Connecting(why) => format!("connecting ({why})"),
            Self::Up(_) => "up".to_owned(),
            Self::Unresponsive(_) => "unresponsive".to_owned(),
            Self::Refused(why) => format!("refused ({why})"),
            Self::Gone(why) => format!("gone ({why})"),
        }
    }
}

/// Waits for a usable link while one is being made, at most `patience`.
///
/// # Errors
/// `guest_unreachable`, with the link's state.
pub(crate) async fn usable(
    link_state: &mut watch::Receiver<LinkState>,
    patience: Duration,
) -> Result<Link, ToolError> {
    let settled = link_state
        .wait_for(|link_state| !matches!(link_state, LinkState::Connecting(_) | LinkState::Absent));
    // The state after the wait decides, however the wait ended.
    let _over = tokio::time::timeout(patience, settled).await.is_ok();
    let now = link_state.borrow().clone();
    match now {
        LinkState::Up(link) => Ok(link),
        // The call is tried: its own deadline decides, not a ping's.
        LinkState::Unresponsive(link) => Ok(link),
        other => {
            let message = format!("the guest cannot be reached: {}", other.word());
            Err(ToolError::new(Layer::Link, codes::GUEST_UNREACHABLE, message)
                .next("workspace_info shows the link; workspace_logs the guest's console")
                .retry_after(Duration::from_secs(1)))
        }
    }
}

/// Deadline and cancellation of a call to the guest.
pub(crate) fn wait(cx: &CallCx) -> CallTerms {
    CallTerms { deadline: cx.deadline, cancel: cx.cancel.clone() }
}

/// Asks by `waiting`, given the milliseconds to wait; without a wait, and when so many wait in the guest
/// that this one had no turn, by `at_once`.
///
/// # Errors
/// As [`Link::ask`].
pub(crate) async fn ask_after_a_wait<W, N>(
    cx: &CallCx,
    link: &Link,
    wait: Duration,
    waiting: impl FnOnce(u64) -> W,
    at_once: impl FnOnce() -> N,
) -> Result<W::Reply, LinkError>
where
    W: GuestRequest,
    N: GuestRequest<Reply = W::Reply>,
{
    let terms = CallTerms { deadline: cx.deadline, cancel: cx.cancel.clone() };
    let wait = wait.min(cx.remaining().saturating_sub(ANSWER_MARGIN));
    if wait.is_zero() {
        return link.ask(at_once(), terms).await;
    }
    let patience = CallTerms { deadline: Instant::now() + wait + ANSWER_MARGIN, ..terms.clone() };
    let wait_ms = wait.as_millis().try_into().unwrap_or(u64::MAX);
    match link.ask_waiting(waiting(wait_ms), patience).await {
        Err(LinkError::Deadline(_)) if Instant::now() < cx.deadline => {
            link.ask(at_once(), terms).await
        }
        answered => answered,
    }
}
