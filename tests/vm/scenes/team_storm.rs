//! A storm over a team: its members talk while the daemon, guests' daemons, links and machines are
//! killed at points that a seed chooses.
//!
//! A message whose sending was answered reaches its member once, after all that the sender had sent
//! there before. One whose answer died with the daemon is there once or not at all. The receivers
//! confirm by id: what was confirmed, and answered so, never comes again; what was not comes again
//! and is marked.

mod faults;
mod ledger;
mod schedule;
mod talk;

use std::{
    panic::resume_unwind,
    sync::atomic::{
        AtomicBool, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
    thread::{ScopedJoinHandle, scope},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    door::{Door, Miss, Refusal},
    house::House,
    leaks,
};
use schedule::{Kills, schedule};

const TEAM: &str = "crew";
const MEMBERS: [&str; 3] = ["a", "b", "c"];
/// Names the seed of another run.
const SEED: &str = "TEST_HIVEKEEP_SEED";

/// How much of a storm.
pub struct Size {
    /// Sent by all members together.
    messages: usize,
    kills: Kills,
}

pub const FULL: Size = Size {
    messages: 2_000,
    kills: Kills { daemon: 8, guest: 4, link: 4, machine: 3, daemon_and_machine: 2 },
};

/// For machines that take their time to boot.
pub const SMALL: Size = Size {
    messages: 100,
    kills: Kills { daemon: 1, guest: 0, link: 2, machine: 1, daemon_and_machine: 0 },
};

/// What all hands know.
struct Storm {
    door: Door,
    seed: u64,
    /// Messages that each member sends.
    each: usize,
    /// Calls that have come to their end, one way or the other: the clock of the schedule.
    progress: AtomicUsize,
    /// Nobody sends, nothing is killed any more: what is not there now is lost.
    calm: AtomicBool,
    /// Somebody has panicked.
    wrecked: AtomicBool,
}

/// Lets the others end when one has panicked.
struct Alarm<'a>(&'a Storm);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.wrecked.store(true, SeqCst);
        }
    }
}

impl Storm {
    fn new(house: &House, size: &Size, seed: u64) -> Self {
        Self {
            door: house.door(),
            seed,
            each: size.messages / MEMBERS.len(),
            progress: AtomicUsize::new(0),
            calm: AtomicBool::new(false),
            wrecked: AtomicBool::new(false),
        }
    }

    fn all(&self) -> usize {
        self.each * MEMBERS.len()
    }

    fn wrecked(&self) -> bool {
        self.wrecked.load(SeqCst)
    }

    /// A call of `team`, made again as long as it is known that nothing was done. `None` when its
    /// answer was lost.
    fn call(&self, action: &str, more: &Value) -> Option<Value> {
        let mut args = json!({ "action": action, "name": TEAM });
        args.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
        let begun = Instant::now();
        loop {
            match self.door.call("team", args.clone()) {
                Ok(answer) => return Some(answer),
                Err(Miss::Unanswered) => return None,
                Err(Miss::Refused(refusal)) if !passing(&refusal) => panic!("{}", refusal.text),
                Err(miss) if begun.elapsed() > Duration::from_secs(90) => {
                    panic!("{args} gets nowhere: {miss:?}")
                }
                Err(Miss::Refused(_) | Miss::Unreached) if self.wrecked() => return None,
                Err(Miss::Refused(_) | Miss::Unreached) => {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
    }

    fn random(&self, stream: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed ^ stream.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }
}

/// Another attempt may be taken, and this one did nothing.
fn passing(refusal: &Refusal) -> bool {
    let undone = refusal.details.get("outcome").is_none_or(|it| it == "nothing_done");
    undone && ["busy", "actor_unavailable", "inbox_full"].contains(&refusal.code.as_str())
}

fn seed() -> u64 {
    match std::env::var(SEED) {
        Ok(seed) => seed.parse().unwrap_or_else(|_| panic!("{SEED} is not a number: {seed}")),
        Err(_) => fastrand::u64(..),
    }
}

fn joined<T>(hands: Vec<ScopedJoinHandle<'_, T>>) -> Vec<T> {
    hands.into_iter().map(|hand| hand.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
}

pub fn nothing_is_lost_or_doubled(mut house: House, size: &Size) {
    let seed = seed();
    println!("the seed of this storm: {SEED}={seed}");
    let roles: Vec<_> = MEMBERS.iter().map(|one| json!({ "name": one, "role": "hand" })).collect();
    let made = house.call("team", json!({ "action": "create", "name": TEAM, "roles": roles }));
    let rows = made["members"].as_array().expect("members").iter();
    let workspaces: Vec<_> =
        rows.map(|row| row["workspace_name"].as_str().expect("a name").to_owned()).collect();

    let storm = Storm::new(&house, size, seed);
    let strikes = schedule(&mut storm.random(0), &size.kills, MEMBERS.len(), storm.all());
    let begun = Instant::now();
    let (sent, received) = scope(|scope| {
        let _alarm = Alarm(&storm);
        let storm = &storm;
        let members = 0..MEMBERS.len();
        let send = |member| {
            scope.spawn(move || {
                let _alarm = Alarm(storm);
                talk::send(storm, member)
            })
        };
        let receive = |member| {
            scope.spawn(move || {
                let _alarm = Alarm(storm);
                talk::receive(storm, member)
            })
        };
        let senders: Vec<_> = members.clone().map(send).collect();
        let receivers: Vec<_> = members.map(receive).collect();
        for strike in &strikes {
            while storm.progress.load(Relaxed) < strike.at && !storm.wrecked() {
                std::thread::sleep(Duration::from_millis(2));
            }
            if storm.wrecked() {
                break;
            }
            faults::strike(&mut house, &workspaces, strike.fault);
            println!("{:6.1?} s: {strike:?}", begun.elapsed().as_secs_f32());
        }
        let sent = joined(senders);
        storm.calm.store(true, SeqCst);
        (sent, joined(receivers))
    });
    println!("{:6.1?} s: all is calm", begun.elapsed().as_secs_f32());

    let told = ledger::check(&sent, &received);
    println!("{told}");
    let lost_answers = size.kills.deaths_of_the_daemon() * MEMBERS.len();
    assert!(told.unknown <= lost_answers, "answers were lost without a death: {told}");
    let status = house.call("team", json!({ "action": "status", "name": TEAM }));
    assert_eq!(status["state"], "ready", "{status}");
    leaks::check(&house);
    let gone = house.call("team", json!({ "action": "destroy", "name": TEAM }));
    assert_eq!(gone["success"], true, "{gone}");
    assert_eq!(house.list().len(), 0);
    leaks::check(&house);
}
