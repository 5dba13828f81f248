//! Chats: for their owner alone, and each event once.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Answer, Api, bearer, credential, events::Stream, opened};
use crate::home::{Home, wait_until};

/// An agent that needs no machine.
const MANIFEST: &str = "apiVersion: 100monkeys.ai/v1\nkind: Agent\nmetadata: { name: listener, version: 1.0.0 }\nspec:\n  \
    runtime: { language: python, version: '3.11' }\n  tools: [aegis.script.list]\n  \
    task: { instruction: Listen. }\n";

/// A daemon with a model that answers each message alike, and a user who chats with it.
fn chatting(more: &[(&str, &str)]) -> Api {
    let home = opened(Home::new()).with("HIVEKEEP_REGISTRY__RATE__ENABLED", "false");
    let home = more.iter().fold(home, |home, (name, value)| home.with(name, value));
    let script = home.path("replies.json");
    let replies = json!({ "replies": [{ "when": "", "text": "It is heard." }] });
    std::fs::write(&script, replies.to_string()).expect("writes");
    let config = format!(
        "[model.provider.script]\nkind = \"scripted\"\nscript = {script:?}\nmodels = {{ m = {{}} }}\n\
         [agent]\nchat_agent = \"listener\"\n"
    );
    std::fs::write(home.path("config.toml"), config).expect("writes");
    let api = Api::of(home);
    let input = json!({ "input": { "manifest_yaml": MANIFEST } });
    api.invoke(&api.operator, "aegis_agent_create", &input).of(200);
    api
}

/// Another user who chats.
fn other(api: &Api) -> String {
    credential(&api.home, "other", "session")
}

/// A chat that somebody opens; its id.
fn open(api: &Api, token: &str, name: &str) -> String {
    let opened = api.post(token, "/api/chats", &json!({ "name": name })).of(200);
    opened["session"]["id"].as_str().unwrap_or_else(|| panic!("{opened}")).to_owned()
}

fn say(api: &Api, token: &str, chat: &str, message: &str) {
    let path = format!("/api/chats/{chat}/messages");
    let sent = api.post(token, &path, &json!({ "message": message })).of(200);
    assert_eq!((&sent["sent"], &sent["sessionId"]), (&json!(true), &json!(chat)));
}

/// What was said, once there are so many messages.
fn said(api: &Api, token: &str, chat: &str, count: usize) -> Value {
    let path = format!("/api/chats/{chat}/messages?limit=1000");
    let messages = || api.get(token, &path).of(200)["messages"].clone();
    wait_until("it is answered", || messages().as_array().expect("messages").len() >= count);
    messages()
}

/// Events of a chat as its execution's log has them.
fn logged(api: &Api, token: &str, chat: &str) -> Vec<Value> {
    let input = json!({ "input": { "execution_id": chat, "limit": 200 } });
    let logs = api.invoke(token, "aegis_task_logs", &input).of(200);
    logs["result"]["structured"]["events"].as_array().expect("events").clone()
}

/// Events up to the next answer of the model.
fn up_to_an_answer(stream: &mut Stream) -> Vec<Value> {
    let mut all = Vec::new();
    loop {
        let (id, kind, event) = stream.next().expect("it goes on");
        assert_eq!((&event["sequence"], &event["event_type"]), (&json!(id), &json!(kind)));
        all.push(event);
        if kind == "llm_interaction" {
            return all;
        }
    }
}

#[test]
fn anothers_chat_is_as_one_that_is_not_there() {
    let api = chatting(&[]);
    let (owner, other) = (&api.session, other(&api));
    let chat = open(&api, owner, "zebra");
    say(&api, owner, &chat, "striped");
    let before = said(&api, owner, &chat, 2);
    let (prefix, _) = chat.split_once('_').expect("an id");
    let nobody = format!("{prefix}_0192f0c1a2b37c4d8e5f60718293a4b5");
    let asked = |token: &str, id: &str| -> [Answer; 4] {
        let at = |tail: &str| format!("/api/chats/{id}{tail}");
        let auth = bearer(token);
        let behind = [("Authorization", auth.as_str()), ("Last-Event-ID", "1")];
        [
            api.get(token, &at("/messages")),
            api.post(token, &at("/messages"), &json!({ "message": "mine now" })),
            api.get(token, &at("/events?from=1")),
            api.raw("GET", &at("/events"), &behind, None),
        ]
    };
    // An operator is another user, too.
    for token in [&other, &api.operator] {
        let told = |id: &str| asked(token, id).map(|answer| answer.plain(404).replace(id, "ID"));
        assert_eq!(told(&chat), told(&nobody), "the same words");
        assert_eq!(api.get(token, "/api/chats").of(200), json!({ "sessions": [] }));
    }
    for answer in asked(&api.reader, &chat) {
        answer.plain(403);
    }
    api.get(&api.reader, "/api/chats").plain(403);
    api.post(&api.reader, "/api/chats", &json!({ "name": "x" })).plain(403);
    assert_eq!(said(&api, owner, &chat, 2), before, "nobody has said anything in it");
    let listed = api.get(owner, "/api/chats").of(200);
    assert_eq!(
        (&listed["sessions"][0]["id"], &listed["sessions"][1]),
        (&json!(chat), &Value::Null)
    );
    // Words of a user's policy hold for the stream, too: whoever may not read may not follow.
    api.home.ok(&["policy", "add", "no-reading", "deny", "ide_chat_history"]);
    api.get(owner, &format!("/api/chats/{chat}/events")).code(403);
}

#[test]
fn a_chat_is_opened_and_a_message_sent_once_with_a_key_of_each_user() {
    let api = chatting(&[]);
    let other = other(&api);
    let keyed = |token: &str, path: &str, key: &str, body: &Value| {
        let auth = bearer(token);
        let headers = [("Authorization", auth.as_str()), ("Idempotency-Key", key)];
        api.raw("POST", path, &headers, Some(&body.to_string()))
    };
    let open = |token: &str| keyed(token, "/api/chats", "one", &json!({ "name": "talk" }));
    let (first, again) = (open(&api.session), open(&api.session));
    assert_eq!(again.headers["idempotency-replayed"], "true");
    let (first, again, theirs) = (first.of(200), again.of(200), open(&other).of(200));
    assert_eq!(first, again);
    assert_ne!(first["session"]["id"], theirs["session"]["id"], "a key is its user's");
    let chat = first["session"]["id"].as_str().expect("an id");
    let path = format!("/api/chats/{chat}/messages");
    let send = || keyed(&api.session, &path, "two", &json!({ "message": "hello" })).of(200);
    assert_eq!(send(), send(), "with the time of the one record");
    said(&api, &api.session, chat, 2);
    say(&api, &api.session, chat, "and on");
    let said = said(&api, &api.session, chat, 4);
    let hello = said.as_array().expect("messages").iter().filter(|it| it["content"] == "hello");
    assert_eq!(hello.count(), 1, "{said}");
    // The same key for the tool itself is another request.
    let input = json!({ "input": { "name": "talk" } });
    keyed(&api.session, "/api/tools/ide_session_create/invoke", "one", &input).of(409);
}

#[test]
fn a_stream_that_is_cut_anywhere_is_resumed_with_each_event_once() {
    let mut api = chatting(&[]);
    let token = api.session.clone();
    let chat = open(&api, &token, "talk");
    let path = format!("/api/chats/{chat}/events");
    // Followed from before there is anything to read.
    let mut live = Stream::at(&api, &token, &path, &[]);
    let mut all = Vec::new();
    for message in ["one", "two"] {
        say(&api, &token, &chat, message);
        all.extend(up_to_an_answer(&mut live));
    }
    drop(live);
    assert_eq!(all, logged(&api, &token, &chat)[..all.len()], "as the log has them");
    for cut in 0..all.len() {
        let (last, from) = (cut.to_string(), format!("{path}?from={}", cut + 1));
        // The header goes before the query.
        let by_id = (format!("{path}?from=1"), vec![("Last-Event-ID", last.as_str())]);
        for (path, headers) in [by_id, (from, Vec::new())] {
            let mut rest = Stream::at(&api, &token, &path, &headers);
            let rest: Vec<_> = all[cut..].iter().map(|_| rest.next().expect("one").2).collect();
            assert_eq!(rest, all[cut..], "behind {cut}");
        }
    }

    // Killed while somebody follows: they go on behind what they have.
    let last = all.len().to_string();
    let behind = [("Last-Event-ID", last.as_str())];
    let cut = Stream::at(&api, &token, &path, &behind);
    let daemon = api.daemon.as_mut().expect("it runs");
    daemon.signal(Signal::KILL);
    daemon.wait();
    drop(cut);
    api.daemon = Some(api.home.daemon());
    api.find();
    let mut resumed = Stream::at(&api, &token, &path, &behind);
    say(&api, &token, &chat, "three");
    all.extend(up_to_an_answer(&mut resumed));

    // A chat that is over has an end.
    let cancel = json!({ "input": { "execution_id": chat } });
    api.invoke(&token, "aegis_task_cancel", &cancel).of(200);
    while let Some((_, _, event)) = resumed.next() {
        all.push(event);
    }
    let sequences = all.iter().map(|event| event["sequence"].as_u64().expect("a number"));
    assert!(sequences.eq(1..=all.len() as u64), "{all:?}");
    assert_eq!(all, logged(&api, &token, &chat));
    for beyond in [all.len(), all.len() + 7] {
        let last = beyond.to_string();
        let headers = [("Last-Event-ID", last.as_str())];
        assert!(Stream::at(&api, &token, &path, &headers).next().is_none(), "behind {beyond}");
    }
    let auth = bearer(&token);
    let late = json!({ "message": "late" }).to_string();
    let to = format!("/api/chats/{chat}/messages");
    let refused = api.raw("POST", &to, &[("Authorization", auth.as_str())], Some(&late));
    assert_eq!(refused.code(409), "tool_conflict");
    let bad = [("Authorization", auth.as_str()), ("Last-Event-ID", "x")];
    assert_eq!(api.raw("GET", &path, &bad, None).code(400), "tool_invalid_input");
}

#[test]
fn a_stream_of_a_chat_takes_a_place_and_ends_with_its_credential() {
    let api = chatting(&[("HIVEKEEP_HTTP__API__MAX_STREAMS", "4")]);
    let chat = open(&api, &api.session, "talk");
    let path = format!("/api/chats/{chat}/events");
    let follow = || Stream::at(&api, &api.session, &path, &[]);
    let (mut stream, other) = (follow(), follow());
    stream.next().expect("its beginning");
    api.get(&api.session, &path).plain(503);
    // None of those of other requests.
    api.get(&api.session, &format!("/api/chats/{chat}/messages")).of(200);
    drop(other);
    wait_until("there is room again", || {
        let auth = bearer(&api.session);
        api.begin("GET", &path, &[("Authorization", &auth)], None).0 == 200
    });
    api.home.ok(&["credential", "revoke", "worker"]);
    while stream.next().is_some() {}
    api.get(&api.session, &path).plain(401);
}
