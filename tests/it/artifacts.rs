//! Results that are too large: kept, found at every door, and whole or not there after a `kill -9`.

use serde_json::{Value, json};

use crate::{
    home::{Home, show},
    wire::Wire,
};

/// Scripts whose list is larger than its budget of 4 MiB: as JSON, each has 12 KiB.
const SCRIPTS: i64 = 360;

/// A home with such a library, and the list's arguments.
fn home() -> (Home, Value) {
    let home = Home::new()
        .with("HIVEKEEP_REGISTRY__RATE__ENABLED", "false")
        // A host that runs tests may be short of space.
        .with("HIVEKEEP_DAEMON__FREE_SPACE_FLOOR_MB", "0");
    let _daemon = home.daemon();
    let mut wire = Wire::start(&home, &["--no-spawn"]);
    wire.initialize();
    let description = "\u{1}".repeat(2_048);
    for id in 1..=SCRIPTS {
        let script = json!({ "name": format!("s{id}"), "code": "1", "description": description });
        let saved = wire.call(id, "aegis.script.save", script);
        assert_eq!(saved["result"]["isError"], false, "{saved}");
    }
    (home, json!({ "limit": 500 }))
}

fn files(home: &Home) -> Vec<String> {
    let folder = std::fs::read_dir(home.path("state/artifacts")).expect("a folder");
    folder.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect()
}

#[test]
fn a_result_that_is_too_large_is_kept_and_read_at_every_door() {
    let (home, args) = home();
    let mut daemon = home.daemon();
    let mut wire = Wire::start(&home, &["--no-spawn"]);
    wire.initialize();
    let refused = wire.call(1, "aegis.script.list", args);
    assert_eq!(refused["result"]["isError"], true);
    let content = &refused["result"]["content"];
    let error: Value =
        serde_json::from_str(content[1]["text"].as_str().expect("a text")).expect("JSON");
    let error = &error["error"];
    assert_eq!(error["code"], "result_too_large");
    let kept = &error["details"]["artifact"];
    let uri = kept["uri"].as_str().unwrap_or_else(|| panic!("{error}"));
    assert_eq!((&content[2]["type"], &content[2]["uri"]), (&json!("resource_link"), &json!(uri)));
    assert!(
        error["details"]["preview"].as_str().is_some_and(|text| text.starts_with("{\"scripts\":["))
    );

    let templates = wire.ask(2, "resources/templates/list", json!({}));
    let template = "hivekeep://artifacts/{id}{?offset,length}";
    let templates = templates["result"]["resourceTemplates"].as_array().expect("a list");
    assert!(templates.iter().any(|one| one["uriTemplate"] == template), "{templates:?}");
    let listed = wire.ask(3, "resources/list", json!({}));
    assert_eq!(listed["result"]["resources"][0]["uri"], uri, "{listed}");
    let whole = wire.ask(4, "resources/read", json!({ "uri": uri }));
    assert_eq!(whole["error"]["code"], -32602, "{whole}");
    let range = format!("{uri}?offset=2&length=7");
    let read = wire.ask(5, "resources/read", json!({ "uri": range }));
    let content = json!([{ "uri": range, "mimeType": "application/json", "text": "scripts" }]);
    assert_eq!(read["result"]["contents"], content, "{read}");
    let part = wire.call(6, "artifact_read", json!({ "uri": uri, "length": 9 }));
    assert_eq!(part["result"]["structuredContent"]["text"], "{\"scripts", "{part}");
    drop(wire);

    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    let _again = home.daemon();
    let file = home.path("result.json");
    home.ok(&["artifact", "get", uri, "-o", file.to_str().expect("UTF-8")]);
    let text = std::fs::read(&file).expect("read");
    assert_eq!(text.len() as u64, kept["bytes"].as_u64().expect("a size"));
    let result: Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(result["total"], SCRIPTS);
    let printed: Value = serde_json::from_str(&home.ok(&["artifact", "get", uri])).expect("JSON");
    assert_eq!(printed, result);
    let rows = home.json(&["artifact", "list", "--json"]);
    assert_eq!(
        (&rows[0]["sha256"], &rows[0]["tool"]),
        (&kept["sha256"], &json!("aegis.script.list"))
    );
    home.ok(&["artifact", "remove", uri]);
    let gone = home.run(&["artifact", "get", uri]);
    assert!(
        String::from_utf8_lossy(&gone.stderr).contains("artifact_not_found"),
        "{}",
        show(&gone)
    );
    assert_eq!(files(&home), [""; 0]);
}

/// What there is has its name and is told; nothing else is left.
#[test]
#[cfg_attr(not(feature = "failpoints"), ignore = "needs failpoints: `cargo xtask t it`")]
fn a_kill_in_the_middle_leaves_a_whole_artifact_or_none() {
    let (mut home, args) = home();
    let call = ["call", "aegis.script.list", "--json", &args.to_string()].map(str::to_owned);
    let call: Vec<_> = call.iter().map(String::as_str).collect();
    for (point, there) in [("artifact.written", 0), ("artifact.named", 1), ("artifact.removed", 0)]
    {
        home = home.with("FAILPOINTS", &format!("{point}=return(kill)"));
        let mut daemon = home.daemon();
        let kept = files(&home);
        let cut_off = match kept.first().filter(|_| point == "artifact.removed") {
            Some(kept) => home.run(&["artifact", "remove", kept]),
            None => home.run(&call),
        };
        assert!(!cut_off.status.success(), "{point}: {}", show(&cut_off));
        daemon.wait();
        home = home.with("FAILPOINTS", "");
        let _again = home.daemon();
        let listed = home.json(&["artifact", "list", "--json"]);
        let listed: Vec<_> =
            listed.as_array().expect("rows").iter().map(|row| row["id"].as_str()).collect();
        let files = files(&home);
        assert_eq!(files.len(), there, "{point}");
        assert_eq!(
            listed,
            files.iter().map(|name| Some(name.as_str())).collect::<Vec<_>>(),
            "{point}"
        );
        for name in &files {
            home.ok(&["artifact", "get", name]);
        }
    }
}
