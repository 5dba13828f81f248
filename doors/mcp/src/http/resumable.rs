//! Streams of answers that outlive their connections: the events of a request's stream are kept for a while,
//! so that a client that comes back with `Last-Event-ID` gets what it missed, also where that was the answer.
//! Beyond the bounds, the oldest streams of the user with the most bytes are dropped.
//!
//! ```text
//! session's worker ─▶ stream of a request ─▶ kept ─┬─▶ client, for as long as it listens
//!                                                  └─▶ one that comes back
//! ```
//! rmcp forgets a stream with its answer, whether or not anybody heard it; and it ends a session whose worker
//! has heard nothing for a while, also while a request runs.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{Stream, StreamExt as _, future::Either, stream};
use hivekeep_kernel::{User, lock};
use rmcp::{
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::streamable_http_server::session::{
        RestoreOutcome, ServerSseMessage, SessionId, SessionManager,
        local::{LocalSessionManager, LocalSessionManagerError},
    },
};
use tokio::sync::mpsc;

use super::kept_sessions;

/// Events of one stream that are kept, the last ones, and that wait for a client that listens.
const MOST_EVENTS: usize = 16;
/// Streams of one session that have ended and are kept.
const MOST_STREAMS: usize = 16;
/// Bytes of the events of all streams that have ended and are kept.
const MOST_BYTES: usize = 16 * 1024 * 1024;
/// Bytes that a stream counts for at least, which bounds the number of streams.
const LEAST_BYTES: usize = 16 * 1024;
/// Id of no request: closing its channel changes nothing in a worker.
const NO_REQUEST: u64 = u64::MAX;

/// The sessions of the protocol, with the streams of their requests. Cheap to clone.
#[derive(Clone)]
pub(super) struct ResumableSessions {
    local: Arc<LocalSessionManager>,
    kept: Arc<Mutex<KeptStreams>>,
}

/// Session and request of a stream, as its events' ids name the request.
type StreamKey = (SessionId, String);

#[derive(Default)]
struct KeptStreams {
    all: HashMap<StreamKey, Arc<KeptStream>>,
    /// Streams that have ended, the oldest first.
    ended: VecDeque<EndedStream>,
}

struct EndedStream {
    key: StreamKey,
    user: User,
    bytes: usize,
}

/// The stream of one request.
#[derive(Default)]
struct KeptStream(Mutex<StreamEvents>);

#[derive(Default)]
struct StreamEvents {
    last: VecDeque<ServerSseMessage>,
    /// The client that listens.
    client: Option<mpsc::Sender<ServerSseMessage>>,
    ended: bool,
}

impl ResumableSessions {
    /// A session without a request that runs ends after `idle`.
    pub(super) fn new(idle: Duration) -> Self {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(idle);
        Self { local: Arc::new(local), kept: Arc::default() }
    }

    /// Number of sessions.
    pub(super) async fn count(&self) -> usize {
        self.local.sessions.read().await.len()
    }

    pub(super) async fn names(&self) -> HashSet<SessionId> {
        self.local.sessions.read().await.keys().cloned().collect()
    }

    /// Keeps the events of a user's stream until it ends, and sends them to the client that listens.
    async fn take_in(
        self,
        user: User,
        key: StreamKey,
        kept: Arc<KeptStream>,
        mut events: impl Stream<Item = ServerSseMessage> + Unpin,
    ) {
        let idle = self.local.session_config.keep_alive.unwrap_or(Duration::MAX) / 2;
        loop {
            match tokio::time::timeout(idle, events.next()).await {
                Ok(Some(event)) => {
                    // A client that does not read is left by its connection in time.
                    if let Some(client) = kept.push(&event) {
                        let _gone = client.send(event).await;
                    }
                }
                Ok(None) => break,
                Err(_) => self.stir(&key.0).await,
            }
        }
        let bytes = kept.end().max(LEAST_BYTES);
        lock(&self.kept).end(EndedStream { key, user, bytes });
    }

    /// Sends a session's worker a message without effect, which shows that the session is in use.
    async fn stir(&self, session: &SessionId) {
        let worker = self.local.sessions.read().await.get(session).cloned();
        if let Some(worker) = worker
            && let Err(error) = worker.close_request_wise_channel(NO_REQUEST).await
        {
            tracing::debug!(%error, "a session had ended already");
        }
    }
}

impl KeptStreams {
    /// Keeps a stream that has ended, within the bounds.
    fn end(&mut self, stream: EndedStream) {
        // The stream's session may be over.
        if !self.all.contains_key(&stream.key) {
            return;
        }
        let (session, user) = (stream.key.0.clone(), stream.user);
        self.ended.push_back(stream);
        let own = |it: &EndedStream| it.key.0 == session;
        if self.ended.iter().filter(|it| own(it)).count() > MOST_STREAMS {
            self.forget_oldest(own);
        }
        let mut by_user = HashMap::<User, usize>::new();
        for stream in &self.ended {
            *by_user.entry(stream.user).or_default() += stream.bytes;
        }
        while by_user.values().sum::<usize>() > MOST_BYTES {
            // Among users with equal bytes, the one whose stream has ended now.
            let most = by_user.iter_mut().max_by_key(|(it, bytes)| (**bytes, **it == user));
            let Some((most, bytes)) = most else { break };
            *bytes -= self.forget_oldest(|it| it.user == *most);
        }
    }

    /// Forgets the oldest matching stream; returns its bytes.
    fn forget_oldest(&mut self, of: impl Fn(&EndedStream) -> bool) -> usize {
        let oldest = self.ended.iter().position(of).and_then(|at| self.ended.remove(at));
        oldest.map_or(0, |oldest| {
            self.all.remove(&oldest.key);
            oldest.bytes
        })
    }

    fn forget_session(&mut self, session: &SessionId) {
        self.all.retain(|(of, _), _| of != session);
        self.ended.retain(|it| it.key.0 != *session);
    }
}

impl KeptStream {
    /// Keeps an event; returns the client that listens, if any.
    fn push(&self, event: &ServerSseMessage) -> Option<mpsc::Sender<ServerSseMessage>> {
        let mut events = lock(&self.0);
        if events.last.len() >= MOST_EVENTS {
            events.last.pop_front();
        }
        events.last.push_back(event.clone());
        events.client.clone()
    }

    /// Ends the client's stream; returns the number of bytes kept.
    fn end(&self) -> usize {
        let mut events = lock(&self.0);
        (events.ended, events.client) = (true, None);
        events.last.iter().map(weight).sum()
    }

    /// Kept events after this id, and then new ones. A client that listened before gets no more.
    fn behind(&self, last: Option<&str>) -> impl Stream<Item = ServerSseMessage> + use<> {
        let (client, mut told) = mpsc::channel(MOST_EVENTS);
        let mut events = lock(&self.0);
        let known = events.last.iter().position(|event| event.event_id.as_deref() == last);
        let missed: Vec<_> =
            events.last.iter().skip(known.map_or(0, |at| at + 1)).cloned().collect();
        events.client = (!events.ended).then_some(client);
        stream::iter(missed).chain(stream::poll_fn(move |cx| told.poll_recv(cx)))
    }
}

/// Bytes of an event on the wire, but for its id.
fn weight(event: &ServerSseMessage) -> usize {
    struct Counted(usize);
    impl io::Write for Counted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counted = Counted(0);
    if let Some(message) = &event.message
        && let Err(error) = serde_json::to_writer(&mut counted, message.as_ref())
    {
        tracing::debug!(%error, "an event is kept unweighed");
    }
    counted.0
}

/// The request that an event's id names.
fn request_of(event_id: &str) -> Option<&str> {
    event_id.split_once('/').map(|(_, request)| request)
}

type Answer<T> = Result<T, LocalSessionManagerError>;

impl SessionManager for ResumableSessions {
    type Error = LocalSessionManagerError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Answer<(SessionId, Self::Transport)> {
        self.local.create_session().await
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Answer<ServerJsonRpcMessage> {
        self.local.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Answer<bool> {
        self.local.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Answer<()> {
        lock(&self.kept).forget_session(id);
        self.local.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Answer<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static> {
        let mut events = Box::pin(self.local.create_stream(id, message).await?);
        // Its first event, which is there already, names the request.
        let first = events.next().await;
        let request = first.as_ref().and_then(|it| request_of(it.event_id.as_deref()?));
        let Some(request) = request.map(str::to_owned) else {
            return Ok(Either::Left(stream::iter(first).chain(events)));
        };
        let (key, kept) = ((id.clone(), request), Arc::<KeptStream>::default());
        first.iter().for_each(|event| drop(kept.push(event)));
        lock(&self.kept).all.insert(key.clone(), kept.clone());
        let told = kept.behind(None);
        let user = kept_sessions::served().unwrap_or(User::Nobody);
        tokio::spawn(self.clone().take_in(user, key, kept, events));
        Ok(Either::Right(told))
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Answer<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static> {
        self.local.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Answer<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static> {
        let kept = request_of(&last_event_id).and_then(|request| {
            lock(&self.kept).all.get(&(id.clone(), request.to_owned())).cloned()
        });
        match kept {
            Some(kept) => Ok(Either::Left(kept.behind(Some(&last_event_id)))),
            None => self.local.resume(id, last_event_id).await.map(Either::Right),
        }
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Answer<()> {
        self.local.accept_message(id, message).await
    }

    async fn restore_session(&self, id: SessionId) -> Answer<RestoreOutcome<Self::Transport>> {
        self.local.restore_session(id).await
    }
}

#[cfg(test)]
mod tests {
    use rmcp::{ErrorData, model::RequestId};

    use super::*;

    fn event(request: &str, index: usize, text: &str) -> ServerSseMessage {
        let error = ErrorData::internal_error(text.to_owned(), None);
        let message = ServerJsonRpcMessage::error(error, Some(RequestId::Number(1)));
        ServerSseMessage::new(format!("{index}/{request}"), message)
    }

    /// An ended stream of a user's session, with `events` that nobody listened to.
    async fn ended(
        sessions: &ResumableSessions,
        (user, session): (u32, &str),
        events: Vec<ServerSseMessage>,
    ) {
        let first = events[0].event_id.clone().expect("an id");
        let key = (session.into(), request_of(&first).expect("a request").to_owned());
        let kept = Arc::<KeptStream>::default();
        lock(&sessions.kept).all.insert(key.clone(), kept.clone());
        sessions.clone().take_in(User::Uid(user), key, kept, stream::iter(events)).await;
    }

    async fn resumed(sessions: &ResumableSessions, session: &str, last: &str) -> Vec<String> {
        let events = sessions.resume(&session.into(), last.to_owned()).await;
        let events = stream::iter(events.ok()).flatten();
        events.filter_map(async |event| event.event_id).collect().await
    }

    #[tokio::test]
    async fn what_came_while_nobody_listened_is_told_to_its_own_session_alone() {
        let sessions = ResumableSessions::new(Duration::from_secs(60));
        let events = (0..3).map(|index| event("7", index, "x")).collect();
        ended(&sessions, (1, "a"), events).await;
        assert_eq!(resumed(&sessions, "a", "0/7").await, ["1/7", "2/7"]);
        assert_eq!(resumed(&sessions, "a", "1/7").await, ["2/7"], "again, from elsewhere");
        assert_eq!(resumed(&sessions, "b", "0/7").await, [""; 0], "another's");
        sessions.close_session(&"a".into()).await.expect("closed");
        assert_eq!(resumed(&sessions, "a", "0/7").await, [""; 0], "the session is over");
        assert!(lock(&sessions.kept).ended.is_empty());
    }

    #[tokio::test]
    async fn whoever_comes_back_hears_the_rest_and_nothing_twice() {
        let kept = KeptStream::default();
        drop(kept.push(&event("7", 0, "x")));
        drop(kept.behind(None));
        drop(kept.push(&event("7", 1, "x")));
        let heard = kept.behind(Some("0/7"));
        let client = kept.push(&event("7", 2, "x")).expect("it listens");
        client.send(event("7", 2, "x")).await.expect("sent");
        drop(client);
        kept.end();
        let heard: Vec<_> = heard.filter_map(async |event| event.event_id).collect().await;
        assert_eq!(heard, ["1/7", "2/7"]);
    }

    #[tokio::test]
    async fn no_more_is_kept_than_may_be() {
        let sessions = ResumableSessions::new(Duration::from_secs(60));
        for request in 0..=MOST_STREAMS {
            ended(&sessions, (1, "a"), vec![event(&request.to_string(), 0, "x")]).await;
        }
        let all = || lock(&sessions.kept).all.len();
        assert_eq!(all(), MOST_STREAMS);
        assert_eq!(resumed(&sessions, "a", "x/0").await, [""; 0], "the oldest went");
        assert_eq!(resumed(&sessions, "a", "x/1").await, ["0/1"]);
        ended(&sessions, (1, "b"), vec![event("0", 0, &"x".repeat(MOST_BYTES - 1024))]).await;
        assert_eq!(all(), 1, "the last one alone fits");
        for request in 0..MOST_BYTES / LEAST_BYTES + 7 {
            let session = (request / MOST_STREAMS).to_string();
            ended(&sessions, (1, &session), vec![event(&request.to_string(), 0, "x")]).await;
        }
        assert_eq!(all(), MOST_BYTES / LEAST_BYTES, "there are bounds of small ones, too");
    }

    #[tokio::test]
    async fn whoever_is_told_much_costs_others_no_more_than_half() {
        let sessions = ResumableSessions::new(Duration::from_secs(60));
        let answer = || vec![event("0", 0, &"x".repeat(MOST_BYTES / 8))];
        let kept =
            |of: &str| lock(&sessions.kept).all.keys().filter(|it| it.0.starts_with(of)).count();
        for session in 0..8 {
            ended(&sessions, (1, &format!("a{session}")), answer()).await;
        }
        assert_eq!(kept("a"), 7, "as many as fit");
        ended(&sessions, (2, "b"), answer()).await;
        assert_eq!((kept("a"), kept("b")), (6, 1));
        assert_eq!(
            resumed(&sessions, "a1", "x/0").await,
            [""; 0],
            "the oldest of whoever had most"
        );
        ended(&sessions, (1, "a8"), answer()).await;
        assert_eq!((kept("a"), kept("b")), (6, 1), "a stranger's answer costs it nothing");
        for session in 0..8 {
            ended(&sessions, (2, &format!("b{session}")), answer()).await;
        }
        assert_eq!((kept("a"), kept("b")), (4, 3));
        assert_eq!(resumed(&sessions, "b7", "x/0").await, ["0/0"], "the last one");
    }
}
