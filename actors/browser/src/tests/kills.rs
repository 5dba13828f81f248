//! Chrome killed in the middle of each verb: told, started again, and nothing of it left.

use std::collections::BTreeSet;

use hivekeep_testkit::eventually;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::stage::{Pages, Stage, options};

fn send(pid: i32, signal: Signal) {
    // It may have ended, or the one before took it with it.
    let _ = kill_process(Pid::from_raw(pid).expect("a pid"), signal);
}

/// Kills the browsers of a stage.
pub(super) fn kill(stage: &Stage) {
    stage.pids().into_iter().for_each(|pid| send(pid, Signal::KILL));
}

/// Has all processes of a browser stand still but bubblewrap's, which would not be seen to hang.
pub(super) fn stop(stage: &Stage) {
    for pid in stage.pids().into_iter().flat_map(below) {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if !line.starts_with(b"bwrap") {
            send(pid, Signal::STOP);
        }
    }
}

/// Processes below one.
fn below(pid: i32) -> Vec<i32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().map(|it| it.parse::<i32>().expect("a pid"));
    children.flat_map(|child| [vec![child], below(child)].concat()).collect()
}

/// Panics if a process of a browser is root of the host.
fn none_is_root(stage: &Stage) {
    for pid in stage.pids().into_iter().flat_map(|pid| [vec![pid], below(pid)].concat()) {
        // Empty of one that has just ended.
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let root = |line: &str| line.starts_with("Uid:") && line.split('\t').any(|id| id == "0");
        assert!(!status.lines().any(root), "{status}");
    }
}

/// Whether a process is there and not only its end, which whoever adopted it may leave unread.
fn runs(pid: &i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Network namespaces that the browsers' processes are in.
fn namespaces(stage: &Stage) -> BTreeSet<String> {
    stage.pids().into_iter().filter_map(namespace).collect()
}

fn namespace(pid: i32) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
    Some(link.to_string_lossy().into_owned())
}

/// Whether a process is in one of the namespaces.
fn any_in(namespaces: &BTreeSet<String>) -> bool {
    let all = std::fs::read_dir("/proc").expect("there").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(namespace).any(|namespace| namespaces.contains(&namespace))
}

/// Sockets of this process: a listener in a namespace keeps that.
fn sockets() -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("there").flatten();
    let links = all.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
}

/// What one Chrome was made of.
struct Remains {
    pids: BTreeSet<i32>,
    namespaces: BTreeSet<String>,
    folders: BTreeSet<std::ffi::OsString>,
}

impl Remains {
    fn of(stage: &Stage) -> Self {
        let (firsts, namespaces) = (stage.pids(), namespaces(stage));
        let pids = firsts.iter().copied().flat_map(below).chain(firsts.clone()).collect();
        Self { pids, namespaces, folders: folders(stage) }
    }

    async fn are_gone(&self, stage: &Stage, verb: &str) {
        eventually(verb, async || {
            !self.pids.iter().any(runs)
                && !any_in(&self.namespaces)
                && folders(stage).is_disjoint(&self.folders)
        })
        .await;
    }
}

fn folders(stage: &Stage) -> BTreeSet<std::ffi::OsString> {
    let folder = stage.rig.daemon.folders.state.join("browsers");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).collect()
}

/// Each verb that asks Chrome for something, so that it is in the middle while Chrome stands still.
fn verbs(url: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("webview_navigate", json!({ "url": url })),
        ("webview_click", json!({ "selector": "button" })),
        ("webview_type", json!({ "selector": "input", "text": "x" })),
        ("webview_query", json!({ "selector": "button" })),
        ("webview_eval", json!({ "script": "1" })),
        ("webview_screenshot", json!({})),
        ("webview_wait", json!({ "selector": "button" })),
        ("webview_snapshot", json!({})),
    ]
}

#[tokio::test]
async fn chrome_killed_at_each_verb_is_told_started_again_and_leaves_nothing() {
    let pages = Pages::one("<input><button>x</button>").await;
    for (tool, args) in verbs(&pages.url("/")) {
        // One each: a browser that ends too often is given up.
        let stage = Stage::at(&pages.url("/")).await;
        none_is_root(&stage);
        let remains = Remains::of(&stage);
        assert!(remains.pids.len() > 2 && remains.namespaces.len() == 1, "{tool}");
        stop(&stage);
        let call = stage.begin(tool, args);
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        kill(&stage);
        let error = call.answer().await.expect_err(tool);
        assert_eq!(error.code, "browser_crashed", "{tool}: {error:?}");
        assert_eq!(error.details["outcome"], "unknown", "{tool}");
        remains.are_gone(&stage, tool).await;
        // Whoever heard of it by its own call is not told again; the new one is there, and empty.
        assert_eq!(stage.eval("location.href").await, "about:blank", "{tool}");
        assert_eq!(stage.folders(), 1, "{tool}");
        let told = stage.events("browser.crashed").await;
        assert_eq!(told.len(), 1, "{tool}");
        stage.good("webview_disconnect", json!({})).await;
    }
}

#[tokio::test]
async fn the_console_of_a_chrome_that_is_killed_is_told_as_it_was_or_as_lost() {
    let pages = Pages::one("<script>console.log('said')</script>").await;
    let stage = Stage::at(&pages.url("/")).await;
    let remains = Remains::of(&stage);
    stop(&stage);
    // It asks Chrome for nothing, and so does not wait for it.
    let read = stage.good("webview_console", json!({})).await;
    assert_eq!(read["messages"][0]["text"], "said", "{read}");
    kill(&stage);
    loop {
        match stage.call("webview_console", json!({})).await {
            Ok(read) => assert_eq!(read["messages"][0]["text"], "said", "never an empty one"),
            Err(error) => {
                assert_eq!(error.code, "browser_state_lost", "{error:?}");
                break;
            }
        }
    }
    remains.are_gone(&stage, "webview_console").await;
    let read = stage.good("webview_console", json!({})).await;
    assert_eq!(read["count"], 0, "the new one's");
}

#[tokio::test]
async fn chrome_killed_while_it_is_connected_or_disconnected_leaves_nothing() {
    let stage = Stage::mounted(options()).await;
    let before = sockets();
    let connect = stage.begin("webview_connect", json!({ "debug_url": "local", "timeout": 60 }));
    while stage.pids().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let remains = Remains::of(&stage);
    kill(&stage);
    let error = connect.answer().await.expect_err("killed over it");
    assert_eq!(error.code, "browser_unavailable", "{error:?}");
    assert!(error.message.contains("its process ended"), "{error:?}");
    remains.are_gone(&stage, "webview_connect").await;
    assert_eq!(stage.folders(), 0);
    eventually("and no listener", async || sockets() == before).await;
    // Another one can be had.
    eventually("it is connected", async || {
        let args = json!({ "debug_url": "local", "timeout": 60 });
        stage.call("webview_connect", args).await.is_ok()
    })
    .await;
    let remains = Remains::of(&stage);
    stop(&stage);
    let disconnect = stage.begin("webview_disconnect", json!({}));
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    kill(&stage);
    assert_eq!(disconnect.answer().await.expect("it is closed")["success"], true);
    assert_eq!((stage.folders(), stage.pids().len()), (0, 0), "an answer means that");
    remains.are_gone(&stage, "webview_disconnect").await;
    eventually("and no listener", async || sockets() == before).await;
    let gone = stage.refused("webview_eval", json!({ "script": "1" })).await;
    assert_eq!(gone.code, "browser_not_connected");
}
