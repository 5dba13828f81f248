//! A client: one loop that reads and writes its socket, and the tasks that follow its channels.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::extract::ws::{Message, WebSocket};
use hivekeep_door_server::http::caller::HttpCaller;
use hivekeep_hub::codes;
use hivekeep_kernel::{Layer, ToolError};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::{Instant, MissedTickBehavior},
};

use super::{
    Hub, follow,
    frame::{HeardFrame, HubChannel, ToldFrame},
    pages,
};

/// Frames on their way to the socket, of all channels; then their followers wait.
const ON_THE_WAY: usize = 32;

/// A client with its subscriptions.
struct HubClient {
    hub: Arc<Hub>,
    caller: HttpCaller,
    told: mpsc::Sender<ToldFrame>,
    /// Tasks, each of a channel; dropped with the client.
    followers: JoinSet<String>,
    channels: HashMap<String, AbortHandle>,
}

/// Serves a client until it leaves, is silent for too long, or loses its credential.
pub(super) async fn serve(hub: Arc<Hub>, caller: HttpCaller, mut socket: WebSocket) {
    let (told, mut telling) = mpsc::channel(ON_THE_WAY);
    let ping = Duration::from_secs(hub.core.config.hub.ping_secs);
    let (credentials, end, user) = (hub.core.credentials.clone(), hub.end.clone(), caller.user);
    let mut over = std::pin::pin!(async move {
        tokio::select! {
            () = end.cancelled() => {}
            () = credentials.revocation(user) => {}
        }
    });
    let (followers, channels) = (JoinSet::new(), HashMap::new());
    let mut client = HubClient { hub, caller, told, followers, channels };
    let (mut beat, mut heard_at) = (tokio::time::interval(ping), Instant::now());
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            biased;
            () = &mut over => break,
            heard = socket.recv() => {
                heard_at = Instant::now();
                match heard {
                    Some(Ok(Message::Text(text))) => client.hear(text.as_str()).map(ToldFrame::text),
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                    Some(Ok(Message::Binary(_))) => {
                        let error = ToolError::invalid("a message is not text");
                        Some(ToldFrame::error(&Value::Null, None, &error).text())
                    }
                    Some(Ok(_)) => None,
                }
                .map(|text| Message::Text(text.into()))
            }
            Some(ended) = client.followers.join_next() => {
                client.forget(ended);
                None
            }
            _ = beat.tick() => match heard_at.elapsed() > 2 * ping {
                true => break,
                false => Some(Message::Ping(Default::default())),
            },
            Some(frame) = telling.recv() => Some(Message::Text(frame.text().into())),
        };
        // A client that does not read holds this up and nobody else; its connection ends in time.
        if let Some(message) = message
            && socket.send(message).await.is_err()
        {
            return;
        }
    }
    // The client may have gone.
    let _gone = socket.send(Message::Close(None)).await;
}

impl HubClient {
    /// Does what a message says. The answer of a subscription comes from its follower.
    fn hear(&mut self, text: &str) -> Option<ToldFrame> {
        let frame = match HeardFrame::read(text) {
            Ok(frame) => frame,
            Err(error) => return Some(ToldFrame::error(&Value::Null, None, &error)),
        };
        let (id, channel) = (frame.id.clone(), frame.channel().map(str::to_owned));
        let answer = match (frame.kind.as_str(), channel.as_deref()) {
            ("ping", _) => Ok(Some(ToldFrame::new("pong").with("id", id.clone()))),
            ("subscribe", Some(channel)) => self.subscribe(channel, frame).map(|()| None),
            ("unsubscribe", Some(channel)) => {
                self.unsubscribe(channel);
                let done = ToldFrame::new("unsubscribed").with("id", id.clone());
                Ok(Some(done.with("channel", json!(channel))))
            }
            _ => Err(ToolError::invalid(
                "a frame is `subscribe` or `unsubscribe` with a channel, or `ping`",
            )),
        };
        answer.unwrap_or_else(|error| Some(ToldFrame::error(&id, channel.as_deref(), &error)))
    }

    fn subscribe(&mut self, name: &str, frame: HeardFrame) -> Result<(), ToolError> {
        let channel = HubChannel::parse(name)?;
        let most = self.hub.core.config.hub.max_channels;
        let followed = self.channels.get(name).is_some_and(|task| !task.is_finished());
        if followed || self.channels.len() >= most {
            let (code, why) = match followed {
                true => (codes::HUB_CHANNEL_REFUSED, "the channel is followed already".to_owned()),
                false => {
                    let why = format!("{most} channels are followed, and no more may be");
                    (codes::HUB_TOO_MANY_CHANNELS, why)
                }
            };
            return Err(
                ToolError::new(Layer::Door, code, why).next("unsubscribe from a channel first")
            );
        }
        let follower = Follower {
            seat: self.hub.clone(),
            caller: self.caller.clone(),
            name: name.to_owned(),
            told: self.told.clone(),
            frame,
        };
        let task = self.followers.spawn(follower.run(channel));
        self.channels.insert(name.to_owned(), task);
        Ok(())
    }

    fn unsubscribe(&mut self, name: &str) {
        if let Some(task) = self.channels.remove(name) {
            task.abort();
        }
    }

    /// Forgets a channel whose follower has ended by itself.
    fn forget(&mut self, ended: Result<String, tokio::task::JoinError>) {
        if let Ok(name) = ended
            && self.channels.get(&name).is_some_and(AbortHandle::is_finished)
        {
            self.channels.remove(&name);
        }
    }
}

/// A task that follows a channel.
pub(super) struct Follower {
    pub(super) seat: Arc<Hub>,
    pub(super) caller: HttpCaller,
    pub(super) name: String,
    pub(super) told: mpsc::Sender<ToldFrame>,
    pub(super) frame: HeardFrame,
}

impl Follower {
    async fn run(self, channel: HubChannel) -> String {
        let followed = match channel {
            HubChannel::Process(id) => follow::process(&self, id).await,
            HubChannel::Pages => pages::follow(&self).await,
            channel => follow::events(&self, channel).await,
        };
        if let Err(error) = followed {
            let refusal = ToldFrame::error(&self.frame.id, Some(&self.name), &error);
            let _gone = self.told.send(refusal).await;
        }
        self.name
    }

    /// Acknowledges the subscription; false when the client has gone.
    pub(super) async fn acknowledge(&self, from: Value) -> bool {
        let frame = ToldFrame::of("subscribed", &self.name, json!({ "from": from }));
        self.tell(frame.with("id", self.frame.id.clone())).await
    }

    /// Sends a frame, as soon as the client takes one; false when it has gone.
    pub(super) async fn tell(&self, frame: ToldFrame) -> bool {
        self.told.send(frame).await.is_ok()
    }
}
