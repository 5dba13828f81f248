use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::house::House;

pub fn output_of_any_size(house: &mut House) {
    let run = |command: &str, most: u64| {
        house.call(
            "exec",
            json!({ "workspace_id": "w", "command": command, "max_output_bytes": most }),
        )
    };
    for bytes in [65_536u64, 65_537, 300_000] {
        let result = run(&format!("head -c {bytes} /dev/zero | tr '\\0' x"), 400_000);
        assert_eq!(result["stdout"].as_str().map(str::len), usize::try_from(bytes).ok(), "{bytes}");
        assert_eq!(result["truncated"], false);
    }
    let result = run("head -c 20000000 /dev/zero | tr '\\0' x; echo oops >&2; exit 3", 1000);
    assert_eq!(result["exit_code"], 3);
    assert_eq!(result["stdout_bytes"], 20_000_000);
    assert_eq!((&result["truncated"], &result["stderr"]), (&json!(true), &json!("oops\n")));
    let text = result["stdout"].as_str().expect("text");
    assert!(text.starts_with("xxxx") && text.contains("20000000") && text.len() < 2000, "{text}");
    let utf8 = run("i=0; while [ $i -lt 400 ]; do printf 'äöü€'; i=$((i+1)); done", 101);
    assert!(!utf8["stdout"].as_str().expect("text").contains('\u{fffd}'), "{utf8}");
    let signalled = run("kill -9 $$", 10);
    assert_eq!((&signalled["exit_code"], &signalled["signal"]), (&json!(137), &json!(9)));
}

/// Processes of the guest whose command line holds a word.
fn alive(house: &House, word: &str) -> usize {
    // The brackets keep the search itself out of the count.
    let pattern = format!("[{}]{}", &word[..1], &word[1..]);
    let command = format!(
        "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null | grep -c '{pattern}'; done | grep -c 1; true"
    );
    house.exec("w", &command).trim().parse().expect("a count")
}

pub fn timeouts_end_the_tree(house: &mut House) {
    let command = "trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep 7771' &) ; (sleep 7772 & sleep 7773) & echo begun; sleep 7774";
    let refusal = house
        .refused("exec", json!({ "workspace_id": "w", "command": command, "timeout_secs": 2 }));
    assert_eq!(refusal.code, "exec_timed_out");
    assert_eq!(refusal.details["stdout"], "begun\n", "{}", refusal.text);
    assert_eq!(alive(house, "sleep 777"), 0, "processes outlived the timeout");
}

pub fn stragglers_do_not_stall(house: &mut House) {
    let begun = Instant::now();
    let result = house.call(
        "exec",
        json!({ "workspace_id": "w", "command": "sleep 8881 & echo done", "timeout_secs": 60 }),
    );
    assert_eq!(result["stdout"], "done\n");
    assert!(begun.elapsed() < Duration::from_secs(30), "a background child held the answer");
    assert_eq!(alive(house, "sleep 8881"), 0);
}

pub fn many_at_once(house: &mut House) {
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..24)
            .map(|n| {
                let house = &*house;
                scope.spawn(move || {
                    house.exec("w", &format!("sleep 0.$((RANDOM % 5)) 2>/dev/null; echo {n}"))
                })
            })
            .collect();
        for (n, call) in calls.into_iter().enumerate() {
            assert_eq!(call.join().expect("a result").trim(), n.to_string());
        }
    });
}

pub fn in_parallel_over_workspaces(house: House) {
    house.create("a");
    house.create("b");
    let call = |commands: Value, timeout: u64| {
        house.call(
            "exec_parallel",
            json!({ "workspace_ids": ["a", "b"], "commands": commands, "timeout_secs": timeout }),
        )
    };
    let result = call(json!("hostname"), 60);
    let names: Vec<_> = result["results"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| row["stdout"].clone())
        .collect();
    assert_eq!(names, [json!("a\n"), json!("b\n")]);
    assert_eq!(result["summary"]["succeeded"], 2);
    let result = call(json!(["exit 4", "sleep 60"]), 2);
    assert_eq!(result["results"][0]["exit_code"], 4);
    assert_eq!(result["results"][1]["timed_out"], true);
    let summary = &result["summary"];
    assert_eq!((&summary["failed"], &summary["timed_out"]), (&json!(1), &json!(1)), "{result}");
    let unknown =
        house.refused("exec_parallel", json!({ "workspace_ids": ["a", "zz"], "commands": "true" }));
    assert_eq!(unknown.code, "workspace_not_found");
    let uneven = house
        .refused("exec_parallel", json!({ "workspace_ids": ["a", "b"], "commands": ["true"] }));
    assert_eq!(uneven.code, "invalid_input");
}

pub fn one_session_leaves_places_to_others(house: House) {
    house.create("w");
    let args = json!({ "workspace_ids": ["w"], "commands": "sleep 8882", "timeout_secs": 600 });
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..14)
            .map(|_| scope.spawn(|| house.try_call("exec_parallel", args.clone())))
            .collect();
        let begun = Instant::now();
        while alive(&house, "sleep 8882") < 14 {
            assert!(begun.elapsed() < Duration::from_secs(60), "they do not all run");
            std::thread::sleep(Duration::from_millis(50));
        }
        // By another session and by their own.
        let other = house.attach();
        let other = |tool, args| other.call(tool, args).expect("it has places");
        other("workspace_create", json!({ "name": "beside" }));
        other("exec_parallel", json!({ "workspace_ids": ["beside"], "commands": "true" }));
        other("workspace_destroy", json!({ "workspace_id": "beside" }));
        house.create("own");
        house.call("workspace_destroy", json!({ "workspace_id": "w" }));
        for call in calls {
            let _ended_with_its_workspace = call.join().expect("answered");
        }
    });
}
