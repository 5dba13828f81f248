//! Browsers, driven from outside: pictures at the MCP door, the command line, and a daemon that is killed.

use std::{
    io::{Read, Write},
    net::TcpListener,
    path::Path,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    home::{Home, show, wait_until},
    wire::Wire,
};

/// A home whose browsers reach this host.
fn home() -> Home {
    let chromium = Path::new("/usr/lib/chromium/chromium");
    assert!(chromium.exists(), "these tests need Chromium: cargo xtask setup");
    let home = Home::new().with("HIVEKEEP_REGISTRY__RATE__ENABLED", "false");
    let config = "[browser]\nallow_networks = [\"127.0.0.1\"]\nports = []\n";
    std::fs::write(home.path("config.toml"), config).expect("writes");
    home
}

const PAGE: &str = "<!doctype html><title>A page</title><h1>Hello</h1>\
                    <button onclick='console.error(\"clicked\")'>Press</button>";

/// URL of a server of one page, and of a file that is downloaded.
fn page() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            // Whatever else it asks for; a request of a test has no more than this.
            let mut asked = [0; 4096];
            let read = stream.read(&mut asked).unwrap_or_default();
            let (kind, body) = match asked[..read].starts_with(b"GET /report") {
                true => ("text/csv\r\nContent-Disposition: attachment", "a,b\n1,2\n"),
                false => ("text/html", PAGE),
            };
            let length = body.len();
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n");
            // It may have left.
            let _sent =
                stream.write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes());
        }
    });
    url
}

fn good(wire: &mut Wire, id: i64, tool: &str, args: Value) -> Value {
    let answer = wire.call(id, tool, args)["result"].clone();
    assert_eq!(answer["isError"], false, "{tool}: {answer}");
    answer
}

/// bubblewrap's processes that have a folder of the home.
fn processes(home: &Home) -> usize {
    let mark = format!("HIVEKEEP_HOST_PROCESS={}", home.path("state/browsers").display());
    let all = std::fs::read_dir("/proc").expect("there").flatten();
    let variables = all.filter_map(|entry| std::fs::read(entry.path().join("environ")).ok());
    variables.filter(|all| String::from_utf8_lossy(all).contains(&mark)).count()
}

#[test]
fn pictures_come_as_pictures_and_a_daemon_that_is_killed_leaves_nothing() {
    let (home, url) = (home(), page());
    let mut daemon = home.daemon();
    let mut wire = Wire::start(&home, &["--no-spawn"]);
    wire.initialize();
    good(&mut wire, 1, "webview_connect", json!({ "debug_url": "local", "timeout": 60 }));
    good(&mut wire, 2, "webview_navigate", json!({ "url": url }));
    let taken = good(&mut wire, 3, "webview_screenshot", json!({ "format": "webp" }));
    let (content, structured) = (&taken["content"], &taken["structuredContent"]);
    let data = structured["data"].as_str().expect("base64");
    assert!(data.len() > 500, "{}", data.len());
    let image = json!({ "type": "image", "data": data, "mimeType": "image/webp" });
    assert_eq!(content[1], image);
    let text = content[0]["text"].as_str().expect("a text");
    assert!(text.contains("\"image/webp\"") && !text.contains(data), "{text:.300}");
    let uri = structured["artifact"].as_str().unwrap_or_else(|| panic!("{text}"));
    let kept = good(&mut wire, 4, "artifact_read", json!({ "uri": uri, "length": 1_000_000 }));
    let kept: Value =
        serde_json::from_str(kept["structuredContent"]["text"].as_str().expect("a text"))
            .expect("JSON");
    assert_eq!((&kept["data"], &kept["mime_type"]), (&json!(data), &json!("image/webp")));

    assert!(processes(&home) > 0);
    daemon.signal(Signal::KILL);
    daemon.wait();
    wait_until("its browsers are gone", || processes(&home) == 0);
    let _daemon = home.daemon();
    let left = || std::fs::read_dir(home.path("state/browsers")).map_or(0, Iterator::count);
    wait_until("their folders are gone", || left() == 0);
}

#[test]
fn a_person_looks_at_a_page() {
    let (home, url) = (home(), page());
    let _daemon = home.daemon();
    let read = home.ok(&["browse", &url]);
    assert!(read.contains("(200)\nA page\n- heading \"Hello\""), "{read}");
    let file = home.path("page.png");
    let told = home.ok(&["browse", &url, "--screenshot", &file.to_string_lossy(), "--full-page"]);
    assert!(told.contains("(200)") && !told.contains("Hello"), "{told}");
    assert!(std::fs::read(&file).expect("a file").starts_with(b"\x89PNG"));
    assert_eq!(processes(&home), 0, "what it started it closed");
    let refused = home.run(&["browse", "http://169.254.169.254/"]);
    assert_eq!(refused.status.code(), Some(1), "{}", show(&refused));
    assert!(show(&refused).contains("browser_address_refused"), "{}", show(&refused));
    let wrong = home.run(&["browse", &url, "--screenshot", "page.gif"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", show(&wrong));
    home.ok(&["browse", &url, "--keep"]);
    assert!(processes(&home) > 0);
    home.ok(&["call", "webview_click", "--arg", "selector=button"]);
    let console = home.json(&["call", "webview_console", "--json"]);
    assert_eq!(console["messages"][0]["text"], "clicked", "{console}");
}

#[test]
fn a_download_goes_into_the_place() {
    let (home, url) = (home(), page());
    let place = home.path("work");
    std::fs::create_dir(&place).expect("made");
    let config = std::fs::read_to_string(home.path("config.toml")).expect("read");
    let more = format!("[session.places.work]\nfolder = {place:?}\nread_only = false\n");
    std::fs::write(home.path("config.toml"), config + &more).expect("written");
    let _daemon = home.daemon();
    let url = format!("{url}report.csv");
    for name in ["report.csv", "report-1.csv"] {
        let told = home.ok(&["browse", &url]);
        let line = format!("download report.csv saved: downloads/{name} in the place work\n");
        assert!(told.contains(&line), "{told}");
        let content = std::fs::read_to_string(place.join("downloads").join(name));
        assert_eq!(content.expect("it is there"), "a,b\n1,2\n");
    }
    assert_eq!(processes(&home), 0);
    let events = home.ok(&["events", "--json"]);
    let saved = events.lines().filter(|line| line.contains("browser.download"));
    assert_eq!(saved.filter(|line| line.contains("\"saved\"")).count(), 2, "{events}");
}
