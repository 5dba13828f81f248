//! Power cuts of the journal: everything that was acknowledged is there, and it opens.

use std::sync::{Arc, Mutex};

use fastrand::Rng;
use hivekeep_power_cut::{Cut, Image, Mount, Order};

use crate::acknowledged::Acknowledged;
use crate::load::{Load, Log};
use crate::mount;

/// How many cuts; 200 in a nightly run.
const CUTS_VARIABLE: &str = "TEST_HIVEKEEP_POWER_CUTS";
const CUTS: u64 = 60;
/// Cuts of one load; the next goes on with what the last of them left.
const CUTS_OF_A_LOAD: u64 = 20;
/// Changes and syncs from one cut to the next, at most.
const MOST_STEPS: u64 = 150;
/// To see a failure again: as far as threads can be made to do the same.
const SEED_VARIABLE: &str = "TEST_HIVEKEEP_POWER_SEED";

#[test]
fn what_was_acknowledged_survives_power_cuts() {
    if mount::empty().is_none() {
        return;
    }
    let given = |variable| std::env::var(variable).ok().and_then(|it| it.parse::<u64>().ok());
    let cuts = given(CUTS_VARIABLE).unwrap_or(CUTS);
    let seed = given(SEED_VARIABLE).unwrap_or_else(|| fastrand::u64(..));
    println!("{SEED_VARIABLE}={seed}");
    let mut rng = Rng::with_seed(seed);
    let (mut image, mut found) = (Image::default(), Acknowledged::default());
    let (mut lost, mut compactions) = (0, 0);
    for load in 0..cuts.div_ceil(CUTS_OF_A_LOAD) {
        let disk = Mount::new(&image).unwrap();
        let log = Arc::new(Mutex::new(found.clone()));
        let running = Load::start(disk.path(), log.clone());
        for cut in 0..CUTS_OF_A_LOAD {
            let order = if rng.bool() { Order::Journal } else { Order::Apart };
            let when = Cut { after: rng.u64(..MOST_STEPS), order, seed: rng.u64(..) };
            (found, image) = cut_now(&disk, when, &log);
            let _held = running.hold();
            lost += u64::from(image.lost);
            check(&image, &found, &format!("load {load}, cut {cut}, {when:?}"));
        }
        compactions += running.stop();
    }
    println!("{lost} of {cuts} cuts lost something, {compactions} compactions");
    assert!(lost > cuts / 2, "{lost} of {cuts} cuts lost something: the others prove nothing");
    assert!(compactions > 0, "nothing was compacted meanwhile");
}

/// The test itself can fail.
#[test]
fn a_disk_that_only_says_it_syncs_is_found_out() {
    let Some(disk) = mount::empty() else { return };
    disk.lie();
    let log = Log::default();
    let running = Load::start(disk.path(), log.clone());
    let lost = (0..100).find_map(|seed| {
        let (found, image) = cut_now(&disk, Cut { after: 50, order: Order::Journal, seed }, &log);
        let _held = running.hold();
        let folder = tempfile::tempdir().unwrap();
        image.write_to(folder.path()).unwrap();
        found.check(folder.path()).err()
    });
    println!("{}", lost.expect("something that was acknowledged is lost"));
}

fn cut_now(disk: &Mount, when: Cut, log: &Log) -> (Acknowledged, Image) {
    let log = log.clone();
    disk.cut(when, move || log.lock().unwrap().clone())
}

fn check(image: &Image, acknowledged: &Acknowledged, when: &str) {
    let disk = tempfile::tempdir().unwrap();
    image.write_to(disk.path()).unwrap();
    // As it was found: opening it changes it.
    let Err(lost) = acknowledged.check(disk.path()) else { return };
    let kept = tempfile::tempdir().unwrap().keep();
    image.write_to(&kept).unwrap();
    panic!("{when}: {lost}: what survived is in {}", kept.display());
}
