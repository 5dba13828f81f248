//! Events as they happen, over both ways.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use serde_json::{Value, json};

use super::{Api, bearer, head};
use crate::home::{PATIENCE, wait_until};

/// A stream of server-sent events.
pub(super) struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(api: &Api, token: &str, query: &str, more: &[(&str, &str)]) -> Self {
        Self::at(api, token, &format!("/api/events{query}"), more)
    }

    pub(super) fn at(api: &Api, token: &str, path: &str, more: &[(&str, &str)]) -> Self {
        let auth = bearer(token);
        let mut headers = vec![("Authorization", auth.as_str())];
        headers.extend(more);
        let (status, headers, reader) = api.begin("GET", path, &headers, None);
        assert_eq!(status, 200);
        assert_eq!(headers["content-type"], "text/event-stream");
        Self(reader)
    }

    /// Id, kind and data of the next event; `None` at the end.
    pub(super) fn next(&mut self) -> Option<(u64, String, Value)> {
        let (mut id, mut kind, mut data) = (0, String::new(), Value::Null);
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).expect("it goes on") == 0 {
                return None;
            }
            let line = line.trim_end();
            if let Some(value) = line.strip_prefix("id: ") {
                id = value.parse().expect("a number");
            } else if let Some(value) = line.strip_prefix("event: ") {
                kind = value.to_owned();
            } else if let Some(value) = line.strip_prefix("data: ") {
                data = serde_json::from_str(value).expect("JSON");
            } else if line == "0" {
                return None;
            } else if line.is_empty() && !data.is_null() {
                return Some((id, kind, data));
            }
        }
    }

    fn until(&mut self, wanted: impl Fn(&str, &Value) -> bool) -> (u64, Value) {
        loop {
            let (id, kind, data) = self.next().expect("it goes on");
            if wanted(&kind, &data) {
                return (id, data);
            }
        }
    }
}

#[test]
fn a_stream_goes_on_behind_the_last_event_and_filters_by_kind_and_subject() {
    let api = Api::start();
    let session = api.open(&api.session, &json!({}));
    api.invoke(&api.session, "workspace_list", &json!({ "session_id": session })).of(200);
    let mut all = Stream::open(&api, &api.operator, "?from=1", &[]);
    let (first, _, _) = all.next().expect("one");
    assert_eq!(first, 1);
    let (called, data) = all.until(|kind, _| kind == "call.finished");
    assert_eq!(data["data"]["session"], json!(session));
    assert_eq!(data["seq"], json!(called));

    let last = called.to_string();
    let mut resumed = Stream::open(&api, &api.operator, "?from=1", &[("Last-Event-ID", &last)]);
    let more = json!({ "session_id": session, "input": {} });
    api.invoke(&api.session, "workspace_list", &more).of(200);
    let (next, _, _) = resumed.next().expect("one");
    assert_eq!(next, called + 1, "nothing twice, nothing lost");

    let mut calls = Stream::open(&api, &api.reader, "?from=1&kind=call.*", &[]);
    for _ in 0..2 {
        assert_eq!(calls.next().expect("one").1, "call.finished");
    }
    let query = format!("?from=1&subject={session}");
    let mut about = Stream::open(&api, &api.operator, &query, &[]);
    assert_eq!(about.next().expect("one").2["subject"], json!(session));

    let auth = bearer(&api.operator);
    let with = |path: &str, more: (&str, &str)| {
        api.raw("GET", path, &[("Authorization", &auth), more], None).code(400)
    };
    assert_eq!(with("/api/events", ("Last-Event-ID", "x")), "tool_invalid_input");
    assert_eq!(with("/api/events?from=-1", ("X-Y", "1")), "tool_invalid_input");
    let long = format!("/api/events?kind={}", "k".repeat(201));
    assert_eq!(with(&long, ("X-Y", "1")), "tool_invalid_input");
}

#[test]
fn a_credential_of_scope_session_sees_its_own_sessions_alone_and_is_cut_off_when_revoked() {
    let api = Api::start();
    let own = api.open(&api.session, &json!({}));
    let theirs = api.open(&api.operator, &json!({}));
    for (token, session) in [(&api.operator, &theirs), (&api.session, &own)] {
        api.invoke(token, "workspace_list", &json!({ "session_id": session })).of(200);
    }
    let mut stream = Stream::open(&api, &api.session, "?from=1", &[]);
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.push(stream.next().expect("one").2);
    }
    for event in &seen {
        assert!(
            event.to_string().contains(&own) && !event.to_string().contains(&theirs),
            "{event}"
        );
    }
    api.home.ok(&["credential", "revoke", "worker"]);
    assert!(stream.next().is_none_or(|(_, _, event)| event.to_string().contains(&own)));
    while stream.next().is_some() {}
}

/// A subscriber that does not read is told what it has lost, and nobody waits for it.
#[test]
fn a_slow_subscriber_is_told_how_many_it_has_lost_and_slows_nobody() {
    const EVENTS: usize = 3_000;
    let api = Api::with(&[("HIVEKEEP_REGISTRY__RATE__ENABLED", "false")]);
    // Its socket takes little, so that it soon holds up what is written to it.
    let mut slow = {
        let stream = TcpStream::connect(&api.address).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096).expect("set");
        let mut stream = stream;
        let auth = bearer(&api.operator);
        let request = format!(
            "GET /api/events HTTP/1.1\r\nHost: {}\r\nAuthorization: {auth}\r\n\r\n",
            api.address
        );
        stream.write_all(request.as_bytes()).expect("writes");
        let (status, _, reader) = head(stream);
        assert_eq!(status, 200);
        Stream(reader)
    };
    let mut quick = Stream::open(&api, &api.operator, "?kind=call.finished", &[]);
    let (address, auth) = (api.address.clone(), bearer(&api.operator));
    let heard = Arc::new(AtomicUsize::new(0));
    let heard_by_then = heard.clone();
    let caller = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(&address).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        for call in 0..EVENTS {
            // No further ahead of the quick one than it may be behind, however slow the host is.
            wait_until("the quick one hears", || call < heard_by_then.load(SeqCst) + 200);
            // A note of some size, so that its events fill what lies between.
            let body = r#"{"input":{}}"#;
            let request = format!(
                "POST /api/tools/workspace_list/invoke HTTP/1.1\r\nHost: {address}\r\n\
                 Authorization: {auth}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(request.as_bytes()).expect("writes");
            let (status, headers, mut reader) = head(stream.try_clone().expect("a socket"));
            assert_eq!(status, 200);
            let length = headers["content-length"].parse().expect("a length");
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("whole");
        }
    });
    let mut told = 0;
    while told < EVENTS {
        let (_, kind, _) = quick.next().expect("it goes on");
        assert_eq!(kind, "call.finished", "the quick one has lost nothing");
        told += 1;
        heard.store(told, SeqCst);
    }
    caller.join().expect("all were answered");
    // From now on it reads as fast as it can.
    rustix::net::sockopt::set_socket_recv_buffer_size(slow.0.get_ref(), 1 << 20).expect("set");
    let (_, missed) = slow.until(|kind, _| kind == "missed");
    let number = |key: &str| missed["missed"][key].as_u64().expect("a number");
    assert!(number("count") > 0, "{missed}");
    assert_eq!(number("count"), number("last") - number("first") + 1);
    let (next, _, _) = slow.next().expect("it goes on");
    assert_eq!(next, number("last") + 1, "and on behind the gap");
}

#[test]
fn a_web_socket_has_the_same_events_as_text() {
    let api = Api::start();
    let plain = api.get(&api.operator, "/api/events/ws");
    assert!(matches!(plain.status, 400 | 426), "{plain:?}");
    let auth = bearer(&api.operator);
    let mut stream = TcpStream::connect(&api.address).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let request = format!(
        "GET /api/events/ws?from=1 HTTP/1.1\r\nHost: {}\r\nAuthorization: {auth}\r\n\
         Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        api.address
    );
    stream.write_all(request.as_bytes()).expect("writes");
    let (status, headers, mut reader) = head(stream);
    assert_eq!(status, 101);
    assert_eq!(headers["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    for seq in 1..=3_u64 {
        let event = loop {
            let (kind, payload) = frame(&mut reader);
            if kind == 1 {
                break payload;
            }
            assert_eq!(kind, 9, "a ping");
        };
        let event: Value = serde_json::from_slice(&event).expect("JSON");
        assert_eq!(event["seq"], json!(seq));
    }
    // Another page's script has no way to show a credential.
    let page = [("Origin", "http://evil.example"), ("Authorization", auth.as_str())];
    assert_eq!(api.raw("GET", "/api/events/ws", &page, None).status, 403);
}

/// One unmasked frame: its opcode and payload.
fn frame(reader: &mut impl Read) -> (u8, Vec<u8>) {
    let mut head = [0; 2];
    reader.read_exact(&mut head).expect("a frame");
    let length = match head[1] {
        126 => {
            let mut long = [0; 2];
            reader.read_exact(&mut long).expect("a length");
            usize::from(u16::from_be_bytes(long))
        }
        short => usize::from(short),
    };
    let mut payload = vec![0; length];
    reader.read_exact(&mut payload).expect("a payload");
    (head[0] & 0x0f, payload)
}
