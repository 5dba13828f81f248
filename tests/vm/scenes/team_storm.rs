//! A storm over a team: its members talk and give each other tasks while the daemon, guests'
//! daemons, links and machines are killed at points that a seed chooses.
//!
//! A message whose sending was answered reaches its member once, after all that the sender had sent
//! there before. One whose answer died with the daemon is there once or not at all. The receivers
//! confirm by id: what was confirmed, and answered so, never comes again; what was not comes again
//! and is marked.
//!
//! A task is assigned until that is answered. Its line is in its guest's file once and its result
//! says so, or it is told as interrupted and the line is there at most once.

mod faults;
mod ledger;
mod schedule;
mod talk;
mod tasks;

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{
        AtomicBool, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
    thread::{Scope, ScopedJoinHandle, scope},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    door::{Door, Miss, Refusal},
    house::{House, Kind},
    leaks,
};
use ledger::Sent;
pub use ledger::losses_doubles_and_disorder_are_seen;
pub use schedule::a_seed_says_all_of_it;
use schedule::{Kills, Strike, schedule};
use talk::Inbox;
use tasks::Assigned;
pub use tasks::what_ran_twice_and_lost_and_strange_results_are_seen;

const TEAM: &str = "crew";
const MEMBERS: [&str; 3] = ["a", "b", "c"];
/// Names the seed of another run.
const SEED: &str = "TEST_HIVEKEEP_SEED";
/// Makes a storm on sandboxes a whole one, for a night.
const STORM: &str = "TEST_HIVEKEEP_STORM";

/// A call that took longer is shown when the storm fails.
const SLOW: Duration = Duration::from_secs(4);

/// How much of a storm.
pub struct Size {
    /// Sent by all members together.
    messages: usize,
    tasks: usize,
    kills: Kills,
}

const FULL: Size = Size {
    messages: 2_000,
    tasks: 300,
    kills: Kills { daemon: 8, guest: 4, link: 4, machine: 3, daemon_and_machine: 2 },
};

/// For each run.
const MIDDLE: Size = Size {
    messages: 500,
    tasks: 75,
    kills: Kills { daemon: 2, guest: 1, link: 1, machine: 1, daemon_and_machine: 1 },
};

/// For machines that take their time to boot.
const SMALL: Size = Size {
    messages: 100,
    tasks: 20,
    kills: Kills { daemon: 2, guest: 1, link: 2, machine: 2, daemon_and_machine: 1 },
};

/// What all hands know.
struct Storm {
    door: Door,
    seed: u64,
    /// That each member sends.
    messages_each: usize,
    tasks_each: usize,
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
            messages_each: size.messages.div_ceil(MEMBERS.len()),
            tasks_each: size.tasks.div_ceil(MEMBERS.len()),
            progress: AtomicUsize::new(0),
            calm: AtomicBool::new(false),
            wrecked: AtomicBool::new(false),
        }
    }

    fn all(&self) -> usize {
        (self.messages_each + self.tasks_each) * MEMBERS.len()
    }

    fn wrecked(&self) -> bool {
        self.wrecked.load(SeqCst)
    }

    /// Waits until so many calls have ended, or somebody has panicked.
    fn wait_for(&self, progress: usize) {
        while self.progress.load(Relaxed) < progress && !self.wrecked() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// A call of `team`, made again as long as it is known that nothing was done. `None` when its
    /// answer was lost.
    fn call(&self, action: &str, more: &Value) -> Option<Value> {
        let mut args = json!({ "action": action, "name": TEAM });
        args.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
        let begun = Instant::now();
        loop {
            let asked = Instant::now();
            let answer = self.door.call("team", args.clone());
            if asked.elapsed() > SLOW {
                let why = answer.as_ref().err();
                println!("{:?} for {action} of {}: {why:?}", asked.elapsed(), args["agent"]);
            }
            match answer {
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

/// What all hands have done and seen, by member.
struct Aftermath {
    sent: Vec<Vec<Sent>>,
    assigned: Vec<Assigned>,
    inboxes: Vec<Inbox>,
}

/// Three hands for each member, and the kills.
fn blow(house: &mut House, storm: &Storm, workspaces: &[String], strikes: &[Strike]) -> Aftermath {
    let begun = Instant::now();
    scope(|scope| {
        let _alarm = Alarm(storm);
        let senders = hands(scope, storm, talk::send);
        let assigners = hands(scope, storm, tasks::assign);
        let receivers = hands(scope, storm, talk::receive);
        for strike in strikes {
            storm.wait_for(strike.at);
            if storm.wrecked() {
                break;
            }
            faults::strike(house, workspaces, strike.fault);
            println!("{:6.1?} s: {strike:?}", begun.elapsed().as_secs_f32());
        }
        let (sent, assigned) = (joined(senders), joined(assigners).concat());
        println!("{:6.1?} s: all is said", begun.elapsed().as_secs_f32());
        storm.calm.store(true, SeqCst);
        let inboxes = joined(receivers);
        println!("{:6.1?} s: all is received", begun.elapsed().as_secs_f32());
        Aftermath { sent, assigned, inboxes }
    })
}

fn hands<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    storm: &'scope Storm,
    work: fn(&Storm, usize) -> T,
) -> Vec<ScopedJoinHandle<'scope, T>> {
    let hand = |member| {
        scope.spawn(move || {
            let _alarm = Alarm(storm);
            work(storm, member)
        })
    };
    (0..MEMBERS.len()).map(hand).collect()
}

fn joined<T>(hands: Vec<ScopedJoinHandle<'_, T>>) -> Vec<T> {
    hands.into_iter().map(|hand| hand.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
}

pub fn nothing_is_lost_or_doubled(mut house: House) {
    let size = match house.kind {
        Kind::Vm => SMALL,
        Kind::Sandbox if std::env::var_os(STORM).is_some() => FULL,
        Kind::Sandbox => MIDDLE,
    };
    let seed = seed();
    println!("the seed of this storm: {SEED}={seed}");
    let roles: Vec<_> = MEMBERS.iter().map(|one| json!({ "name": one, "role": "hand" })).collect();
    let made = house.call("team", json!({ "action": "create", "name": TEAM, "roles": roles }));
    let rows = made["members"].as_array().expect("members").iter();
    let workspaces: Vec<_> =
        rows.map(|row| row["workspace_name"].as_str().expect("a name").to_owned()).collect();

    let storm = Storm::new(&house, &size, seed);
    let strikes = schedule(&mut storm.random(0), &size.kills, MEMBERS.len(), storm.all());
    let Aftermath { sent, assigned, inboxes } = blow(&mut house, &storm, &workspaces, &strikes);

    let (messages, results): (Vec<_>, Vec<_>) =
        inboxes.into_iter().map(|inbox| (inbox.messages, inbox.results)).unzip();
    let told = ledger::check(&sent, &messages);
    println!("{told}");
    let lost_answers = size.kills.deaths_of_the_daemon() * MEMBERS.len();
    assert!(told.unknown <= lost_answers * (MEMBERS.len() - 1), "no death explains {told}");
    let done: Vec<_> = workspaces.iter().map(|one| tasks::effects(&house, one)).collect();
    let told = tasks::check(&assigned, &results, &done);
    println!("{told}");
    // At most four run at a time, and only what kills the machine interrupts them.
    let machines = size.kills.machine + size.kills.daemon_and_machine;
    assert!(told.interrupted <= 4 * machines, "no death explains {told}");

    let status = house.call("team", json!({ "action": "status", "name": TEAM }));
    assert_eq!(status["state"], "ready", "{status}");
    leaks::check(&house);
    let gone = house.call("team", json!({ "action": "destroy", "name": TEAM }));
    assert_eq!(gone["success"], true, "{gone}");
    assert_eq!(house.list().len(), 0);
    leaks::check(&house);
}

/// Runs what must panic, and with these words.
fn panics<T: std::fmt::Debug>(words: &str, what: impl FnOnce() -> T) {
    let panic = catch_unwind(AssertUnwindSafe(what)).expect_err(words);
    let said = panic.downcast_ref::<String>().expect("a panic with words");
    assert!(said.contains(words), "{said}");
}
