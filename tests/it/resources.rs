//! Notes of the vault as MCP resources, and who hears of their changes.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use serde_json::{Value, json};

use crate::{home::Home, wire::Wire};

fn write(home: &Home, path: &str, content: &str) {
    let (path, content) = (format!("path={path}"), format!("content={content}"));
    home.ok(&["call", "vault", "-a", "action=write", "-a", &path, "-a", &content]);
}

fn uris(listed: &Value) -> Vec<&str> {
    let notes = listed["result"]["resources"].as_array().unwrap_or_else(|| panic!("{listed}"));
    notes.iter().map(|note| note["uri"].as_str().expect("a URI")).collect()
}

/// The next notification with this method; others are passed over.
fn notified(wire: &mut Wire, method: &str) -> Value {
    loop {
        let message = wire.receive();
        if message["method"] == method {
            return message["params"].clone();
        }
        assert!(message.get("id").is_none(), "nothing was asked: {message}");
    }
}

#[test]
fn notes_are_listed_in_pages_and_read_by_their_uri() {
    let home = Home::new();
    let _daemon = home.daemon();
    let folder = home.path("state/vault/many");
    std::fs::create_dir_all(&folder).expect("a folder");
    for number in 0..230 {
        std::fs::write(folder.join(format!("{number:03}.md")), "x").expect("written");
    }
    write(&home, "a b/größe #1.md", "# Size\n");
    let mut wire = Wire::start(&home, &["--no-spawn"]);
    let info = wire.initialize();
    let declared = json!({ "subscribe": true, "listChanged": true });
    assert_eq!(info["capabilities"]["resources"], declared);

    let first = wire.ask(1, "resources/list", json!({}));
    let odd = "vault:///a%20b/gr%C3%B6%C3%9Fe%20%231.md";
    assert_eq!((uris(&first).len(), uris(&first)[0]), (200, odd));
    let note = &first["result"]["resources"][0];
    assert_eq!((&note["name"], &note["size"]), (&json!("a b/größe #1.md"), &json!(7)), "{note}");
    let cursor = &first["result"]["nextCursor"];
    // What comes or goes before the cursor moves nothing behind it.
    std::fs::remove_file(folder.join("000.md")).expect("removed");
    let second = wire.ask(2, "resources/list", json!({ "cursor": cursor }));
    assert_eq!(uris(&second).len(), 31, "{second}");
    assert_eq!(uris(&second)[0], "vault:///many/199.md");
    assert_eq!(second["result"].get("nextCursor"), None);
    let nonsense = wire.ask(3, "resources/list", json!({ "cursor": "made up" }));
    assert_eq!(nonsense["error"]["code"], -32602, "{nonsense}");

    let read = wire.ask(4, "resources/read", json!({ "uri": odd }));
    let content = json!([{ "uri": odd, "mimeType": "text/markdown", "text": "# Size\n" }]);
    assert_eq!(read["result"]["contents"], content, "{read}");
    let templates = wire.ask(5, "resources/templates/list", json!({}));
    let templates = templates["result"]["resourceTemplates"].as_array().expect("a list");
    assert!(templates.iter().any(|one| one["uriTemplate"] == "vault:///{+path}"), "{templates:?}");
    let errors = [
        ("vault:///no.md", -32002),
        ("vault:///..%2fsecret.md", -32602),
        ("vault:///many", -32602),
        ("file:///etc/passwd", -32602),
    ];
    for (id, (uri, code)) in (6..).zip(errors) {
        let refused = wire.ask(id, "resources/read", json!({ "uri": uri }));
        assert_eq!(refused["error"]["code"], code, "{uri}: {refused}");
    }
}

#[test]
fn the_list_goes_on_beyond_what_the_tool_lists_at_once() {
    let home = Home::new();
    let _daemon = home.daemon();
    let folder = home.path("state/vault/many");
    std::fs::create_dir_all(&folder).expect("a folder");
    for number in 0..10_300 {
        std::fs::write(folder.join(format!("{number:05}.md")), "").expect("written");
    }
    let mut wire = Wire::start(&home, &["--no-spawn"]);
    wire.initialize();
    let first = wire.ask(1, "resources/list", json!({}));
    let cursor = first["result"]["nextCursor"].as_str().expect("a cursor");
    // A place further on, in the form that cursors have.
    let cursor = cursor.replace("00199", "09999");
    let page = wire.ask(2, "resources/list", json!({ "cursor": cursor }));
    assert_eq!((uris(&page).len(), uris(&page)[0]), (200, "vault:///many/10000.md"), "{page}");
    let cursor = &page["result"]["nextCursor"];
    let last = wire.ask(3, "resources/list", json!({ "cursor": cursor }));
    assert_eq!((uris(&last).len(), last["result"].get("nextCursor")), (100, None), "{last}");
}

#[test]
fn whoever_is_not_shown_the_vault_is_offered_no_notes() {
    let off = Home::new().with("HIVEKEEP_VAULT__ENABLED", "false");
    let mut switched_off = Wire::start(&off, &["--toolset", "vault"]);
    let home = Home::new();
    let mut not_shown = Wire::start(&home, &["--toolset", "execution"]);
    for wire in [&mut switched_off, &mut not_shown] {
        let info = wire.initialize();
        assert_eq!(info["capabilities"].get("resources"), None);
        assert!(uris(&wire.ask(1, "resources/list", json!({}))).is_empty());
        for (id, method) in [(2, "resources/read"), (3, "resources/subscribe")] {
            let refused = wire.ask(id, method, json!({ "uri": "vault:///a.md" }));
            assert_eq!(refused["error"]["code"], -32601, "{refused}");
        }
    }
}

#[test]
fn a_client_hears_of_what_it_subscribed_to_and_goes_on_after_a_restart() {
    let home = Home::new();
    let mut daemon = home.daemon();
    write(&home, "a.md", "one");
    let mut wire = Wire::start(&home, &["--no-spawn"]);
    wire.initialize();
    let a = json!({ "uri": "vault:///a.md" });
    for (id, uri) in (1..).zip(["vault:///a.md", "vault:///later.md"]) {
        let subscribed = wire.ask(id, "resources/subscribe", json!({ "uri": uri }));
        assert_eq!(subscribed["result"], json!({}), "{subscribed}");
    }
    let bad = wire.ask(3, "resources/subscribe", json!({ "uri": "vault:///../a.md" }));
    assert_eq!(bad["error"]["code"], -32602, "{bad}");

    write(&home, "a.md", "two");
    assert_eq!(notified(&mut wire, "notifications/resources/updated"), a);
    // Another program's hand.
    std::fs::write(home.path("state/vault/a.md"), "three, and more").expect("written");
    assert_eq!(notified(&mut wire, "notifications/resources/updated"), a);
    write(&home, "later.md", "here");
    notified(&mut wire, "notifications/resources/list_changed");
    let later = notified(&mut wire, "notifications/resources/updated");
    assert_eq!(later, json!({ "uri": "vault:///later.md" }));
    wire.ask(4, "resources/unsubscribe", json!({ "uri": "vault:///later.md" }));

    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    let _again = home.daemon();
    // Nobody saw whether it changed.
    assert_eq!(notified(&mut wire, "notifications/resources/updated"), a);
    write(&home, "later.md", "unheard");
    write(&home, "a.md", "four");
    assert_eq!(notified(&mut wire, "notifications/resources/updated"), a);
}

#[test]
fn a_client_of_2026_listens() {
    let home = Home::new();
    let _daemon = home.daemon();
    write(&home, "a.md", "one");
    let mut wire = Wire::start(&home, &["--no-spawn"]);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let missing = json!({ "uri": "vault:///no.md", "_meta": meta });
    let missing = wire.ask(1, "resources/read", missing);
    assert_eq!(missing["error"]["code"], -32602, "as this revision has it: {missing}");
    let wanted = json!({
        "resourcesListChanged": true,
        "resourceSubscriptions": ["vault:///a.md", "file:///etc/passwd"],
    });
    let params = json!({ "notifications": wanted, "_meta": meta });
    wire.send(&json!({
        "jsonrpc": "2.0", "id": 2, "method": "subscriptions/listen", "params": params,
    }));
    let accepted = notified(&mut wire, "notifications/subscriptions/acknowledged");
    let taken = json!({ "resourcesListChanged": true, "resourceSubscriptions": ["vault:///a.md"] });
    assert_eq!(accepted["notifications"], taken, "{accepted}");
    // It listens from a moment after its word on: something new until that is heard.
    let heard = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in (0..400).take_while(|_| !heard.load(SeqCst)) {
                write(&home, &format!("new/{number}.md"), "x");
            }
        });
        notified(&mut wire, "notifications/resources/list_changed");
        heard.store(true, SeqCst);
    });
    write(&home, "a.md", "two");
    let updated = notified(&mut wire, "notifications/resources/updated");
    assert_eq!(updated["uri"], "vault:///a.md", "{updated}");
}
