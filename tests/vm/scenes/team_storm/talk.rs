//! The two hands of a member: one sends, one receives.

use std::{
    collections::{BTreeSet, HashSet},
    sync::atomic::Ordering::{Relaxed, SeqCst},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    MEMBERS, Storm,
    ledger::{Fate, Received, Sent},
    tasks::{Outcome, outcome},
};

/// Of a content beside its number.
const FILLER_BYTES: usize = 2_000;

/// Sends one after the other; each is answered or lost before the next.
pub fn send(storm: &Storm, member: usize) -> Vec<Sent> {
    let mut random = storm.random(1 + member as u64);
    let others: Vec<_> = (0..MEMBERS.len()).filter(|other| *other != member).collect();
    let mut all = Vec::new();
    for number in 0..storm.messages_each {
        let to = match random.u8(..10) {
            0 => others.clone(),
            _ => vec![others[random.usize(..others.len())]],
        };
        let word = if to.len() > 1 { "*" } else { MEMBERS[to[0]] };
        let filler: String =
            (0..random.usize(..FILLER_BYTES)).map(|_| random.lowercase()).collect();
        let content = format!("{}{number} {filler}", MEMBERS[member]);
        let more = json!({ "agent": MEMBERS[member], "to": word, "content": content });
        let answer = storm.call("message", &more);
        if storm.wrecked() {
            break;
        }
        let fate = answer.map_or(Fate::Unknown, |answer| {
            let there = answer["delivered_to"].as_array().map(Vec::len);
            assert_eq!(there, Some(to.len()), "it is not everywhere: {answer}");
            Fate::Acknowledged(text(&answer["message_id"]))
        });
        all.push(Sent { to, content, fate });
        storm.progress.fetch_add(1, Relaxed);
    }
    all
}

/// What came to a member, each once.
#[derive(Default)]
pub struct Inbox {
    pub messages: Vec<Received>,
    pub results: Vec<Outcome>,
}

/// Receives until nothing is left after the storm. What comes again is told apart by its id; a
/// result's is that of the message that assigned its task.
pub fn receive(storm: &Storm, member: usize) -> Inbox {
    let mut random = storm.random(100 + member as u64);
    let (mut inbox, mut seen) = (Inbox::default(), HashSet::new());
    // Came, and the daemon was not told, or its answer to that was lost.
    let mut unconfirmed = BTreeSet::new();
    let mut confirmed = HashSet::new();
    let mut fresh = |id: &str, confirmed: &HashSet<String>, row: &Value| {
        assert!(!confirmed.contains(id), "{id} was confirmed and came again: {row}");
        let fresh = seen.insert(id.to_owned());
        assert!(fresh || row["redelivered"] == true, "{id} came again, unmarked: {row}");
        fresh
    };
    let mut late = None;
    while !storm.wrecked() {
        let calm = storm.calm.load(SeqCst);
        let more = json!({
            "agent": MEMBERS[member], "limit": random.usize(1..=100), "wait_secs": 1,
            "confirm": "explicit", "confirmed": unconfirmed,
        });
        let Some(answer) = storm.call("receive", &more) else { continue };
        confirmed.extend(std::mem::take(&mut unconfirmed));
        for message in answer["messages"].as_array().expect("messages") {
            let id = text(&message["message_id"]);
            if fresh(&id, &confirmed, message) {
                let (from, content) = (text(&message["from"]), text(&message["content"]));
                inbox.messages.push(Received { from, id: id.clone(), content });
            }
            unconfirmed.insert(id);
        }
        for result in answer["daemon_results"].as_array().expect("results") {
            let id = text(&result["source_message_id"]);
            if fresh(&id, &confirmed, result) {
                inbox.results.push(outcome(result));
            }
            unconfirmed.insert(id);
        }
        if calm && unconfirmed.is_empty() {
            if answer["daemon_pending_tasks"] == 0 {
                break;
            }
            let since = *late.get_or_insert_with(Instant::now);
            assert!(since.elapsed() < Duration::from_secs(90), "tasks do not end: {answer}");
        }
    }
    inbox
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}
