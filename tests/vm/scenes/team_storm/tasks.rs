//! Tasks of a storm: each appends its name to a file of its guest, and says what became of it.

use std::{collections::HashMap, fmt, sync::atomic::Ordering::Relaxed};

use serde_json::{Value, json};

use super::{MEMBERS, Storm, panics};
use crate::house::House;

/// Where tasks leave their names.
const EFFECTS: &str = "/root/effects";

/// A task that was acknowledged.
#[derive(Debug, Clone)]
pub struct Assigned {
    pub member: usize,
    pub task_id: String,
}

/// A result as it came, without its repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub task_id: String,
    /// `exited` with 0, or the word for how it ended.
    pub how: String,
}

/// Gives tasks to the others, one after the other, over all of the storm. An id is assigned again
/// until it is acknowledged, and now and then once more: however often, it is one task.
pub fn assign(storm: &Storm, sender: usize) -> Vec<Assigned> {
    let mut random = storm.random(200 + sender as u64);
    let others: Vec<_> = (0..MEMBERS.len()).filter(|other| *other != sender).collect();
    let mut all = Vec::new();
    for number in 0..storm.tasks_each {
        // Messages alone get there.
        storm.wait_for(number * storm.messages_each * MEMBERS.len() / storm.tasks_each);
        let member = others[random.usize(..others.len())];
        let task_id = format!("{}{number}", MEMBERS[sender]);
        let (before, after) = (random.u8(..50), random.u8(..50));
        let command = format!(
            "sleep 0.{before:02}; echo {task_id} >> {EFFECTS} && sync {EFFECTS}; sleep 0.{after:02}"
        );
        let content = json!({ "task_id": task_id, "command": command, "timeout_secs": 300 });
        let more = json!({
            "agent": MEMBERS[sender], "to": MEMBERS[member], "content": content.to_string(),
            "message_type": "task_assignment",
        });
        let mut acknowledged = 0;
        let wanted = if random.u8(..8) == 0 { 2 } else { 1 };
        while acknowledged < wanted && !storm.wrecked() {
            let Some(answer) = storm.call("message", &more) else { continue };
            let repeat = &answer["tasks"][0]["repeat"];
            assert!(acknowledged == 0 || *repeat == json!(true), "it is not known: {answer}");
            acknowledged += 1;
        }
        if storm.wrecked() {
            break;
        }
        all.push(Assigned { member, task_id });
        storm.progress.fetch_add(1, Relaxed);
    }
    all
}

/// One of `daemon_results`.
pub fn outcome(result: &Value) -> Outcome {
    let word = |key: &str| result[key].as_str().unwrap_or_else(|| panic!("{key}: {result}"));
    let how = match (word("outcome"), &result["exit_code"]) {
        ("exited", code) if *code == 0 => "exited".to_owned(),
        (outcome, code) => format!("{outcome} {code} {}", result["stderr"]),
    };
    let interrupted = word("outcome") == "interrupted";
    let how = if interrupted { "interrupted".to_owned() } else { how };
    Outcome { task_id: word("task_id").to_owned(), how }
}

/// The names that the tasks of a member left, in their order.
pub fn effects(house: &House, workspace: &str) -> Vec<String> {
    let command = format!("touch {EFFECTS}; cat {EFFECTS}");
    house.exec(workspace, &command).lines().map(str::to_owned).collect()
}

/// In numbers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Told {
    pub exited: usize,
    pub interrupted: usize,
    /// Of the interrupted ones, those that had done it already.
    pub done_after_all: usize,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { exited, interrupted, done_after_all } = self;
        write!(
            f,
            "{exited} tasks exited, {interrupted} interrupted, of those {done_after_all} done"
        )
    }
}

/// Compares, by member: what was assigned to each, what it told, what it did.
pub fn check(assigned: &[Assigned], told: &[Vec<Outcome>], done: &[Vec<String>]) -> Told {
    let mut sum = Told::default();
    let mut wrong = Vec::new();
    for (member, (told, done)) in told.iter().zip(done).enumerate() {
        let mut told: HashMap<&str, Vec<&str>> =
            told.iter().fold(HashMap::new(), |mut all, one| {
                all.entry(one.task_id.as_str()).or_default().push(&one.how);
                all
            });
        let mut done: HashMap<&str, usize> = done.iter().fold(HashMap::new(), |mut all, one| {
            *all.entry(one.as_str()).or_default() += 1;
            all
        });
        for task in assigned.iter().filter(|task| task.member == member) {
            let id = task.task_id.as_str();
            let told = told.remove(id).unwrap_or_default();
            match (told.as_slice(), done.remove(id).unwrap_or(0)) {
                (["exited"], 1) => sum.exited += 1,
                (["interrupted"], times @ 0..=1) => {
                    sum.interrupted += 1;
                    sum.done_after_all += times;
                }
                (told, times) => wrong.push(format!("{id}: done {times} times, told {told:?}")),
            }
        }
        let name = MEMBERS[member];
        wrong.extend(told.keys().map(|id| format!("{name} told of {id}, which it was not given")));
        wrong.extend(done.keys().map(|id| format!("{name} did {id}, which it was not given")));
    }
    let shown = wrong.iter().take(20).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} wrong; {sum}:\n{shown}", wrong.len());
    sum
}

fn compared(told: &[&str], done: &[&str]) -> Told {
    let assigned = ["1", "2"].map(|id| Assigned { member: 0, task_id: id.to_owned() });
    let told = told
        .iter()
        .zip(1..)
        .map(|(how, number)| Outcome { task_id: format!("{number}"), how: (*how).to_owned() });
    check(&assigned, &[told.collect()], &[done.iter().map(|id| (*id).to_owned()).collect()])
}

pub fn what_ran_twice_and_lost_and_strange_results_are_seen() {
    let sum = Told { exited: 1, interrupted: 1, done_after_all: 1 };
    assert_eq!(compared(&["exited", "interrupted"], &["2", "1"]), sum);
    let sum = Told { done_after_all: 0, ..sum };
    assert_eq!(compared(&["exited", "interrupted"], &["1"]), sum);
    for (told, done, words) in [
        (&["exited", "exited"][..], &["1", "1", "2"][..], "1: done 2 times"),
        (&["exited"], &["1", "2"], "2: done 1 times, told []"),
        (&["exited"; 3], &["1", "2"], "a told of 3, which it was not given"),
    ] {
        panics(words, || compared(told, done));
    }
}
