//! Ends out of order: of Chrome, of a page, of the actor, of the daemon.

use hivekeep_testkit::eventually;
use serde_json::{Value, json};

use super::{
    kills::{kill, stop},
    stage::{Pages, Stage, options},
};
use crate::Options;

#[tokio::test]
async fn calls_after_an_end_are_told_once_what_is_lost() {
    let pages = Pages::one("<button>x</button>").await;
    let stage = Stage::at(&pages.url("/")).await;
    for (tool, args) in [
        ("webview_snapshot", json!({})),
        ("webview_query", json!({ "selector": "button" })),
        ("webview_screenshot", json!({})),
        ("webview_type", json!({ "selector": "input", "text": "x" })),
    ] {
        let before = stage.pids();
        kill(&stage);
        eventually("a new one is there", async || {
            let now = stage.pids();
            now.len() == 2 && now != before
        })
        .await;
        let error = stage.refused(tool, args).await;
        assert_eq!(error.code, "browser_state_lost", "{tool}: {error:?}");
        assert_eq!(stage.eval("location.href").await, "about:blank");
    }
    kill(&stage);
    eventually("it was ended too often", async || {
        stage.call("webview_eval", json!({ "script": "1" })).await.is_ok_and(|it| it["result"] == 1)
            || stage.pids().is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_page_that_takes_too_much_memory_ends_and_the_browser_goes_on() {
    let eats = "<script>const all = []; while (true) all.push(new Array(1e6).fill(Math.random()))</script>";
    let pages = Pages::some(&[("/", "<p>page"), ("/eats", eats)]).await;
    let stage = Stage::at(&pages.url("/")).await;
    let eats = json!({ "url": pages.url("/eats"), "timeout_secs": 100 });
    let error = stage.refused("webview_navigate", eats).await;
    assert!(
        ["browser_page_crashed", "browser_crashed"].contains(&error.code.as_ref()),
        "{error:?}"
    );
    let kind = error.code.replacen('_', ".", 1);
    eventually("an event says so", async || stage.events(&kind).await.len() == 1).await;
    if error.code == "browser_page_crashed" {
        let again = stage.refused("webview_eval", json!({ "script": "1" })).await;
        assert_eq!(again.code, "browser_page_crashed");
    }
    stage.go(&pages.url("/")).await;
    assert_eq!(stage.eval("document.querySelector('p').innerText").await, "page");
}

#[tokio::test]
async fn a_browser_that_takes_too_much_memory_is_ended() {
    let pages = Pages::one("<p>page").await;
    let stage = Stage::connected(Options { memory_mb: 700, ..options() }).await;
    stage.go(&pages.url("/")).await;
    // Beside the heap of scripts, in several pages: no one of them takes too much.
    let eats = "window.all = []; setInterval(() => { const a = new Uint8Array(30e6); a.fill(7); all.push(a) }, 50); 1";
    let mut ended = Value::Null;
    for _ in 0..3 {
        let open = json!({ "url": pages.url("/"), "tab": "new" });
        let opened = stage.call("webview_navigate", open).await;
        let begun = match opened {
            Ok(_) => stage.call("webview_eval", json!({ "script": eats })).await,
            Err(error) => Err(error),
        };
        if let Err(error) = begun {
            ended = json!(error);
            break;
        }
    }
    if ended.is_null() {
        let wait = json!({ "script": "new Promise(() => {})", "timeout_secs": 60 });
        ended = json!(stage.refused("webview_eval", wait).await);
    }
    let code = ended["code"].as_str().expect("a code");
    assert!(
        ["browser_crashed", "browser_state_lost", "browser_page_crashed"].contains(&code),
        "{ended}"
    );
}

#[tokio::test]
async fn a_browser_that_hangs_is_ended() {
    let stage = Stage::connected(options()).await;
    stop(&stage);
    let args = json!({ "script": "1", "timeout_secs": 1 });
    let error = stage.refused("webview_eval", args).await;
    assert_eq!(error.code, "browser_crashed", "{error:?}");
    eventually("a new one answers", async || {
        stage.call("webview_eval", json!({ "script": "1" })).await.is_ok_and(|it| it["result"] == 1)
    })
    .await;
}

#[tokio::test]
async fn an_actor_that_ends_takes_its_chrome_with_it_and_a_daemon_leaves_nothing() {
    let pages = Pages::one("<p>page").await;
    let stage = Stage::at(&pages.url("/")).await;
    let before = stage.pids();
    stage.rig.kill_grandchildren();
    eventually("another Chrome is there", async || {
        let now = stage.pids();
        now.len() == 2 && now.iter().all(|pid| !before.contains(pid)) && stage.folders() == 1
    })
    .await;
    let lost = stage.refused("webview_eval", json!({ "script": "1" })).await;
    assert_eq!(lost.code, "browser_state_lost");
    let stray = stage.rig.daemon.folders.state.join("browsers/of-a-daemon-that-was-killed");
    std::fs::create_dir_all(stray.join("profile")).expect("a folder");
    let Stage { rig, .. } = stage;
    let rig = rig.crashed().await;
    eventually("nothing is left", async || {
        let folder = rig.daemon.folders.state.join("browsers");
        std::fs::read_dir(folder).map_or(0, Iterator::count) == 0
    })
    .await;
}
