//! The command line.

use serde_json::Value;

use crate::home::{Home, show};

#[test]
fn tools_are_listed_and_explained_without_a_daemon() {
    let home = Home::new();
    let listed = home.json(&["tools", "--json"]);
    let names: Vec<_> =
        listed.as_array().expect("a list").iter().map(|tool| &tool["name"]).collect();
    assert!(names.contains(&&Value::from("workspace_create")), "{names:?}");
    let text = home.ok(&["tools"]);
    assert!(names.iter().all(|name| text.contains(name.as_str().expect("a name"))));
    let explained = home.ok(&["tools", "exec"]);
    assert!(explained.contains("workspace_id (string, required)"), "{explained}");
    assert_eq!(explained, home.ok(&["call", "exec", "--help"]));
    let wrong = home.run(&["tools", "exce"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("exec"), "{}", show(&wrong));
    assert!(!home.socket().exists(), "none of this starts a daemon");
}

#[test]
fn without_a_daemon_commands_say_so_and_how_to_start_one() {
    let home = Home::new();
    for args in [&["call", "workspace_list"][..], &["ps"], &["sessions"], &["status"], &["events"]]
    {
        let output = home.run(args);
        assert_eq!(output.status.code(), Some(5), "{args:?}: {}", show(&output));
        assert!(String::from_utf8_lossy(&output.stderr).contains("`hivekeep daemon`"), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    assert!(home.run(&["stop"]).status.success(), "nothing to stop is not a failure");
}

#[test]
fn calls_work_fail_and_share_a_session() {
    let home = Home::new();
    let _daemon = home.daemon();
    let listed = home.json(&["call", "workspace_list", "--json"]);
    assert!(listed.is_object(), "{listed}");
    home.ok(&["call", "workspace_list"]);
    let failed = home.run(&["call", "exec", "-a", "workspace_id=nobody", "-a", "command=true"]);
    assert_eq!(failed.status.code(), Some(1), "{}", show(&failed));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("workspace_not_found"));
    let wrong = home.run(&["call", "exec", "-a", "timeout_secs=soon"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", show(&wrong));
    let sessions = home.json(&["sessions", "--json"]);
    let cli: Vec<_> =
        sessions.as_array().expect("rows").iter().filter(|s| s["door"] == "cli").collect();
    assert_eq!(cli.len(), 1, "{sessions}");
    assert_eq!(cli[0]["calls_total"], 3);
}

#[test]
fn the_tree_the_events_and_the_log_can_be_seen() {
    let home = Home::new();
    let _daemon = home.daemon();
    home.ok(&["call", "workspace_list"]);
    let rows = home.json(&["ps", "--json"]);
    let paths: Vec<_> =
        rows.as_array().expect("rows").iter().map(|row| row["path"].as_str()).collect();
    for path in ["root", "root/journal", "root/registry", "root/sessions", "root/workspaces"] {
        assert!(paths.contains(&Some(path)), "{paths:?}");
    }
    let tree = home.ok(&["ps"]);
    assert!(tree.contains("├─ registry") && tree.contains("running"), "{tree}");

    crate::home::wait_until("the call is an event", || {
        home.ok(&["events", "--json"]).contains("call.finished")
    });
    let first = home.ok(&["events", "--json"]);
    let first: Value = serde_json::from_str(first.lines().next().expect("an event")).expect("JSON");
    assert_eq!(first["seq"], 1);
    assert!(home.ok(&["events", "--from", "2"]).lines().all(|line| !line.trim().starts_with("1 ")));

    assert!(home.ok(&["logs"]).contains("serving"));
    let line = home.ok(&["logs", "--json", "-n", "1"]);
    serde_json::from_str::<Value>(&line).expect("the log is JSON lines");
}

#[test]
fn the_configuration_is_shown_shipped_and_refused() {
    let home = Home::new();
    let shipped = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/config.toml"));
    assert_eq!(home.ok(&["config", "--default"]), shipped.expect("it ships"));
    std::fs::write(home.path("config.toml"), "[registry.rate]\nenabled = false\n").expect("writes");
    let shown = home.ok(&["config", "--set", "daemon.log_level=warn"]);
    let line =
        |key: &str| shown.lines().find(|line| line.starts_with(key)).expect("a line").to_owned();
    assert!(line("registry.rate.enabled").contains("config.toml:2"), "{shown}");
    assert!(line("daemon.log_level").ends_with("--set"), "{shown}");
    assert!(line("store.cache_mb").ends_with("default"), "{shown}");
    std::fs::write(home.path("config.toml"), "[daemon]\nfoo = 1\nbar = 2\n").expect("writes");
    for args in [&["config"][..], &["daemon"], &["mcp"], &["ps"]] {
        let output = home.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", show(&output));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            text.contains("config.toml:2: daemon.foo") && text.contains(":3: daemon.bar"),
            "{text}"
        );
    }
}

#[test]
fn the_doctor_names_a_remedy_for_each_finding() {
    let home = Home::new();
    let output = home.run(&["check", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["ok"], output.status.success());
    let findings = report["findings"].as_array().expect("findings");
    for what in ["configuration", "state folder", "daemon", "kvm", "qemu", "network", "image base"]
    {
        assert!(findings.iter().any(|finding| finding["what"] == what), "{what}: {findings:?}");
    }
    for finding in findings.iter().filter(|finding| finding["ok"] == false) {
        assert!(finding["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{finding}");
    }
    assert!(!home.path("state").exists(), "looking makes nothing");
}

#[test]
fn the_doctor_names_the_package_of_a_missing_program() {
    let home = Home::new()
        .with("HIVEKEEP_WORKSPACE__DRIVER__QEMU_PATH", "/no/such/qemu")
        .with("HIVEKEEP_WORKSPACE__DRIVER__BWRAP_PATH", "/no/such/bwrap");
    let output = home.run(&["check", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = report["findings"].as_array().expect("findings");
    for (what, package) in [("qemu", "qemu-system-x86"), ("bubblewrap", "bubblewrap")] {
        let finding = findings.iter().find(|finding| finding["what"] == what).expect(what);
        // How it is installed is the distribution's, the name is one.
        let remedy = finding["remedy"].as_str().expect("a remedy");
        assert!(remedy.contains("install") && remedy.contains(package), "{finding}");
    }
}

#[test]
fn an_error_code_is_explained_without_a_daemon() {
    let home = Home::new();
    let told = home.json(&["errors", "workspace_not_found", "--json"]);
    let explained = home.ok(&["errors", "workspace_not_found"]);
    for field in ["code", "meaning", "cause", "next_step"] {
        assert!(explained.contains(told[field].as_str().expect(field)), "{explained}");
    }
    let all = home.ok(&["errors"]);
    // Of the kernel, the registry, a family and a crate below a family.
    for code in ["internal", "unknown_tool", "inbox_full", "guest_misbehaves"] {
        assert!(all.lines().any(|line| line.split(' ').next() == Some(code)), "{code}");
    }
    let unknown = home.run(&["errors", "no_such_code"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
}

#[test]
fn shells_and_man_are_served() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(home.ok(&["completions", shell]).contains("hivekeep"), "{shell}");
    }
    assert!(home.ok(&["man"]).contains(".TH hivekeep"));
    let dir = home.path("man");
    home.ok(&["man", "--dir", dir.to_str().expect("UTF-8")]);
    assert!(dir.join("hivekeep.1").exists() && dir.join("hivekeep-call.1").exists());
    let images = home.json(&["image", "list", "--json"]);
    assert_eq!(images[0]["name"], "base");
    assert_eq!(images[0]["state"], "not_built");
}
