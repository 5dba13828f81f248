//! News of the link into the guest: its changes, and the guest's events on their way into the mailbox.
//!
//! A guest can send any number of events, and a mailbox takes all it is given. So only a few events
//! wait there at a time, at a limited rate. The link drops those beyond that, the oldest first.
//! Nothing relies on an event alone: results of tasks are asked for every two seconds, jobs are
//! looked at every thirty.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::RestartPolicy;
use hivekeep_link::{GuestEvents, Link, LinkChange};
use hivekeep_protocol::GuestEvent;
use serde_json::json;
use tokio::{sync::Semaphore, time::Instant};

use crate::{
    link_state::LinkState,
    machine::identity,
    messages::{GuestEventIn, LinkMsg},
    phase::Phase,
    state::Workspace,
};

/// Name of the child that keeps the link.
pub(super) const LINK: &str = "link";

/// Most events of one link that wait in the mailbox.
const WAITING: usize = 16;
/// Most events passed on at once, as many as a link keeps, and the interval of further ones.
const AT_ONCE: u32 = 256;
const EVERY: Duration = Duration::from_millis(1);

/// Takes up a change of the link of a machine that is watched; true if the guest can be asked by it.
pub(crate) fn changed(state: &mut Workspace, news: LinkChange) -> bool {
    let probe = state.children.probe(LINK, "link", RestartPolicy::ENTITY);
    if state.machine.watched.is_none() {
        return false;
    }
    if matches!(news, LinkChange::Up { .. } | LinkChange::Down { .. }) {
        state.tasks.relinked();
    }
    let link_state = match news {
        LinkChange::Up { link, welcome } => {
            probe.set_state(format!("up, guest {}", bounded(&welcome.guest_version)));
            listen(state, &link);
            if state.status.phase == Phase::Running {
                relinked(state, link.clone());
            }
            LinkState::Up(link)
        }
        LinkChange::Down { reason } => {
            probe.set_error(reason.to_string());
            LinkState::Connecting(reason.to_string())
        }
        LinkChange::Unreachable { error } => LinkState::Connecting(error.to_string()),
        LinkChange::Refused { error } => {
            probe.set_error(error.to_string());
            LinkState::Refused(error.to_string())
        }
        LinkChange::Unresponsive => match state.link.now() {
            LinkState::Up(link) => LinkState::Unresponsive(link),
            other => other,
        },
        LinkChange::Responsive => match state.link.now() {
            LinkState::Unresponsive(link) => LinkState::Up(link),
            other => other,
        },
    };
    let (is_up, word) = (matches!(link_state, LinkState::Up(_)), link_state.word());
    if !is_up {
        probe.set_state(&word);
    }
    let kind = std::mem::discriminant(&link_state);
    let before = state.link.set(link_state);
    // Starts and stops publish their own events.
    if state.status.phase == Phase::Running && std::mem::discriminant(&before) != kind {
        state.handle.publish("workspace.link", json!({ "link": bounded(&word) }));
    }
    if is_up {
        // Hints may have been lost with the previous link.
        state.tasks.changed();
    }
    is_up
}

/// Configures a running guest again after a new link was made, which sets its clock.
pub(crate) fn relinked(state: &Workspace, link: Link) {
    let (workspace, mut plan) = (state.handle.clone(), state.ledger.plan.clone());
    let _detached = state.me.workers.spawn(async move {
        loop {
            if let Err(error) = identity::configure(&link, &plan, false).await {
                tracing::warn!(workspace = %workspace.id, %error, "the guest was not configured anew");
            }
            // A pool machine that was claimed meanwhile has another name.
            match workspace.shared.directory.any(workspace.id) {
                Some(card) if card.name != plan.name => plan.name = card.name,
                _ => return,
            }
        }
    });
}

/// Passes the guest's events on to the mailbox while this link lasts.
fn listen(state: &Workspace, link: &Link) {
    let (events, address) = (link.events(), state.me.address.clone());
    let send = move |event| address.send(LinkMsg::Event(event).into()).is_ok();
    let _detached = state.me.workers.spawn(pass_on(events, state.tasks.links(), send));
}

pub(crate) fn guest_event(state: &mut Workspace, event: GuestEventIn) {
    let GuestEventIn { links, event, _room } = event;
    match event {
        GuestEvent::JobEnded(summary) => state.jobs.ended_in_guest(&summary.job_id),
        GuestEvent::TasksChanged => state.tasks.changed(),
        GuestEvent::TaskProgress(told) => state.tasks.progress(&state.handle, &told),
        GuestEvent::TaskEnded(news) => state.tasks.ended(links, news),
    }
}

/// Text of the guest or of the hypervisor, as far as it is shown.
pub(super) fn bounded(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// Sends each event until nobody takes them or the link has ended.
async fn pass_on(mut events: GuestEvents, links: u64, send: impl Fn(GuestEventIn) -> bool) {
    let room = Arc::new(Semaphore::new(WAITING));
    let mut pace = Pace { due: Instant::now() };
    while let Some(event) = events.recv().await {
        let wait = pace.step(Instant::now());
        // A sleep of nothing takes a millisecond or two.
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let Ok(_room) = room.clone().acquire_owned().await else { return };
        if !send(GuestEventIn { links, event, _room }) {
            return;
        }
    }
}

/// Rate limit of events.
struct Pace {
    /// When the next event would be due, if all came evenly.
    due: Instant,
}

impl Pace {
    /// Wait before the next event is passed on.
    fn step(&mut self, now: Instant) -> Duration {
        self.due = self.due.max(now) + EVERY;
        self.due.saturating_duration_since(now + EVERY * AT_ONCE)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use hivekeep_kernel::lock;

    use hivekeep_protocol::{Frame, FrameKind, FromGuest, GuestCode, GuestError, JobList, encode};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use hivekeep_link::{
        CallTerms, LinkOptions, LinkToken,
        fake::{FakeGuest, RequestBehaviour},
    };

    #[test]
    fn a_flood_is_passed_on_a_thousand_times_a_second() {
        let begun = Instant::now();
        let (mut now, mut passed) = (begun, 0);
        let mut pace = Pace { due: begun };
        while now < begun + Duration::from_secs(10) {
            now += pace.step(now) + Duration::from_micros(50);
            passed += 1;
        }
        assert!((10_000..10_400).contains(&passed), "{passed}");
        let later = now + Duration::from_secs(60);
        let burst = (0..1000).take_while(|_| pace.step(later).is_zero()).count();
        assert_eq!(burst, AT_ONCE as usize, "after a pause as many at once");
    }

    /// Sends many hints before its answer.
    fn flooding() -> FakeGuest {
        let flood = |id| {
            let hint = encode(&GuestEvent::TasksChanged).unwrap();
            let mut bytes = Frame { kind: FrameKind::Event, id: 0, payload: hint }.to_bytes();
            bytes = bytes.repeat(50_000);
            let reply: Result<FromGuest, _> =
                Err(GuestError::new(GuestCode::Unsupported, "said all"));
            let payload = encode(&reply).unwrap();
            bytes.extend(Frame { kind: FrameKind::Reply, id, payload }.to_bytes());
            bytes
        };
        FakeGuest::new(move |_| RequestBehaviour::raw(flood)).0
    }

    #[tokio::test]
    async fn of_a_flood_a_few_wait_in_the_mailbox_whatever_its_owner_does() {
        let (token, options) = (LinkToken::generate().unwrap(), LinkOptions::default());
        let (carrier, cancel) = (flooding().carrier(), CancellationToken::new());
        let (link, _) = Link::connect_over(&carrier, &token, &options, &cancel).await.unwrap();
        let mailbox = Arc::new(Mutex::new(Vec::new()));
        let waiting = || lock(&mailbox).len();
        let passing = tokio::spawn(pass_on(link.events(), 1, {
            let mailbox = mailbox.clone();
            move |event| {
                lock(&mailbox).push(event);
                true
            }
        }));
        let said =
            link.ask(JobList, CallTerms::at_most(Duration::from_secs(60))).await.unwrap_err();
        assert!(said.to_string().contains("said all"), "{said}");
        let mut total = 0;
        for _ in 0..4 {
            while waiting() < WAITING {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // A full burst would arrive meanwhile, if events did not wait for room.
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(waiting(), WAITING);
            let handled = std::mem::take(&mut *mailbox.lock().unwrap());
            total += handled.len();
        }
        assert_eq!(total, 4 * WAITING, "what was handled makes room");
        passing.abort();
    }
}
