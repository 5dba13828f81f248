//! What pages reach: by the operator's rules, whatever they ask for.

use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use super::stage::{Pages, Sent, Stage, options};
use crate::{Options, proxy::HostNames};

async fn code(stage: &Stage, url: &str) -> String {
    stage.refused("webview_navigate", json!({ "url": url })).await.code.into_owned()
}

#[tokio::test]
async fn by_default_no_page_reaches_this_host_or_its_networks() {
    let pages = Pages::one("secret").await;
    let stage = Stage::connected(Options { ports: Vec::new(), ..Options::default() }).await;
    let port = pages.port;
    for (url, expected) in [
        ("file:///etc/passwd", "browser_url_refused"),
        ("chrome://version", "browser_url_refused"),
        ("javascript:alert(1)", "browser_url_refused"),
        ("data:text/html,x", "browser_url_refused"),
        ("http://user:pass@example.com/", "browser_url_refused"),
        ("http://169.254.169.254/latest/meta-data/", "browser_address_refused"),
        ("http://10.0.0.1/", "browser_address_refused"),
        ("http://[::1]/", "browser_address_refused"),
        (&format!("http://127.0.0.1:{port}/"), "browser_address_refused"),
        // Judged when it is resolved, by the proxy.
        (&format!("http://localhost:{port}/"), "browser_address_refused"),
    ] {
        assert_eq!(code(&stage, url).await, expected, "{url}");
    }
    // Scripts have no other way: an empty page asks for everything.
    stage.go("about:blank").await;
    let script = format!(
        "const to = 'http://127.0.0.1:{port}/'; const all = [fetch(to), fetch('http://localhost:{port}/', {{ mode: 'no-cors' }}), \
         new Promise((good, bad) => {{ const s = new WebSocket('ws://127.0.0.1:{port}/'); s.onopen = good; s.onerror = bad; }}), \
         new Promise((good, bad) => {{ const i = new Image(); i.onload = good; i.onerror = bad; i.src = to; }})]; \
         return (await Promise.allSettled(all)).map(it => it.status)"
    );
    assert_eq!(stage.eval(&script).await, json!(["rejected", "rejected", "rejected", "rejected"]));
    assert_eq!(pages.asked(), [""; 0], "nothing came");
    // WebRTC has no network to ask, either.
    let script = "const c = new RTCPeerConnection({ iceServers: [{ urls: 'stun:127.0.0.1:3478' }] }); \
                  c.createDataChannel('x'); await c.setLocalDescription(); \
                  await new Promise(done => { c.onicegatheringstatechange = () => c.iceGatheringState === 'complete' && done(); setTimeout(done, 3000) }); \
                  return c.localDescription.sdp.match(/ srflx | (?:\\d+\\.){3}\\d+ \\d+ typ/g)";
    assert_eq!(stage.eval(script).await, Value::Null);
}

#[tokio::test]
async fn rules_hold_for_redirects_and_what_pages_load() {
    let inside = Pages::one("secret").await;
    let port = inside.port;
    let pages = Pages::new(move |path| match path {
        "/away" => Some(Sent(302, "Location: http://169.254.169.254/\r\n", Vec::new())),
        "/inside" => {
            let location = format!("Location: http://localhost:{port}/\r\n");
            Some(Sent(302, Box::leak(location.into_boxed_str()), Vec::new()))
        }
        _ => Some(Sent::html(&format!("<img src=http://localhost:{port}/x.png><p>page"))),
    })
    .await;
    let own = Options {
        allow_networks: vec!["127.0.0.1".to_owned()],
        deny_domains: vec!["localhost".to_owned()],
        ..options()
    };
    let stage = Stage::connected(own).await;
    stage.go(&pages.url("/")).await;
    assert_eq!(code(&stage, &pages.url("/away")).await, "browser_address_refused");
    assert_eq!(code(&stage, &pages.url("/inside")).await, "browser_target_denied");
    let console = stage.good("webview_console", json!({ "level": "error" })).await;
    let text = console.to_string();
    assert!(text.contains("the operator's rules do not let sessions reach `localhost`"), "{text}");
    assert_eq!(inside.asked(), [""; 0]);
    let narrow = Options { ports: vec![1], ..options() };
    let stage = Stage::connected(narrow).await;
    assert_eq!(code(&stage, &pages.url("/")).await, "browser_target_denied");
    let narrow = Options { allow_domains: vec!["example.org".to_owned()], ..options() };
    let stage = Stage::connected(narrow).await;
    assert_eq!(code(&stage, &pages.url("/")).await, "browser_target_denied");
}

#[tokio::test]
async fn a_page_sees_nothing_of_the_host() {
    let pages = Pages::one("<iframe src='file:///etc/passwd'></iframe><p>page").await;
    let stage = Stage::at(&pages.url("/")).await;
    let opened =
        stage.eval("const w = window.open('file:///etc/hostname'); w && w.location.href").await;
    assert!(opened.is_null() || opened == "about:blank" || opened == "", "{opened}");
    let console = stage.good("webview_console", json!({})).await.to_string();
    assert!(console.contains("Not allowed to load local resource"), "{console}");
}

/// Resolver whose answers change; the last one stays.
struct Rebinding(Mutex<VecDeque<Vec<IpAddr>>>);

impl Rebinding {
    fn of(answers: &[&[&str]]) -> Arc<Self> {
        let parse = |all: &&[&str]| all.iter().map(|it| it.parse().expect("an address")).collect();
        Arc::new(Self(Mutex::new(answers.iter().map(parse).collect())))
    }
}

impl HostNames for Rebinding {
    fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        assert_eq!(host, "rebinds.example");
        let mut answers = self.0.lock().expect("no panic");
        let now = match answers.len() {
            1 => answers[0].clone(),
            _ => answers.pop_front().expect("one is left"),
        };
        Ok(now.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }
}

#[tokio::test]
async fn a_name_that_changes_its_address_leads_nowhere_else() {
    let secret = Pages::one("secret").await;
    let port = secret.port;
    // The same port, so that the page's own origin is what it asks for.
    let good = Pages::at(&format!("127.0.0.2:{port}"), |_| Some(Sent::html("<p>good"))).await;
    for inside in ["127.0.0.1", "169.254.169.254", "10.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0"]
    {
        let names = Rebinding::of(&[&["127.0.0.2"], &[inside]]);
        let rules = Options { allow_networks: vec!["127.0.0.2".to_owned()], ..options() };
        let stage = Stage::with_names(rules, names).await;
        stage.connect().await;
        let url = format!("http://rebinds.example:{port}/");
        assert_eq!(stage.go(&url).await["status"], 200, "{inside}");
        let script = "return (await fetch('/secret').then(it => it.text(), it => 'refused'))";
        assert_eq!(stage.eval(script).await, "refused", "{inside}");
        assert_eq!(code(&stage, &url).await, "browser_address_refused", "{inside}");
        stage.good("webview_disconnect", json!({})).await;
    }
    assert_eq!(secret.asked(), [""; 0], "nothing came");
    assert!(good.asked().len() >= 6);
}

#[tokio::test]
async fn of_several_addresses_only_those_that_are_allowed_are_reached() {
    let secret = Pages::one("secret").await;
    let port = secret.port;
    let good = Pages::at(&format!("127.0.0.2:{port}"), |_| Some(Sent::html("<p>good"))).await;
    let names = Rebinding::of(&[&["127.0.0.1", "169.254.169.254", "127.0.0.2", "10.0.0.1"]]);
    let rules = Options { allow_networks: vec!["127.0.0.2".to_owned()], ..options() };
    let stage = Stage::with_names(rules, names).await;
    stage.connect().await;
    stage.go(&format!("http://rebinds.example:{port}/")).await;
    assert_eq!(stage.eval("document.querySelector('p').innerText").await, "good");
    assert_eq!(secret.asked(), [""; 0]);
    assert!(!good.asked().is_empty());
}
