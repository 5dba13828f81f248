//! The daemon killed again and again, at points chosen by a seed, while 50 tasks are put, run,
//! read and acknowledged.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use hivekeep_protocol::*;

use super::{reboot, task};
use crate::client::Host;
use crate::guest::{Guest, Way, ways};

const TASKS: u64 = 50;

/// SplitMix64: the whole schedule follows from the seed.
struct Luck(u64);

impl Luck {
    fn new() -> Self {
        let seed = std::env::var("TEST_HIVEKEEP_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) << 20 | now() & 0xf_ffff);
        eprintln!("TEST_HIVEKEEP_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    since.expect("after 1970").subsec_nanos().into()
}

/// A host that knows only what it was answered.
struct Coordinator {
    guest: Guest,
    host: Host,
    luck: Luck,
    to_put: VecDeque<TaskPut>,
    answered: Vec<TaskPut>,
    results: BTreeMap<String, GuestTaskResult>,
    reboots: u64,
}

impl Coordinator {
    async fn new(way: Way) -> Self {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let file = guest.dir.path().join("effects");
        let to_put = (0..TASKS).map(|number| {
            let line = format!("sleep 0.0{}; echo {number} >> {}", number % 9, file.display());
            task(&number.to_string(), &line)
        });
        let to_put = to_put.collect();
        let (answered, results) = (Vec::new(), BTreeMap::new());
        Self { guest, host, luck: Luck::new(), to_put, answered, results, reboots: 0 }
    }

    /// Asks, and kills the daemon on the way if it is its turn. `None` when no answer came.
    async fn ask<R: GuestRequest>(&mut self, request: R, death: Death) -> Option<R::Reply> {
        if death == Death::None {
            return Some(self.host.ask(request).await.expect("an answer"));
        }
        let _unanswered = self.host.call(request.into_wire()).await;
        tokio::time::sleep(Duration::from_micros(self.luck.below(20_000))).await;
        match death {
            Death::Machine => {
                reboot(&mut self.guest);
                self.reboots += 1;
            }
            _ => self.guest.crash_and_restart(),
        }
        self.host = Host::to(&self.guest).await;
        None
    }

    fn death(&mut self, may_reboot: bool) -> Death {
        match self.luck.below(20) {
            0..4 => Death::Daemon,
            4 if may_reboot => Death::Machine,
            _ => Death::None,
        }
    }

    fn learn(&mut self, result: GuestTaskResult) {
        let known = self.results.entry(result.task_id.clone()).or_insert_with(|| result.clone());
        assert_eq!(*known, result, "a result never changes");
    }

    async fn put_next(&mut self, death: Death) {
        let Some(put) = self.to_put.front().cloned() else { return };
        if self.ask(put.clone(), death).await.is_some() {
            self.to_put.pop_front();
            self.answered.push(put);
        }
    }

    async fn repeat_one(&mut self, death: Death) {
        if self.answered.is_empty() {
            return;
        }
        let which = self.luck.below(self.answered.len() as u64);
        let put = self.answered[usize::try_from(which).expect("few")].clone();
        let Some(taken) = self.ask(put, death).await else { return };
        assert!(taken.repeat && !taken.differs, "an answered put is known");
        if let Some(result) = taken.result {
            self.learn(*result);
        }
    }

    async fn read(&mut self, death: Death) {
        let after = self.luck.below(TASKS);
        let Some(page) = self.ask(TaskResults { after, limit: 20 }, death).await else { return };
        page.results.into_iter().for_each(|result| self.learn(result));
    }

    async fn acknowledge(&mut self, death: Death) {
        let mut ids: Vec<_> = self.results.keys().cloned().collect();
        ids.retain(|_| self.luck.below(2) == 0);
        self.ask(TaskAck { task_ids: ids }, death).await;
    }

    async fn go(&mut self, may_reboot: bool) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(150);
        while self.results.len() < TASKS as usize {
            assert!(tokio::time::Instant::now() < deadline, "{} results", self.results.len());
            let death = self.death(may_reboot);
            match self.luck.below(6) {
                0..3 => self.put_next(death).await,
                3 => self.repeat_one(death).await,
                4 => self.read(death).await,
                _ => self.acknowledge(death).await,
            }
        }
    }

    /// What each task did, compared with what is said of it.
    fn check(&self) {
        let text = std::fs::read_to_string(self.guest.dir.path().join("effects"));
        let mut effects: HashMap<String, u32> = HashMap::new();
        for line in text.expect("some did").lines() {
            *effects.entry(line.to_owned()).or_default() += 1;
        }
        for (id, result) in &self.results {
            let times = effects.get(id).copied().unwrap_or(0);
            match &result.outcome {
                GuestTaskOutcome::Ended(Exit::Code(0)) => assert_eq!(times, 1, "task {id}"),
                GuestTaskOutcome::Interrupted if self.reboots > 0 => {
                    assert!(times <= 1, "task {id}")
                }
                other => panic!("task {id}, run {times} times: {other:?}"),
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Death {
    None,
    Daemon,
    Machine,
}

#[tokio::test]
async fn kills_of_the_daemon_lose_nothing_and_double_nothing() {
    for way in ways() {
        let mut coordinator = Coordinator::new(way).await;
        coordinator.go(false).await;
        coordinator.check();
    }
}

#[tokio::test]
async fn deaths_of_the_machine_interrupt_at_most() {
    let mut coordinator = Coordinator::new(Way::Subreaper).await;
    coordinator.go(true).await;
    coordinator.check();
}
