//! Connecting, loading, running scripts, pictures.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hivekeep_testkit::eventually;
use serde_json::json;

use super::stage::{Pages, Sent, Stage, options};
use crate::Options;

#[tokio::test]
async fn a_session_has_one_browser_until_it_closes_it() {
    let stage = Stage::mounted(options()).await;
    let none = stage.refused("webview_navigate", json!({ "url": "about:blank" })).await;
    assert_eq!(none.code, "browser_not_connected");
    let elsewhere = json!({ "debug_url": "http://127.0.0.1:9222" });
    let denied = stage.refused("webview_connect", elsewhere).await;
    assert_eq!(denied.code, "browser_attach_denied");
    let local = json!({ "debug_url": "local", "timeout": 60 });
    let told = stage.good("webview_connect", local.clone()).await;
    assert!(told["message"].as_str().expect("a text").starts_with("Chrome/"), "{told}");
    let again = stage.good("webview_connect", local).await;
    assert!(again["message"].as_str().expect("a text").contains("already"), "{again}");
    assert_eq!((stage.folders(), stage.pids().len()), (1, 2));
    stage.good("webview_disconnect", json!({})).await;
    assert_eq!((stage.folders(), stage.pids().len()), (0, 0));
    let gone = stage.refused("webview_eval", json!({ "script": "1" })).await;
    assert_eq!(gone.code, "browser_not_connected");
}

#[tokio::test]
async fn a_session_that_is_over_leaves_nothing() {
    let stage = Stage::connected(options()).await;
    stage.end_session();
    eventually("its browser is gone", async || stage.folders() == 0 && stage.pids().is_empty())
        .await;
}

#[tokio::test]
async fn one_user_takes_half_of_the_browsers_and_sessions_share_nothing() {
    let pages = Pages::one("<p>hello").await;
    let stage = Stage::connected(Options { max_browsers: 2, ..options() }).await;
    let patience = std::time::Duration::from_secs(60);
    let other = stage.of_another();
    let local = || json!({ "debug_url": "local", "timeout": 60 });
    let connect = |session| stage.rig.begin_as(session, "webview_connect", local(), patience);
    let more = connect(hivekeep_kernel::SessionId::new()).answer().await.expect_err("half is held");
    assert_eq!((&*more.code, &more.details["share"]), ("busy", &json!("browser.max_browsers")));
    connect(other).answer().await.expect("another user's");
    stage.go(&pages.url("/")).await;
    stage.eval("document.cookie = 'a=b'; localStorage.x = 1").await;
    let asked = |tool, args| stage.rig.begin_as(other, tool, args, patience).answer();
    asked("webview_navigate", json!({ "url": pages.url("/") })).await.expect("loaded");
    let script = json!({ "script": "[document.cookie, localStorage.length]" });
    let theirs = asked("webview_eval", script).await.expect("run");
    assert_eq!(theirs["result"], json!(["", 0]));
    assert_eq!(stage.eval("document.cookie").await, "a=b");
}

#[tokio::test]
async fn pages_are_loaded_and_failures_say_why() {
    let pages = Pages::new(|path| match path {
        "/" => Some(Sent::html("<h1>Hello</h1>")),
        "/from" => Some(Sent(302, "Location: /to\r\n", Vec::new())),
        "/to" => Some(Sent::html("there")),
        "/never" => None,
        "/slow" => Some(Sent::html("<p>text<img src=/never>")),
        _ => Some(Sent(404, "", b"not here".to_vec())),
    })
    .await;
    let stage = Stage::at(&pages.url("/")).await;
    assert_eq!(stage.eval("document.querySelector('h1').innerText").await, "Hello");
    let moved = stage.go(&pages.url("/from")).await;
    assert_eq!((&moved["url"], &moved["status"]), (&json!(pages.url("/to")), &json!(200)));
    assert_eq!(stage.go(&pages.url("/missing")).await["status"], 404);
    assert_eq!(stage.go(&pages.url("/missing#part")).await["success"], true);
    let slow = json!({ "url": pages.url("/slow"), "wait_until": "dom" });
    stage.good("webview_navigate", slow).await;
    assert_eq!(stage.eval("document.querySelector('p').innerText").await, "text");
    let late = json!({ "url": pages.url("/never"), "timeout_secs": 1 });
    assert_eq!(stage.refused("webview_navigate", late).await.code, "browser_timed_out");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = closed.local_addr().expect("bound").port();
    drop(closed);
    let url = format!("http://127.0.0.1:{port}/");
    let failed = stage.refused("webview_navigate", json!({ "url": url })).await;
    assert_eq!(failed.code, "browser_navigation_failed", "{failed:?}");
    assert_eq!(
        stage.refused("webview_navigate", json!({ "url": "no url" })).await.code,
        "browser_url_refused"
    );
    // The browser goes on.
    stage.go(&pages.url("/")).await;
}

#[tokio::test]
async fn scripts_are_awaited_and_their_results_bounded() {
    let pages = Pages::one("<p id=it>text").await;
    let stage = Stage::at(&pages.url("/")).await;
    for (script, result) in [
        ("1 + 1", json!(2)),
        ("undefined", json!(null)),
        (
            "new Promise(done => setTimeout(() => done({ a: [1, 'x'] }), 20))",
            json!({ "a": [1, "x"] }),
        ),
        ("const x = 3; x * 2", json!(6)),
        ("return await Promise.resolve('late')", json!("late")),
        ("new Map([[1, 2]])", json!([[1, 2]])),
        ("10n", json!("10n")),
        ("NaN", json!("NaN")),
        ("document.querySelector('p')", json!("p#it")),
        ("const a = {}; a.a = a; a", json!("TypeError")),
    ] {
        let answer = stage.good("webview_eval", json!({ "script": script })).await;
        let same = match (&answer["result"], &result) {
            (found, wanted) if found.is_string() && wanted == "TypeError" => {
                found.as_str().expect("a text").starts_with("TypeError")
            }
            (found, wanted) => found == wanted,
        };
        assert!(same && answer["success"] == true, "{script}: {answer}");
    }
    let thrown = stage.good("webview_eval", json!({ "script": "throw new Error('no')" })).await;
    assert_eq!(thrown["success"], false);
    assert!(thrown["error"].as_str().expect("a text").contains("Error: no"), "{thrown}");
    for script in ["'ä'.repeat(5000)", "Array(5000).fill('ä')"] {
        let args = json!({ "script": script, "max_bytes": 1024 });
        let cut = stage.good("webview_eval", args).await;
        let text = cut["result"].as_str().expect("a text");
        assert!(cut["truncated"] == true && text.len() <= 1024, "{script}: {}", text.len());
    }
}

/// Width and height of a PNG.
fn size(data: &serde_json::Value) -> (u32, u32) {
    let bytes = STANDARD.decode(data.as_str().expect("base64")).expect("base64");
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four"));
    (number(16), number(20))
}

#[tokio::test]
async fn pictures_are_of_the_window_the_page_or_an_element() {
    let pages = Pages::one(
        "<body style='margin:0'><div style='height:3000px'></div>\
         <div id=box style='width:120px;height:80px;background:red'></div>",
    )
    .await;
    let stage = Stage::at(&pages.url("/")).await;
    let window = stage.good("webview_screenshot", json!({})).await;
    assert_eq!((size(&window["data"]), &window["format"]), ((1280, 800), &json!("png")));
    let whole = stage.good("webview_screenshot", json!({ "full_page": true })).await;
    assert_eq!(size(&whole["data"]), (1280, 3080));
    let one = stage.good("webview_screenshot", json!({ "selector": "#box" })).await;
    assert_eq!(size(&one["data"]), (120, 80));
    for (format, mime) in [("jpeg", "image/jpeg"), ("webp", "image/webp")] {
        let args = json!({ "format": format, "quality": 50 });
        let taken = stage.good("webview_screenshot", args).await;
        let bytes = STANDARD.decode(taken["data"].as_str().expect("base64")).expect("base64");
        assert_eq!((&taken["mime_type"], &taken["bytes"]), (&json!(mime), &json!(bytes.len())));
    }
    let none = stage.refused("webview_screenshot", json!({ "selector": "#none" })).await;
    assert_eq!(none.code, "browser_element_not_found");
}
