//! What is killed, and when. The same for the same seed.

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The daemon, by SIGKILL.
    Daemon,
    /// The daemon in the guest of this member.
    Guest(usize),
    /// The connection into its guest.
    Link(usize),
    /// Its machine.
    Machine(usize),
    /// Its machine, while there is no daemon to see it.
    DaemonAndMachine(usize),
}

/// How often.
pub struct Kills {
    pub daemon: usize,
    pub guest: usize,
    pub link: usize,
    pub machine: usize,
    pub daemon_and_machine: usize,
}

impl Kills {
    pub fn deaths_of_the_daemon(&self) -> usize {
        self.daemon + self.daemon_and_machine
    }
}

/// One kill.
#[derive(Debug)]
pub struct Strike {
    /// As soon as this many calls have ended.
    pub at: usize,
    pub fault: Fault,
}

/// All kills, in the order of their time, before the last of `all` calls.
pub fn schedule(
    random: &mut fastrand::Rng,
    kills: &Kills,
    members: usize,
    all: usize,
) -> Vec<Strike> {
    let mut faults = Vec::new();
    let mut add = |count: usize, fault: &mut dyn FnMut() -> Fault| {
        faults.extend(std::iter::repeat_with(fault).take(count));
    };
    add(kills.daemon, &mut || Fault::Daemon);
    add(kills.guest, &mut || Fault::Guest(random.usize(..members)));
    add(kills.link, &mut || Fault::Link(random.usize(..members)));
    add(kills.machine, &mut || Fault::Machine(random.usize(..members)));
    add(kills.daemon_and_machine, &mut || Fault::DaemonAndMachine(random.usize(..members)));
    random.shuffle(&mut faults);
    let mut times: Vec<_> = faults.iter().map(|_| random.usize(..all)).collect();
    times.sort_unstable();
    times.into_iter().zip(faults).map(|(at, fault)| Strike { at, fault }).collect()
}

pub fn a_seed_says_all_of_it() {
    let kills = Kills { daemon: 5, guest: 4, link: 3, machine: 2, daemon_and_machine: 1 };
    let of = |seed| {
        let strikes = schedule(&mut fastrand::Rng::with_seed(seed), &kills, 3, 1_000);
        strikes.iter().map(|strike| (strike.at, strike.fault)).collect::<Vec<_>>()
    };
    let one = of(1);
    assert_eq!((one.len(), &one), (15, &of(1)));
    assert_ne!(one, of(2));
    assert!(one.is_sorted_by_key(|(at, _)| *at) && one.iter().all(|(at, _)| *at < 1_000));
}
