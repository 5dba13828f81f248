//! Reconnecting loop of a source: it connects, lists, watches, and begins again with growing pauses.

use std::{sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use hivekeep_ports::SourceState;
use rmcp::{
    RoleClient, ServiceError,
    model::{ClientRequest, PingRequest, ProtocolVersion},
    service::{ClientLifecycleMode, ClientServiceExt, Peer, PeerRequestOptions, RunningService},
};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use crate::{
    http,
    link::{Handler, SourceConnection, SourceLink, SourceShared, SourceTraffic},
    list::list,
    stdio::ServerProcess,
};

/// Shortest pause between two tries, whoever asks for the next.
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Life of a connection after which its end counts as the first one.
const STEADY: Duration = Duration::from_secs(30);
/// Pause between two questions whether the server lives.
const PING_EVERY: Duration = Duration::from_secs(30);
/// Time for the answer.
const PING_LIMIT: Duration = Duration::from_secs(10);
/// Time for a new list, and the pause before the first of them.
const LIST_LIMIT: Duration = Duration::from_secs(30);
const LIST_PAUSE: Duration = Duration::from_secs(1);

fn pauses() -> impl Iterator<Item = Duration> {
    ExponentialBuilder::default()
        .with_min_delay(SHORTEST_PAUSE)
        .with_max_delay(LONGEST_PAUSE)
        .with_jitter()
        .without_max_times()
        .build()
}

/// Keeps a source connected. Never returns.
pub(crate) async fn keep(shared: Arc<SourceShared>) {
    let mut next = pauses();
    loop {
        shared.link.send_replace(SourceLink::Connecting);
        let limit = Duration::from_secs(shared.options.start_timeout_secs);
        let opened = timeout(limit, Opened::new(&shared)).await.unwrap_or_else(|_| {
            Err(SourceState::Unreachable(format!("it was not ready within {} s", limit.as_secs())))
        });
        let state = match opened {
            Ok(opened) => {
                let since = Instant::now();
                let why = opened.watch(&shared).await;
                if since.elapsed() > STEADY {
                    next = pauses();
                }
                SourceState::Unreachable(why)
            }
            Err(state) => state,
        };
        tracing::warn!(source = %shared.name, %state, "a source is down");
        shared.link.send_replace(SourceLink::Down(state));
        let pause = next.next().unwrap_or(LONGEST_PAUSE);
        sleep(SHORTEST_PAUSE).await;
        tokio::select! {
            () = sleep(pause.saturating_sub(SHORTEST_PAUSE)) => {}
            () = shared.wake.notified() => {}
        }
    }
}

/// Connection with its handshake done and its tools published.
struct Opened {
    service: RunningService<RoleClient, Handler>,
    process: Option<ServerProcess>,
    traffic: Arc<SourceTraffic>,
}

impl Opened {
    async fn new(shared: &Arc<SourceShared>) -> Result<Self, SourceState> {
        let traffic = Arc::<SourceTraffic>::default();
        let handler = Handler(traffic.clone());
        let lifecycle = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::V_2025_11_25),
        };
        let has_token = shared.options.token_file.is_some();
        let (served, mut process) = match &shared.options.url {
            Some(url) => {
                let transport = http::transport(shared, url).await;
                let transport = transport.map_err(SourceState::Unreachable)?;
                (handler.serve_with_lifecycle(transport, lifecycle).await, None)
            }
            None => {
                let started = ServerProcess::start(shared).await;
                let (process, transport) = started.map_err(SourceState::Unreachable)?;
                (handler.serve_with_lifecycle(transport, lifecycle).await, Some(process))
            }
        };
        let service = match (served, &mut process) {
            (Ok(service), _) => service,
            (Err(error), Some(process)) => {
                let why = format!("{}; {}", http::handshake(&error), process.last_words().await);
                return Err(SourceState::Unreachable((shared.redact)(&why)));
            }
            (Err(error), None) => return Err(http::state_of(&error, has_token)),
        };
        let listed = list(service.peer()).await.map_err(|error| unlisted(&error, has_token))?;
        shared.publish(listed).await;
        let (peer, traffic) = (service.peer().clone(), traffic);
        let connection = SourceConnection { peer, traffic: traffic.clone() };
        shared.link.send_replace(SourceLink::Up(Arc::new(connection)));
        tracing::info!(source = %shared.name, "a source is connected");
        Ok(Self { service, process, traffic })
    }

    /// Watches a connection to its end; gives the reason.
    async fn watch(self, shared: &Arc<SourceShared>) -> String {
        let Self { service, mut process, traffic } = self;
        let peer = service.peer().clone();
        let mut ended = Box::pin(service.waiting());
        // A server that serves one call at a time may still work on a call that nobody waits for.
        let patience = PING_LIMIT.max(Duration::from_secs(shared.options.timeout_secs));
        let mut tick = interval(PING_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tick.reset();
        let (mut lists, mut due) = (0, None);
        let why = loop {
            let next_list = due.unwrap_or_else(Instant::now);
            let ask = tokio::select! {
                _ = &mut ended => break "its connection ended".to_owned(),
                () = traffic.list_changed.notified(), if due.is_none() => {
                    due = Some(Instant::now() + list_pause(lists));
                    None
                }
                () = sleep_until(next_list), if due.is_some() => {
                    (lists, due) = (lists + 1, None);
                    list_again(shared, &peer).await;
                    None
                }
                () = traffic.doubted.notified() => Some(patience),
                // A server may well do one thing at a time.
                _ = tick.tick() => (!traffic.busy()).then_some(PING_LIMIT),
            };
            if let Some(limit) = ask
                && !timeout(limit, lives(&peer, limit)).await.unwrap_or_default()
            {
                break format!("it does not answer within {} s", limit.as_secs());
            }
        };
        match &mut process {
            Some(process) if why == "its connection ended" => {
                (shared.redact)(&process.last_words().await)
            }
            _ => why,
        }
    }
}

/// Pause before a list that a server says is another: it grows for one that says so all the time.
fn list_pause(lists: u32) -> Duration {
    LIST_PAUSE * 2_u32.pow((lists / 8).min(6))
}

/// Publishes a new list, or leaves the last one.
async fn list_again(shared: &Arc<SourceShared>, peer: &Peer<RoleClient>) {
    let why = match timeout(LIST_LIMIT, list(peer)).await {
        Ok(Ok(listed)) => return shared.publish(listed).await,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", LIST_LIMIT.as_secs()),
    };
    tracing::warn!(source = %shared.name, why, "the list of a source stays");
}

/// Whether a server answers, be it with an error.
async fn lives(peer: &Peer<RoleClient>, limit: Duration) -> bool {
    // The newer revision has no ping; what hangs there is met by its calls.
    if !peer.peer_info().is_some_and(|info| info.protocol_version.has_initialize()) {
        return !peer.is_transport_closed();
    }
    let ping = ClientRequest::PingRequest(PingRequest::default());
    let options = PeerRequestOptions::with_timeout(limit);
    let Ok(asked) = peer.send_cancellable_request(ping, options).await else { return false };
    matches!(asked.await_response().await, Ok(_) | Err(ServiceError::McpError(_)))
}

/// State of a source whose tools cannot be listed.
fn unlisted(error: &ServiceError, has_token: bool) -> SourceState {
    http::refusal(error, has_token).unwrap_or_else(|| {
        SourceState::Unreachable(format!("its tools cannot be listed: {error:.300}"))
    })
}
