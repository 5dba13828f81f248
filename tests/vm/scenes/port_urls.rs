//! URLs for ports of a real workspace: who gets in, what passes, and what a SIGKILL leaves.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::http_api::{Caller, credential};
use crate::house::House;

pub const CONFIG: &str = "[http.api]\nenabled = true\nbind = \"127.0.0.1:0\"\n\
                          [http.ports]\nenabled = true\nbind = \"127.0.0.1:0\"\n";

/// A server for one connection: it says what it was asked, counts a body, sends a piece for each line of
/// a file as it comes, and echoes after an upgrade.
const SERVER: &str = r#"#!/bin/bash
length=0; upgrade=; seen=
IFS= read -r first
while IFS= read -r line; do
  line=${line%$'\r'}
  [ -z "$line" ] && break
  seen+="${line,,}"$'\n'
  case ${line,,} in
    content-length:*) length=${line#*: };;
    upgrade:*) upgrade=1;;
  esac
done
if [ -n "$upgrade" ]; then
  printf 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n'
  exec cat
fi
case $first in
  *" /events "*)
    : > /tmp/events
    exec 3< /tmp/events
    printf 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n'
    sent=0
    while [ $sent -lt 3 ]; do
      if IFS= read -r -u 3 line; then
        printf 'data: %s\n\n' "$line"
        sent=$((sent + 1))
      else
        sleep 0.05
      fi
    done;;
  *" /up "*)
    counted="$(head -c "$length" | wc -c) bytes"
    printf 'HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n%s' "${#counted}" "$counted";;
  *)
    printf 'HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n%s' "${#seen}" "$seen";;
esac
"#;

/// The listener's address; its names lead there whatever they say.
fn address(house: &House) -> String {
    let output = house.command().args(["status", "--json"]).output().expect("the program runs");
    let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let example = status["port_urls"].as_str().expect("URLs are served").to_owned();
    let port = example.trim_end_matches('/').rsplit(':').next().expect("a port").to_owned();
    format!("127.0.0.1:{port}")
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn send(address: &str, request: &str) -> Self {
        let mut stream = TcpStream::connect(address).expect("connects");
        stream.set_read_timeout(Some(crate::house::PATIENCE)).expect("set");
        stream.write_all(request.as_bytes()).expect("written");
        Self(BufReader::new(stream))
    }

    fn get(address: &str, host: &str, target: &str, more: &str) -> Self {
        let line =
            format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n");
        Self::send(address, &line)
    }

    /// Status and head.
    fn head(&mut self) -> (u16, String) {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(self.0.read_line(&mut head).expect("a head") > 0, "it ended: {head}");
        }
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a status");
        (status, head.to_ascii_lowercase())
    }

    fn whole(mut self) -> (u16, String, String) {
        let (status, head) = self.head();
        let mut body = String::new();
        self.0.read_to_string(&mut body).expect("a body");
        (status, head, body)
    }
}

fn serve(owner: &Caller) {
    let (path, mode) = ("/srv/serve", "0755");
    let write = json!({ "workspace_id": "web", "path": path, "content": SERVER, "mode": mode });
    owner.ok("file_write", &write);
    let command = "exec nc -ll -p 3000 -e /srv/serve";
    let run = json!({ "workspace_id": "web", "action": "start", "command": command });
    owner.ok("exec_background", &run);
}

fn until_it_listens(address: &str, host: &str, bearer: &str) {
    let begun = Instant::now();
    while Client::get(address, host, "/", bearer).whole().0 != 200 {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing listens");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub fn a_port_has_a_url_and_its_owner_says_who_gets_in(mut house: House) {
    let owner = Caller::new(&house, "owner");
    owner.ok("workspace_create", &json!({ "name": "web" }));
    let stranger = credential(&house, "stranger", "session");
    let (at, host) = (address(&house), "3000-web.localhost");
    let bearer = format!("Authorization: Bearer {}\r\n", owner.credential);
    let (status, _, closed) = Client::get(&at, host, "/", &bearer).whole();
    assert!(status == 502 && closed.contains("port_closed"), "{status} {closed}");
    serve(&owner);
    until_it_listens(&at, host, &bearer);

    let (_, _, seen) = Client::get(&at, host, "/echo", &bearer).whole();
    assert!(seen.contains("x-forwarded-for: 127.0.0.1") && !seen.contains("hivekeep"), "{seen}");
    let stranger = format!("Authorization: Bearer {stranger}\r\n");
    for (host, shown, status) in [
        (host, "", 401),
        (host, stranger.as_str(), 403),
        ("3000-other.localhost", bearer.as_str(), 404),
        ("3000-web.evil.example", bearer.as_str(), 421),
        ("3001-web.localhost", bearer.as_str(), 502),
    ] {
        assert_eq!(Client::get(&at, host, "/", shown).whole().0, status, "{host} {shown}");
    }

    let ask = |more: Value| {
        let mut input = json!({ "workspace_id": "web", "port": 3000 });
        input.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
        owner.ok("port_url", &input)
    };
    let private = ask(json!({}));
    let query = private["link"].as_str().and_then(|it| it.split_once('?')).expect("a link").1;
    let (status, head, _) = Client::get(&at, host, &format!("/echo?{query}"), "").whole();
    assert!(
        status == 302 && head.contains("location: http://3000-web.localhost/echo\r\n"),
        "{head}"
    );
    let cookie = head.split("set-cookie: ").nth(1).and_then(|it| it.split(';').next());
    let cookie = format!("Cookie: {}\r\n", cookie.expect("a cookie"));
    assert_eq!(Client::get(&at, host, "/", &cookie).whole().0, 200);
    assert_eq!(Client::get(&at, "3001-web.localhost", "/", &cookie).whole().0, 401);
    passes(&house, &owner, &at, &bearer);

    assert_eq!(ask(json!({ "public": true }))["public"], true);
    assert_eq!(Client::get(&at, host, "/", "").whole().0, 200);
    let list = json!({ "workspace_id": "web", "action": "list", "guest_port": 0 });
    assert_eq!(owner.ok("port_forward", &list)["public_urls"][0]["guest_port"], 3000);
    house.kill();
    house.start();
    let at = address(&house);
    until_it_listens(&at, host, "");
    assert_eq!(Client::get(&at, host, "/", &cookie).whole().0, 200);
}

/// Large bodies, an answer piece by piece, and an upgrade.
fn passes(_house: &House, owner: &Caller, at: &str, bearer: &str) {
    let body = "0123456789abcdef".repeat(1 << 18);
    let post = format!(
        "POST /up HTTP/1.1\r\nHost: 3000-web.localhost\r\n{bearer}Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (_, _, said) = Client::send(at, &post).whole();
    assert_eq!(said, format!("{} bytes", body.len()));

    let mut events = Client::get(at, "3000-web.localhost", "/events", bearer);
    let (status, _) = events.head();
    assert_eq!(status, 200);
    for n in 0..3 {
        let line =
            json!({ "workspace_id": "web", "command": format!("echo event-{n} >> /tmp/events") });
        owner.ok("exec", &line);
        let mut piece = String::new();
        while !piece.contains(&format!("data: event-{n}\n")) {
            assert!(events.0.read_line(&mut piece).expect("a piece") > 0, "it ended: {piece}");
        }
    }

    let upgrade = format!(
        "GET /ws HTTP/1.1\r\nHost: 3000-web.localhost\r\n{bearer}Connection: Upgrade\r\nUpgrade: echo\r\n\r\n"
    );
    let mut socket = Client::send(at, &upgrade);
    assert_eq!(socket.head().0, 101);
    for text in ["one", "two and more"] {
        socket.0.get_mut().write_all(text.as_bytes()).expect("written");
        let mut echo = vec![0; text.len()];
        socket.0.read_exact(&mut echo).expect("an echo");
        assert_eq!(String::from_utf8_lossy(&echo), text);
    }
}
