//! A browser beside real places: what pages download goes into a workspace of the session and into a
//! volume, and comes back from there.

use std::{
    io::{Read, Write},
    net::TcpListener,
    time::Instant,
};

use serde_json::{Value, json};

use crate::house::{House, PATIENCE};

pub const CONFIG: &str = "\n[browser]\nallow_networks = [\"127.0.0.1\"]\nports = []\n";

/// What is downloaded.
const ATTACHED: &str =
    "application/octet-stream\r\nContent-Disposition: attachment; filename=data.bin";
/// What `/data` is: no text.
const DATA: [u8; 4] = [0, 159, 146, 150];

/// URL of a server of a page and a file.
fn page() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut asked = [0; 4096];
            let read = stream.read(&mut asked).unwrap_or_default();
            let (kind, body): (_, &[u8]) = match asked[..read].starts_with(b"GET /data") {
                true => (ATTACHED, &DATA),
                false => ("text/html", b"<!doctype html><input type=file>"),
            };
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            // It may have left.
            let _sent = stream.write_all(&[head.as_bytes(), body].concat());
        }
    });
    url
}

/// Downloads into the place that the browser has; the path there, once it is saved.
fn download(house: &House, url: &str) -> Value {
    let mut told = house.call("webview_navigate", json!({ "url": format!("{url}/data") }));
    let begun = Instant::now();
    loop {
        let seen = told["downloads"].as_array().and_then(|all| all.first()).cloned();
        match seen.as_ref().and_then(|seen| seen["state"].as_str()) {
            Some("saved") => return seen.expect("it is there"),
            Some("failed") => panic!("{told}\n{}", house.stderr()),
            _ => assert!(begun.elapsed() < 2 * PATIENCE, "{told}\n{}", house.stderr()),
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        told = house.call("webview_eval", json!({ "script": "1" }));
    }
}

/// Gives the page a file of the browser's place; its bytes as the page reads them.
fn upload(house: &House, url: &str, path: &Value) -> Value {
    house.call("webview_navigate", json!({ "url": url }));
    let give = json!({ "selector": "input", "text": "", "files": [path] });
    house.call("webview_type", give);
    let script =
        "return [...new Uint8Array(await document.querySelector('input').files[0].arrayBuffer())]";
    house.call("webview_eval", json!({ "script": script }))["result"].clone()
}

pub fn a_browser_downloads_into_a_workspace_and_a_volume(house: House) {
    let url = page();
    house.call("aegis.volume.create", json!({ "label": "kept", "size_limit_bytes": 16 << 20 }));
    for (place, name) in [(None, "session"), (Some("volume:kept"), "volume:kept")] {
        let connect = json!({ "debug_url": "local", "timeout": 60, "place": place });
        house.call("webview_connect", connect);
        // The session's own workspace is made for it.
        let saved = download(&house, &url);
        assert_eq!((&saved["place"], &saved["path"]), (&json!(name), &json!("downloads/data.bin")));
        assert_eq!(upload(&house, &url, &saved["path"]), json!(DATA), "{name}");
        house.call("webview_disconnect", json!({}));
        let seen =
            house.call("file_exists", json!({ "path": "downloads/data.bin", "place": name }));
        assert_eq!(seen["exists"], true, "{name}: {seen}");
    }
    house.call("aegis.volume.delete", json!({ "volume_id": "kept" }));
}
