//! Power loss: a daemon's state lies on a disk that forgets what was not synced. Whenever power
//! goes, the next daemon starts and has everything that a client was answered.

mod acknowledged;
mod load;

use fastrand::Rng;
use hivekeep_power_cut::{Cut, Image, Mount, Order};

use crate::home::Home;
use acknowledged::{Acknowledged, Log};
use load::Gate;

/// How many cuts; 200 in a nightly run.
const CUTS_VARIABLE: &str = "TEST_HIVEKEEP_POWER_CUTS";
const CUTS: usize = 16;
/// Cuts of one load; the next goes on with what is there.
const CUTS_OF_A_LOAD: usize = 8;
/// Changes and syncs from one cut to the next, at most.
const MOST_STEPS: u64 = 800;
/// To see a failure again, as far as processes can be made to do the same.
const SEED_VARIABLE: &str = "TEST_HIVEKEEP_POWER_SEED";

fn given(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// With everything that keeps the journal small, and clients that may do a lot.
fn home() -> Home {
    Home::new()
        .with("HIVEKEEP_STORE__COMPACT_AT_MB", "0")
        .with("HIVEKEEP_STORE__EVENTS_KEPT", "50")
        .with("HIVEKEEP_STORE__RESERVE_MB", "1")
        .with("HIVEKEEP_REGISTRY__RATE__ENABLED", "false")
        .with("HIVEKEEP_REGISTRY__SESSIONS__MAX_SESSIONS", "100000")
}

/// A daemon whose disk can be cut off.
struct House {
    home: Home,
    disk: Mount,
}

impl House {
    fn on(image: &Image) -> Self {
        let disk = Mount::new(image).expect("it was tried");
        let state = disk.path().to_str().expect("UTF-8").to_owned();
        Self { home: home().with("HIVEKEEP_DAEMON__STATE_DIR", &state), disk }
    }
}

/// The cuts, and what came of them.
struct Cuts {
    rng: Rng,
    done: usize,
    lost: usize,
    compactions: u64,
}

impl Cuts {
    /// Cuts the power of a house in use.
    fn cut(&mut self, house: &House, log: &Log) -> (Acknowledged, Image) {
        let order = if self.rng.bool() { Order::Journal } else { Order::Apart };
        let when = Cut { after: self.rng.u64(..MOST_STEPS), order, seed: self.rng.u64(..) };
        let log = log.clone();
        let (found, image) = house.disk.cut(when, move || log.lock().expect("no panic").clone());
        eprintln!(
            "cut {} {when:?}: {} notes, {} sessions",
            self.done,
            found.notes.len(),
            found.sessions.len()
        );
        self.done += 1;
        self.lost += usize::from(image.lost);
        (found, image)
    }

    /// Starts a daemon on what survived, which must have all that was acknowledged.
    fn check(&self, found: &Acknowledged, image: &Image) {
        let home = home();
        let state = home.path("state");
        std::fs::create_dir(&state).expect("a new folder");
        image.write_to(&state).expect("room for it");
        let _daemon = home.daemon();
        found.check(&home);
        home.ok(&["stop"]);
    }

    /// One load: a start, during which power may go too, and clients.
    fn load(&mut self, house: &House, log: &Log) -> (Acknowledged, Image) {
        let gate = Gate::default();
        std::thread::scope(|scope| {
            let _ends = gate.ends();
            let first = scope.spawn(|| {
                let cut = self.cut(house, log);
                (self, cut)
            });
            let daemon = house.home.daemon();
            // The log is not held meanwhile: a cut looks at it while the disk stands still.
            let now = log.lock().expect("no panic").clone();
            now.check(&house.home);
            load::start(scope, &house.home, log, &gate);
            let (cuts, mut last) = first.join().expect("it is cut");
            for _ in 1..CUTS_OF_A_LOAD {
                {
                    let _held = gate.hold();
                    cuts.check(&last.0, &last.1);
                }
                last = cuts.cut(house, log);
            }
            let _held = gate.hold();
            cuts.check(&last.0, &last.1);
            let status = house.home.json(&["status", "--json"]);
            cuts.compactions += status["journal"]["compactions"].as_u64().expect("a number");
            // Not in order: what it has not synced is lost, or found by the next one.
            drop(daemon);
            last
        })
    }
}

#[test]
fn whatever_was_acknowledged_survives_power_cuts() {
    if let Some(refused) = Mount::refused() {
        return hivekeep_skip::skip(refused);
    }
    let cuts = given(CUTS_VARIABLE).map_or(CUTS, |cuts| cuts as usize);
    let seed = given(SEED_VARIABLE).unwrap_or_else(|| fastrand::u64(..));
    println!("{SEED_VARIABLE}={seed}");
    let mut cutting = Cuts { rng: Rng::with_seed(seed), done: 0, lost: 0, compactions: 0 };
    let mut house = House::on(&Image::default());
    let mut log = Log::default();
    while cutting.done < cuts {
        let (found, image) = cutting.load(&house, &log);
        if cutting.rng.bool() {
            // The power went; otherwise the daemon was killed, and the system was not.
            house = House::on(&image);
            log = Log::new(found.into());
        }
    }
    let Cuts { lost, done, compactions, .. } = cutting;
    println!("{lost} of {done} cuts lost something, {compactions} compactions");
    assert!(lost > done / 2, "most cuts lost nothing and prove nothing");
    assert!(compactions > 0, "nothing was compacted meanwhile");
}
