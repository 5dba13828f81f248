//! What was sent beside what was received. Pure.

use std::{collections::HashMap, fmt};

use super::{MEMBERS, panics};

/// What a sender knows of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It was answered, with this id.
    Acknowledged(String),
    /// The answer was lost.
    Unknown,
}

/// A message as it was sent.
#[derive(Debug, Clone)]
pub struct Sent {
    pub to: Vec<usize>,
    /// No other message is the same.
    pub content: String,
    pub fate: Fate,
}

/// A message as it came, without its repeats.
#[derive(Debug, Clone)]
pub struct Received {
    pub from: String,
    pub id: String,
    pub content: String,
}

/// In numbers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// To each member that it is for.
    pub acknowledged: usize,
    pub unknown: usize,
    /// Of those that are unknown.
    pub there_after_all: usize,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acknowledged, unknown, there_after_all } = self;
        write!(
            f,
            "{acknowledged} acknowledged, {unknown} unknown, of those {there_after_all} there"
        )
    }
}

/// Compares, by member: what each has sent, what each has received.
pub fn check(sent: &[Vec<Sent>], received: &[Vec<Received>]) -> Told {
    let mut told = Told::default();
    let mut wrong = Vec::new();
    for (receiver, all) in received.iter().enumerate() {
        for (sender, sent) in sent.iter().enumerate() {
            let got: Vec<_> = all.iter().filter(|one| one.from == MEMBERS[sender]).collect();
            let sent: Vec<_> = sent.iter().filter(|one| one.to.contains(&receiver)).collect();
            let way = format!("{} to {}", MEMBERS[sender], MEMBERS[receiver]);
            compare(&sent, &got, &mut told, &mut |what| wrong.push(format!("{way}: {what}")));
        }
    }
    let shown = wrong.iter().take(20).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} wrong, {told}:\n{shown}", wrong.len());
    told
}

/// One sender's messages to one receiver.
fn compare(sent: &[&Sent], got: &[&Received], told: &mut Told, wrong: &mut dyn FnMut(String)) {
    let places: HashMap<_, _> =
        sent.iter().enumerate().map(|(place, sent)| (sent.content.as_str(), place)).collect();
    let mut came = vec![0; sent.len()];
    let mut last = None;
    for one in got {
        let head: String = one.content.chars().take(24).collect();
        let Some(&place) = places.get(one.content.as_str()) else {
            wrong(format!("`{head}` was not sent there"));
            continue;
        };
        came[place] += 1;
        if last.is_some_and(|last| last > place) {
            wrong(format!("`{head}` came after a later one"));
        }
        last = last.max(Some(place));
        if let Fate::Acknowledged(id) = &sent[place].fate
            && *id != one.id
        {
            wrong(format!("`{head}` came as {}, and was answered as {id}", one.id));
        }
    }
    for (sent, times) in sent.iter().zip(came) {
        let head: String = sent.content.chars().take(24).collect();
        match (&sent.fate, times) {
            (Fate::Acknowledged(_), 1) => told.acknowledged += 1,
            (Fate::Unknown, 0) => told.unknown += 1,
            (Fate::Unknown, 1) => {
                told.unknown += 1;
                told.there_after_all += 1;
            }
            (fate, times) => wrong(format!("`{head}` came {times} times: {fate:?}")),
        }
    }
}

fn sent(number: usize, fate: Fate) -> Sent {
    Sent { to: vec![1], content: number.to_string(), fate }
}

fn known(number: usize) -> Sent {
    sent(number, Fate::Acknowledged(format!("id{number}")))
}

fn came(numbers: &[usize]) -> Vec<Vec<Received>> {
    let one = |number: &usize| Received {
        from: "a".to_owned(),
        id: format!("id{number}"),
        content: number.to_string(),
    };
    vec![Vec::new(), numbers.iter().map(one).collect(), Vec::new()]
}

pub fn losses_doubles_and_disorder_are_seen() {
    let all = [vec![known(0), sent(1, Fate::Unknown), sent(2, Fate::Unknown), known(3)]];
    let told = check(&all, &came(&[0, 2, 3]));
    assert_eq!(told, Told { acknowledged: 2, unknown: 2, there_after_all: 1 });
    for (first, numbers, words) in [
        (known(0), &[0][..], "`1` came 0 times"),
        (sent(0, Fate::Unknown), &[0, 0, 1], "`0` came 2 times"),
        (known(0), &[1, 0], "`0` came after a later one"),
    ] {
        panics(words, || check(&[vec![first, known(1)]], &came(numbers)));
    }
}
