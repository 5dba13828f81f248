//! Ends out of order: of Chrome, of a page, of the actor, of the daemon.

use hivekeep_testkit::eventually;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::stage::{Pages, Stage, options};
use crate::Options;

fn kill(stage: &Stage) {
    for pid in stage.pids() {
        let pid = Pid::from_raw(pid).expect("a pid");
        // The one may have taken the other with it.
        let _ = kill_process(pid, Signal::KILL);
    }
}

#[tokio::test]
async fn chrome_killed_at_each_verb_is_told_and_started_again() {
    let pages = Pages::new(|path| match path {
        "/never" => None,
        _ => Some(super::stage::Sent::html("<input id=in><button disabled>x</button>")),
    })
    .await;
    let stage = Stage::at(&pages.url("/")).await;
    let (busy, disabled) = ("new Promise(() => {})", "button");
    let verbs = [
        ("webview_eval", json!({ "script": busy })),
        ("webview_navigate", json!({ "url": pages.url("/never") })),
        ("webview_click", json!({ "selector": disabled, "timeout_secs": 60 })),
        ("webview_wait", json!({ "selector": "#none" })),
    ];
    for (tool, args) in verbs {
        let call = stage.begin(tool, args);
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        kill(&stage);
        let error = call.answer().await.expect_err(tool);
        assert_eq!(error.code, "browser_crashed", "{tool}: {error:?}");
        assert_eq!(error.details["outcome"], "unknown", "{tool}");
        // Whoever heard of it by its own call is not told again; the new one is there.
        stage.go(&pages.url("/")).await;
    }
    assert_eq!(stage.folders(), 1, "what the others had is removed");
}

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
    let pages = Pages::one("<p>page").await;
    let stage = Stage::at(&pages.url("/")).await;
    let eats = "const all = []; while (true) all.push(new Array(1e6).fill(Math.random()))";
    let error = stage.refused("webview_eval", json!({ "script": eats, "timeout_secs": 100 })).await;
    assert!(
        ["browser_page_crashed", "browser_crashed"].contains(&error.code.as_ref()),
        "{error:?}"
    );
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
    // All of its processes but the first, which would not be seen to hang.
    for pid in stage.pids() {
        stop_below(pid);
    }
    let args = json!({ "script": "1", "timeout_secs": 1 });
    let error = stage.refused("webview_eval", args).await;
    assert_eq!(error.code, "browser_crashed", "{error:?}");
    eventually("a new one answers", async || {
        stage.call("webview_eval", json!({ "script": "1" })).await.is_ok_and(|it| it["result"] == 1)
    })
    .await;
}

fn stop_below(pid: i32) {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    for child in children.unwrap_or_default().split_whitespace() {
        let child: i32 = child.parse().expect("a pid");
        let line = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        if !line.starts_with(b"bwrap") {
            // It may have ended.
            let _ = kill_process(Pid::from_raw(child).expect("a pid"), Signal::STOP);
        }
        stop_below(child);
    }
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
