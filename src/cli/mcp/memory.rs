//! Record of an MCP conversation: enough to continue it with another daemon. Pure; it parses a
//! message no deeper than its id and method.

use std::collections::{BTreeSet, HashMap, HashSet};

use hivekeep_kernel::codes;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The outside of a JSON-RPC message.
#[derive(Deserialize)]
struct Head<'m> {
    #[serde(borrow, default)]
    id: Option<&'m RawValue>,
    #[serde(borrow, default)]
    method: Option<std::borrow::Cow<'m, str>>,
}

#[derive(Deserialize)]
struct Cancelled<'m> {
    #[serde(borrow)]
    params: CancelledParams<'m>,
}

#[derive(Deserialize)]
struct Subscribe {
    params: SubscribeParams,
}

#[derive(Deserialize)]
struct SubscribeParams {
    uri: String,
}

#[derive(Deserialize)]
struct CancelledParams<'m> {
    #[serde(borrow, rename = "requestId")]
    request_id: &'m RawValue,
}

/// Requests that change nothing: sent again after a loss, their client never
/// hears of it.
const REPEATABLE: [&str; 15] = [
    "initialize",
    "ping",
    "tools/list",
    "tasks/get",
    // A second time they find nothing to do.
    "tasks/update",
    "tasks/cancel",
    "server/discover",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    SUBSCRIBE,
    UNSUBSCRIBE,
];
/// A daemon forgets them when it goes; the client does not.
const SUBSCRIBE: &str = "resources/subscribe";
const UNSUBSCRIBE: &str = "resources/unsubscribe";
/// Subscriptions that are remembered, above what a daemon takes.
const SUBSCRIPTIONS: usize = 256;
/// A request that is answered when its client lets go of it.
const OPEN_ENDED: &str = "subscriptions/listen";

/// The error of a request that was running when the daemon went: the code that
/// clients' libraries use for a connection that closed under a request.
const LOST_CODE: i32 = -32000;

#[derive(Debug)]
struct InFlight {
    /// The message, if it may be sent again.
    again: Option<Vec<u8>>,
    open_ended: bool,
}

/// The conversation so far.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The client's `initialize`, once it was answered.
    initialize: Option<Vec<u8>>,
    /// Id of the `initialize` request while it is not answered, and its line.
    initializing: Option<(String, Vec<u8>)>,
    initialized: Option<Vec<u8>>,
    /// URIs that the client wants to hear of.
    subscriptions: BTreeSet<String>,
    in_flight: HashMap<String, InFlight>,
    /// The request that is being written now; there is one writer.
    writing: Option<String>,
    /// Requests of this daemon that the client has not answered.
    asked: HashSet<String>,
}

/// The decision about a message of the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Upward {
    /// Send it to the daemon.
    Send,
    /// Drop the message: it answers a question of a daemon that is gone.
    Drop,
}

/// Consequences of a lost daemon: messages for the client, and for the next daemon.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Loss {
    /// Lines for the client.
    pub(super) answers: Vec<Vec<u8>>,
    /// Requests for the next daemon, after the handshake.
    pub(super) again: Vec<Vec<u8>>,
}

/// A subscription of the client, for a daemon that does not know it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Subscription {
    /// A request with an id of our own.
    pub(super) request: Vec<u8>,
    /// A notification for the client: nobody saw whether the document changed meanwhile.
    pub(super) updated: Vec<u8>,
}

impl Subscription {
    fn new(at: usize, uri: &str) -> Self {
        let id = format!("hivekeep-subscription-{at}");
        let request = serde_json::json!({
            "jsonrpc": "2.0", "id": id, "method": SUBSCRIBE, "params": { "uri": uri },
        });
        let updated = serde_json::json!({
            "jsonrpc": "2.0", "method": "notifications/resources/updated",
            "params": { "uri": uri },
        });
        let line = |message: serde_json::Value| message.to_string().into_bytes();
        Self { request: line(request), updated: line(updated) }
    }
}

impl Memory {
    /// Notes a message of the client before it is written.
    pub(super) fn upward(&mut self, line: &[u8]) -> Upward {
        self.writing = None;
        // The daemon refuses a line that cannot be parsed.
        let Ok(head) = serde_json::from_slice::<Head<'_>>(line) else { return Upward::Send };
        match (head.method.as_deref(), head.id) {
            (Some(method), Some(id)) => {
                if method == "initialize" {
                    self.initializing = Some((id.get().to_owned(), line.to_owned()));
                }
                self.subscribe(method, line);
                let again = REPEATABLE.contains(&method).then(|| line.to_owned());
                let open_ended = method == OPEN_ENDED;
                self.writing = Some(id.get().to_owned());
                self.in_flight.insert(id.get().to_owned(), InFlight { again, open_ended });
            }
            (Some("notifications/initialized"), None) => self.initialized = Some(line.to_owned()),
            (Some("notifications/cancelled"), None) => {
                if let Ok(cancelled) = serde_json::from_slice::<Cancelled<'_>>(line) {
                    self.in_flight.remove(cancelled.params.request_id.get());
                }
            }
            (Some(_), None) => {}
            (None, Some(id)) => {
                if !self.asked.remove(id.get()) {
                    return Upward::Drop;
                }
            }
            (None, None) => {}
        }
        Upward::Send
    }

    fn subscribe(&mut self, method: &str, line: &[u8]) {
        if !matches!(method, SUBSCRIBE | UNSUBSCRIBE) {
            return;
        }
        let Ok(subscribe) = serde_json::from_slice::<Subscribe>(line) else { return };
        let uri = subscribe.params.uri;
        if method == UNSUBSCRIBE {
            self.subscriptions.remove(&uri);
        } else if self.subscriptions.len() < SUBSCRIPTIONS {
            self.subscriptions.insert(uri);
        }
    }

    /// The client's subscriptions.
    pub(super) fn subscriptions(&self) -> Vec<Subscription> {
        self.subscriptions.iter().enumerate().map(|(at, uri)| Subscription::new(at, uri)).collect()
    }

    /// Notes a message of the daemon before the client gets it.
    pub(super) fn downward(&mut self, line: &[u8]) {
        let Ok(head) = serde_json::from_slice::<Head<'_>>(line) else { return };
        match (head.method, head.id) {
            (Some(_), Some(id)) => {
                self.asked.insert(id.get().to_owned());
            }
            (None, Some(id)) => {
                self.in_flight.remove(id.get());
                if self.initializing.as_ref().is_some_and(|(asked, _)| asked == id.get()) {
                    self.initialize = self.initializing.take().map(|(_, line)| line);
                }
            }
            (Some(_) | None, None) => {}
        }
    }

    /// True when a request waits for an answer that will come by itself.
    pub(super) fn waits(&self) -> bool {
        self.in_flight.values().any(|request| !request.open_ended)
    }

    /// The noted message is written, and its daemon was there all the while.
    pub(super) fn written(&mut self) {
        self.writing = None;
    }

    /// The noted message is written, but its daemon was lost meanwhile: the
    /// answer to the client, unless the message may be sent again.
    pub(super) fn written_in_vain(&mut self) -> Option<Vec<u8>> {
        let id = self.writing.take()?;
        let request = self.in_flight.remove(&id)?;
        request.again.is_none().then(|| lost(&id))
    }

    /// Forgets what a daemon that is gone cannot answer any more. The request
    /// that is being written is left to its writer, who will know whether the
    /// daemon can have seen it.
    pub(super) fn lose(&mut self) -> Loss {
        self.asked.clear();
        let mut loss = Loss::default();
        let writing = self.writing.as_ref();
        self.in_flight.retain(|id, request| match &request.again {
            _ if writing == Some(id) => true,
            Some(line) => {
                loss.again.push(line.clone());
                true
            }
            None => {
                loss.answers.push(lost(id));
                false
            }
        });
        loss
    }

    /// Answers everything that waits, for good: no daemon will.
    pub(super) fn give_up(&mut self) -> Vec<Vec<u8>> {
        self.in_flight.drain().map(|(id, _)| lost(&id)).collect()
    }

    /// The handshake that made the session, if there was one.
    pub(super) fn handshake(&self) -> Option<(&[u8], Option<&[u8]>)> {
        Some((self.initialize.as_deref()?, self.initialized.as_deref()))
    }
}

fn lost(id: &str) -> Vec<u8> {
    // `id` is JSON as the client wrote it.
    format!(
        concat!(
            r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":{},"#,
            r#""message":"the daemon restarted while this request was running; whether it took "#,
            r#"effect is unknown. Look first, then try again.","#,
            r#""data":{{"code":"{}","layer":"door","retryable":true,"outcome":"unknown"}}}}}}"#
        ),
        id,
        LOST_CODE,
        codes::DAEMON_RESTARTED.name
    )
    .into_bytes()
}

/// True when a line of the daemon answers the request in `request`.
pub(super) fn answers(request: &[u8], line: &[u8]) -> bool {
    let id = |line| {
        serde_json::from_slice::<Head<'_>>(line)
            .ok()
            .map(|head| (head.id.map(|id| id.get().to_owned()), head.method.is_some()))
    };
    match (id(request), id(line)) {
        (Some((asked, _)), Some((answered, false))) => asked.is_some() && asked == answered,
        _ => false,
    }
}

/// True when an answer is a success.
pub(super) fn is_result(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(default)]
        result: Option<serde::de::IgnoredAny>,
    }
    serde_json::from_slice::<Answer>(line).is_ok_and(|answer| answer.result.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn line(message: Value) -> Vec<u8> {
        message.to_string().into_bytes()
    }

    /// Notes a message and its writing.
    fn up(memory: &mut Memory, line: &[u8]) {
        assert_eq!(memory.upward(line), Upward::Send);
        memory.written();
    }

    fn request(id: impl Into<Value>, method: &str) -> Vec<u8> {
        line(json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": {}}))
    }

    fn reply(id: impl Into<Value>) -> Vec<u8> {
        line(json!({"jsonrpc": "2.0", "id": id.into(), "result": {}}))
    }

    #[test]
    fn a_call_that_was_running_is_answered_and_a_listing_is_sent_again() {
        let mut memory = Memory::default();
        up(&mut memory, &request(1, "tools/call"));
        up(&mut memory, &request("one", "tools/call"));
        let listing = request(2, "tools/list");
        up(&mut memory, &listing);
        memory.downward(&reply(1));
        let loss = memory.lose();
        assert_eq!(loss.again, [listing]);
        let [answer] = &loss.answers[..] else { panic!("{loss:?}") };
        let answer: Value = serde_json::from_slice(answer).expect("JSON");
        assert_eq!(answer["id"], "one");
        assert_eq!(answer["error"]["data"]["code"], "daemon_restarted");
        assert_eq!(answer["error"]["data"]["retryable"], true);
        assert!(memory.waits(), "the listing is still to be answered");
        memory.downward(&reply(2));
        assert!(!memory.waits());
    }

    #[test]
    fn a_number_and_a_text_are_different_ids() {
        let mut memory = Memory::default();
        up(&mut memory, &request(1, "tools/call"));
        memory.downward(&reply("1"));
        assert!(memory.waits());
    }

    #[test]
    fn a_handshake_is_replayed_once_it_was_answered() {
        let mut memory = Memory::default();
        let (hello, done) = (
            request(0, "initialize"),
            line(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})),
        );
        up(&mut memory, &hello);
        assert!(memory.handshake().is_none());
        let loss = memory.lose();
        assert_eq!(
            loss.again,
            std::slice::from_ref(&hello),
            "unanswered: sent again like any other"
        );
        memory.downward(&reply(0));
        up(&mut memory, &done);
        assert_eq!(memory.handshake(), Some((&hello[..], Some(&done[..]))));
        assert_eq!(memory.lose(), Loss::default());
    }

    #[test]
    fn cancelled_and_open_ended_requests_are_not_waited_for() {
        let mut memory = Memory::default();
        up(&mut memory, &request(7, "tools/call"));
        let cancelled = line(json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}
        }));
        up(&mut memory, &cancelled);
        up(&mut memory, &request(8, "subscriptions/listen"));
        assert!(!memory.waits());
        assert_eq!(memory.lose().answers.len(), 1, "the subscription ended");
    }

    #[test]
    fn a_request_caught_while_it_is_written_is_its_writers_to_judge() {
        let mut memory = Memory::default();
        memory.upward(&request(1, "tools/call"));
        assert_eq!(memory.lose(), Loss::default(), "perhaps the daemon never saw it");
        assert!(memory.waits());
        let answer = memory.written_in_vain().expect("it may have been seen");
        assert!(String::from_utf8_lossy(&answer).contains("daemon_restarted"));
        assert!(!memory.waits());
        memory.upward(&request(2, "tools/list"));
        memory.lose();
        assert_eq!(memory.written_in_vain(), None, "it is simply sent again");
    }

    #[test]
    fn an_answer_to_a_daemon_that_is_gone_goes_nowhere() {
        let mut memory = Memory::default();
        memory.downward(&request(5, "elicitation/create"));
        memory.lose();
        assert_eq!(memory.upward(&reply(5)), Upward::Drop);
        memory.downward(&request(5, "ping"));
        assert_eq!(memory.upward(&reply(5)), Upward::Send);
        assert_eq!(memory.upward(b"not json"), Upward::Send);
    }

    #[test]
    fn an_answer_is_told_from_a_question_with_the_same_id() {
        let asked = request(3, "initialize");
        assert!(answers(&asked, &reply(3)));
        assert!(!answers(&asked, &reply(4)));
        assert!(!answers(&asked, &request(3, "ping")));
    }

    #[test]
    fn subscriptions_are_made_again_at_the_next_daemon() {
        let mut memory = Memory::default();
        let about = |id: u32, method: &str, uri: &str| {
            line(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {"uri": uri}}))
        };
        for (id, uri) in ["vault:///a.md", "vault:///b.md", "vault:///a.md"].iter().enumerate() {
            up(&mut memory, &about(id as u32, "resources/subscribe", uri));
            memory.downward(&reply(id));
        }
        up(&mut memory, &about(9, "resources/unsubscribe", "vault:///b.md"));
        memory.downward(&reply(9));
        assert_eq!(memory.lose(), Loss::default());
        let [again] = &memory.subscriptions()[..] else { panic!("one") };
        let (request, updated): (Value, Value) = (
            serde_json::from_slice(&again.request).expect("JSON"),
            serde_json::from_slice(&again.updated).expect("JSON"),
        );
        assert_eq!(request["params"], json!({"uri": "vault:///a.md"}));
        assert_eq!(
            (&request["method"], &updated["params"]),
            (&json!("resources/subscribe"), &request["params"])
        );
        let answer = reply(request["id"].clone());
        assert!(answers(&again.request, &answer) && is_result(&answer));
        let error = json!({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -1}});
        assert!(answers(&again.request, &line(error.clone())) && !is_result(&line(error)));
        for at in 0..2 * SUBSCRIPTIONS {
            up(&mut memory, &about(10, "resources/subscribe", &format!("vault:///{at}.md")));
        }
        assert_eq!(memory.subscriptions().len(), SUBSCRIPTIONS);
    }
}
