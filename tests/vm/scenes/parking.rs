//! Machines that sleep: what was in their memory, what ran in them, and daemons that die over it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::crash::settled;
use super::jobs::wait_ended;
use crate::{house::House, leaks};

const KILL: &str = "=return(kill)";

fn park(house: &House, workspace: &str) -> Value {
    house.call("workspace_park", json!({ "workspace_id": workspace }))
}

fn memories(house: &House) -> usize {
    std::fs::read_dir(house.path().join("state/memories")).expect("memories").count()
}

/// A secret that only a running program of `w` has, and a job that is done when it is told so.
pub fn begin(house: &House) -> Value {
    house.exec("w", "echo volatile > /dev/shm/x");
    let started = super::jobs::job(
        house,
        "start",
        json!({ "command": "n=0; while [ ! -e /dev/shm/end ]; do n=$((n+1)); echo $n > /dev/shm/n; sleep 0.2; done; cat /dev/shm/x; exit 6" }),
    );
    house.exec("w", "until [ -s /dev/shm/n ]; do sleep 0.05; done");
    started["job_id"].clone()
}

fn goes_on(house: &House, point: &str) {
    let now = |house: &House| {
        let read = "until n=$(cat /dev/shm/n); [ -n \"$n\" ]; do :; done; echo $n";
        house.exec("w", read).trim().parse::<u64>().expect("a number")
    };
    let before = now(house);
    let begun = Instant::now();
    while now(house) == before {
        assert!(begun.elapsed() < Duration::from_secs(60), "{point}: its job stands still");
    }
    assert_eq!(house.exec("w", "cat /dev/shm/x").trim(), "volatile", "{point}: it was rebooted");
}

pub fn a_machine_sleeps_and_wakes_at_every_point(mut house: House) {
    house.create("w");
    let job = begin(&house);
    // Twice: from memory that it booted with, and from memory that it woke with.
    for round in 0..2 {
        let parked = park(&house, "w");
        assert_eq!(parked["state"], "parked", "{parked}");
        let info = house.call("workspace_info", json!({ "workspace_id": "w" }));
        assert_eq!((&info["process"], &info["machine"]), (&json!("none"), &Value::Null), "{info}");
        assert_eq!(info["running_jobs"].as_array().map(Vec::len), Some(1), "{info}");
        leaks::check(&house);
        goes_on(&house, &format!("round {round}"));
        house.check_clock("w");
    }
    for point in ["park.before_save", "park.after_save", "park.after_parked", "park.after_kill"] {
        parks_or_runs(&mut house, point);
    }
    for point in
        ["start.after_intent", "start.after_launch", "start.after_launched", "wake.after_woken"]
    {
        park(&house, "w");
        house.kill();
        house.start_armed(&format!("{point}{KILL}"));
        let answer = house.try_call("exec", json!({ "workspace_id": "w", "command": "true" }));
        assert!(matches!(answer, Err(None)), "{point}: {answer:?}");
        house.wait_for_death();
        house.start();
        let expected = if point == "wake.after_woken" { "running" } else { "parked" };
        assert_eq!(settled(&house, "w").as_deref(), Some(expected), "{point}");
        goes_on(&house, point);
        leaks::check(&house);
    }
    assert_eq!(memories(&house), 0, "memory that nobody needs is left");
    end(&house, &job);
    house.call("workspace_destroy", json!({ "workspace_id": "w" }));
    leaks::check(&house);
}

/// The daemon dies over the parking of `w`, which goes on, whether from its memory or its process.
pub fn parks_or_runs(house: &mut House, point: &str) {
    house.kill();
    house.start_armed(&format!("{point}{KILL}"));
    house.wait_state("w", "running");
    let answer = house.try_call("workspace_park", json!({ "workspace_id": "w" }));
    assert!(matches!(answer, Err(None)), "{point}: {answer:?}");
    house.wait_for_death();
    house.start();
    let recorded = point == "park.after_parked" || point == "park.after_kill";
    let expected = if recorded { "parked" } else { "running" };
    assert_eq!(settled(house, "w").as_deref(), Some(expected), "{point}");
    goes_on(house, point);
    leaks::check(house);
}

/// Ends the job that was begun.
pub fn end(house: &House, job: &Value) {
    house.exec("w", "touch /dev/shm/end");
    let ended = wait_ended(house, job);
    assert_eq!((&ended["stdout"], &ended["exit_code"]), (&json!("volatile\n"), &json!(6)));
}

pub fn a_fork_sleeps_as_a_difference(house: House) {
    house.create("w");
    house.exec("w", "echo volatile > /dev/shm/x");
    let whole = park(&house, "w")["memory_bytes"].as_u64().expect("bytes");
    house.call("workspace_resume", json!({ "workspace_id": "w" }));
    let args = json!({ "workspace_id": "w", "new_name": "f", "snapshot_name": "s" });
    house.call("workspace_branch", args);
    house.exec("f", "echo mine > /dev/shm/y");
    let parked = park(&house, "f")["memory_bytes"].as_u64().expect("bytes");
    assert!(parked < whole, "{parked} bytes of a fork, {whole} of a whole machine");
    // What it is a difference to stays for it.
    let args = json!({ "workspace_id": "w", "action": "delete", "name": "s" });
    assert_eq!(house.refused("snapshot", args).code, "snapshot_has_dependents");
    house.call("workspace_destroy", json!({ "workspace_id": "w" }));
    assert_eq!(memories(&house), 2);
    assert_eq!(house.exec("f", "cat /dev/shm/x /dev/shm/y"), "volatile\nmine\n");
    // From memory of its own now.
    park(&house, "f");
    assert_eq!(house.exec("f", "cat /dev/shm/y; hostname"), "mine\nf\n");
    house.call("workspace_destroy", json!({ "workspace_id": "f" }));
    assert_eq!(memories(&house), 0);
    leaks::check(&house);
}

/// Machines of one memory that hold a number each, in a program that runs; touched by a skewed draw,
/// and parked again, while daemons die between and in the middle. A night has 200 of them, 1,000
/// touches, and a SIGKILL each minute.
pub fn every_sleeper_has_its_own_answer(mut house: House) {
    let night = std::env::var("TEST_HIVEKEEP_SLEEPERS").ok();
    let machines = night.as_ref().map_or(6, |number| number.parse().expect("a number"));
    let touches = machines * if night.is_some() { 5 } else { 6 };
    let every = Duration::from_secs(60);
    house.create("w");
    let args =
        json!({ "workspace_id": "w", "action": "create", "name": "s", "include_memory": true });
    house.call("snapshot", args);
    for n in 0..machines {
        let args = json!({ "workspace_id": "w", "snapshot_name": "s", "new_name": sleeper(n) });
        house.call("workspace_fork", args);
        // Only the shell's own memory has the number, and that of how often it was asked.
        let script = format!(
            "mkfifo /dev/shm/q /dev/shm/a; s={}; i=0; while read -r x < /dev/shm/q; do \
             i=$((i+1)); echo $s $i > /dev/shm/a; done",
            secret(n)
        );
        let args = json!({ "workspace_id": sleeper(n), "action": "start", "command": script });
        house.call("exec_background", args);
        house.exec(&sleeper(n), "until [ -p /dev/shm/a ]; do sleep 0.05; done");
        park(&house, &sleeper(n));
    }
    house.call("workspace_destroy", json!({ "workspace_id": "w" }));
    let (mut asked, mut draws, mut begun) = (vec![0; machines], 2, Instant::now());
    for touch in 0..touches {
        let n = draw(&mut draws, machines);
        asked[n] += 1;
        let answer = house.exec(&sleeper(n), "echo > /dev/shm/q; cat /dev/shm/a");
        assert_eq!(answer.trim(), format!("{} {}", secret(n), asked[n]), "touch {touch} of {n}");
        let dies = if night.is_some() { begun.elapsed() > every } else { touch % 9 == 8 };
        if dies {
            begun = Instant::now();
            kill_over_park_and_wake(&mut house, n, draw(&mut draws, machines));
        } else if touch % 3 != 0 {
            // A daemon that has just taken it up may still be at it.
            house.wait_state(&sleeper(n), "running");
            park(&house, &sleeper(n));
        }
    }
    for (n, asked) in asked.into_iter().enumerate() {
        let answer = house.exec(&sleeper(n), "echo > /dev/shm/q; cat /dev/shm/a");
        assert_eq!(answer.trim(), format!("{} {}", secret(n), asked + 1), "{n} at the end");
        house.call("workspace_destroy", json!({ "workspace_id": sleeper(n) }));
    }
    assert_eq!(memories(&house), 0);
    leaks::check(&house);
}

fn sleeper(n: usize) -> String {
    format!("sleeper-{n}")
}

fn secret(n: usize) -> usize {
    7_919 * (n + 3)
}

/// The first ones far more often.
fn draw(state: &mut usize, machines: usize) -> usize {
    *state = (*state * 1_103_515_245 + 12_345) % (1 << 31);
    let drawn = (*state >> 8) % (machines * machines);
    machines - 1 - (0..machines).rfind(|n| n * n <= drawn).expect("from zero")
}

/// A daemon dies somewhere in the parking of one machine and in the waking of another.
fn kill_over_park_and_wake(house: &mut House, parks: usize, wakes: usize) {
    let asked = [
        json!({ "tool": "workspace_park", "args": { "workspace_id": sleeper(parks) } }),
        json!({ "tool": "exec", "args": { "workspace_id": sleeper(wakes), "command": "true" } }),
    ];
    let calls = asked.map(|params| {
        let door = house.door();
        // It is answered, refused, or ends with the daemon.
        std::thread::spawn(move || {
            drop(door.ask(json!({ "method": "call", "params": params })));
        })
    });
    let mut random = [0];
    getrandom::fill(&mut random).expect("random bytes");
    std::thread::sleep(Duration::from_millis(2 * u64::from(random[0])));
    house.kill();
    for call in calls {
        call.join().expect("it ended");
    }
    house.start();
}

pub fn a_sandbox_says_that_it_cannot_sleep(house: House) {
    house.create("w");
    let refused = house.refused("workspace_park", json!({ "workspace_id": "w" }));
    assert_eq!(refused.code, "park_unsupported");
    let request = json!({ "workspace_id": "w", "lifetime_secs": 60, "at_end": "park" });
    assert_eq!(house.refused("workspace_lifetime", request).code, "park_unsupported");
    house.exec("w", "true");
}
