//! Scenes on one machine, one after the other, where each would take a machine of its own.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Instant,
};

use super::{crash::settled, rows};
use crate::{
    house::House,
    table::{LIFE_AND_CRASH, ON_W, ON_W_AT_LAST, OnW},
};

/// Scenes that need no more than a running `w`.
pub fn one_workspace(mut house: House) {
    house.create("w");
    together(&mut house, ON_W.iter().chain(&ON_W_AT_LAST));
}

/// The life of `w`, from its creation, and what kills it and its daemons, to its end.
pub fn life_and_crash(mut house: House) {
    let begin: [(&str, OnW); 1] = rows!(life: create_run_stop_start);
    let end: [(&str, OnW); 1] = rows!(life: destroy);
    together(&mut house, begin.iter().chain(&LIFE_AND_CRASH).chain(&end));
}

/// Plays all scenes, whatever becomes of those before, and names each that failed.
fn together<'s>(house: &mut House, scenes: impl Iterator<Item = &'s (&'static str, OnW)>) {
    let mut failed = Vec::new();
    let mut is_usable = true;
    for (number, (name, scene)) in scenes.enumerate() {
        let begun = Instant::now();
        is_usable = is_usable && (number == 0 || succeeds(|| tidy(house)));
        let passed = is_usable && succeeds(|| scene(house));
        let outcome = match (passed, is_usable) {
            (true, _) => "passed",
            (false, true) => "FAILED",
            (false, false) => "FAILED: there is no usable `w`",
        };
        eprintln!("{name}: {outcome} after {:.1?}", begun.elapsed());
        if !passed {
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "{} of the bundle failed: {}", failed.len(), failed.join(", "));
}

fn succeeds(what: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(what)).is_ok()
}

/// Whatever a scene left: a daemon that serves, `w` that runs, nothing in its working directory.
fn tidy(house: &mut House) {
    if !house.door().serves() {
        house.restart();
    }
    match settled(house, "w").as_deref() {
        Some("running") => {}
        Some(_) => drop(house.call("workspace_start", serde_json::json!({ "workspace_id": "w" }))),
        None => drop(house.create("w")),
    }
    house.exec("w", "rm -rf /workspace/* /workspace/.[!.]*");
}
