//! Files in both directions: downloads into the session's place, uploads out of it.

use std::sync::atomic::Ordering::SeqCst;

use hivekeep_testkit::eventually;
use serde_json::{Value, json};

use super::stage::{Pages, Sent, Stage, options};
use crate::Options;

const ATTACHED: &str = "Content-Type: application/octet-stream\r\nContent-Disposition: attachment; filename=data.bin\r\n";
const HOSTILE: &str = "Content-Type: application/octet-stream\r\n\
    Content-Disposition: attachment; filename=\"../../../../tmp/evil\\..\\x.txt\"\r\n";
const CLIMBING: &str =
    "<a id=blob download='../../../escaped.txt' href='data:text/plain,mine'>blob</a>";

async fn pages() -> Pages {
    Pages::new(|path| match path {
        "/small" => Some(Sent(200, ATTACHED, vec![7; 1000])),
        "/large" => Some(Sent(200, ATTACHED, vec![7; 2 * 1024 * 1024])),
        "/hostile" => Some(Sent(200, HOSTILE, b"hostile".to_vec())),
        _ => Some(Sent::html(&format!(
            "<a id=small href=/small>small</a> <a id=large href=/large>large</a> {CLIMBING}"
        ))),
    })
    .await
}

/// What answers have told of downloads, by their states.
fn states(answers: &[Value]) -> Vec<&str> {
    let each = answers.iter().flat_map(|answer| answer["downloads"].as_array()).flatten();
    each.filter_map(|seen| seen["state"].as_str()).collect()
}

#[tokio::test]
async fn downloads_are_put_into_the_place_and_told_once() {
    let (pages, stage) = (pages().await, Stage::connected(options()).await);
    stage.go(&pages.url("/")).await;
    let told = stage.go(&pages.url("/small")).await;
    let seen = &told["downloads"][0];
    let saved = json!({
        "name": "data.bin", "url": pages.url("/small"), "state": "saved", "bytes": 1000,
        "place": "work", "path": "downloads/data.bin",
    });
    assert_eq!(seen, &saved, "{told}");
    assert_eq!(stage.place.downloads()["data.bin"], vec![7; 1000]);
    // The next one of the name is another file, and is told by whichever answer comes then.
    let mut answers = vec![stage.good("webview_click", json!({ "selector": "#small" })).await];
    eventually("the second one is saved", async || {
        let script = json!({ "script": "1" });
        answers.push(stage.good("webview_eval", script).await);
        states(&answers).contains(&"saved")
    })
    .await;
    answers.push(stage.good("webview_eval", json!({ "script": "1" })).await);
    assert_eq!(states(&answers).iter().filter(|state| **state == "saved").count(), 1, "once");
    assert_eq!(stage.place.downloads().len(), 2);
    let mut events = Vec::new();
    eventually("events say so", async || {
        events = stage.events("browser.download").await;
        events.len() == 2
    })
    .await;
    let told: Vec<_> = events.iter().map(|it| (&it["state"], &it["path"])).collect();
    let path = |name: &str| json!(format!("downloads/{name}"));
    assert_eq!(told[0], (&json!("saved"), &path("data.bin")));
    assert_eq!(events[0]["session"], json!(stage.rig.session));
    // Nothing is left where Chrome had it.
    let folders = std::fs::read_dir(stage.rig.daemon.folders.state.join("browsers"));
    let folder = folders.expect("there").next().expect("one").expect("an entry").path();
    eventually("Chrome's copies are gone", async || {
        std::fs::read_dir(folder.join("downloads")).expect("there").count() == 0
    })
    .await;
}

#[tokio::test]
async fn no_name_that_a_page_gives_leads_out_of_the_folder() {
    let (pages, stage) = (pages().await, Stage::connected(options()).await);
    stage.go(&pages.url("/hostile")).await;
    stage.go(&pages.url("/")).await;
    stage.good("webview_click", json!({ "selector": "#blob" })).await;
    eventually("both are there", async || stage.place.downloads().len() == 2).await;
    let content: Vec<_> = stage.place.downloads().into_values().collect();
    assert!(content.contains(&b"hostile".to_vec()) && content.contains(&b"mine".to_vec()));
    let outside: Vec<_> = std::fs::read_dir(stage.place.folder.path()).expect("there").collect();
    assert_eq!(outside.len(), 1, "the folder of downloads alone: {outside:?}");
}

#[tokio::test]
async fn downloads_are_bounded_in_size() {
    let pages = pages().await;
    let stage = Stage::connected(Options { download_mb: 1, ..options() }).await;
    stage.go(&pages.url("/")).await;
    let mut answers = vec![stage.good("webview_click", json!({ "selector": "#large" })).await];
    eventually("it is stopped", async || {
        answers.push(stage.good("webview_eval", json!({ "script": "1" })).await);
        states(&answers).contains(&"oversized")
    })
    .await;
    eventually("an event says so", async || {
        stage.events("browser.download").await.iter().any(|it| it["state"] == "oversized")
    })
    .await;
    assert!(stage.place.downloads().is_empty());
}

#[tokio::test]
async fn a_download_that_the_place_refuses_is_told_so() {
    let (pages, stage) = (pages().await, Stage::connected(options()).await);
    stage.place.full.store(true, SeqCst);
    let told = stage.go(&pages.url("/small")).await;
    assert_eq!(told["downloads"][0]["state"], "failed", "{told}");
    let why = told["downloads"][0]["why"].as_str().expect("a reason");
    assert!(why.contains("the place is full"), "{why}");
    eventually("an event says so", async || {
        stage.events("browser.download").await.iter().any(|it| it["state"] == "failed")
    })
    .await;
    let console = stage.good("webview_console", json!({ "level": "error" })).await;
    assert!(console.to_string().contains("data.bin was not saved"), "{console}");
}

#[tokio::test]
async fn a_browser_that_is_closed_saves_what_is_complete() {
    let (pages, stage) = (pages().await, Stage::connected(options()).await);
    stage.go(&pages.url("/")).await;
    stage.eval("for (let i = 0; i < 5; i++) document.getElementById('blob').click()").await;
    eventually("the first is there", async || !stage.place.downloads().is_empty()).await;
    stage.good("webview_disconnect", json!({})).await;
    assert_eq!((stage.folders(), stage.pids().len()), (0, 0));
    let there = stage.place.downloads().len();
    eventually("what is there was told", async || {
        let told = stage.events("browser.download").await;
        told.iter().filter(|it| it["state"] == "saved").count() == there
    })
    .await;
}

#[tokio::test]
async fn uploads_come_from_the_place() {
    let page = "<input id=one type=file><input id=many type=file multiple><input id=text>";
    let (pages, stage) = (Pages::one(page).await, Stage::connected(options()).await);
    stage.go(&pages.url("/")).await;
    let at = |name: &str| stage.place.folder.path().join(name);
    std::fs::create_dir(at("in")).expect("made");
    std::fs::write(at("in/a.bin"), [0, 159, 146, 150]).expect("written");
    std::fs::write(at("b.txt"), "b").expect("written");
    let give = |selector: &str, files: &[&str]| json!({ "selector": selector, "text": "", "files": files });
    stage.good("webview_type", give("#one", &["in/a.bin"])).await;
    stage.good("webview_type", give("#many", &["in/a.bin", "b.txt"])).await;
    let script = "const of = id => [...document.getElementById(id).files]; \
                  return [of('one').map(it => it.name), of('many').map(it => it.name), \
                  [...new Uint8Array(await of('one')[0].arrayBuffer())]]";
    let given = json!([["a.bin"], ["a.bin", "b.txt"], [0, 159, 146, 150]]);
    assert_eq!(stage.eval(script).await, given);
    for (args, code) in [
        (give("#one", &["in/a.bin", "b.txt"]), "browser_upload_refused"),
        (give("#text", &["b.txt"]), "browser_upload_refused"),
        (give("#one", &["in/.."]), "browser_upload_refused"),
        (give("#one", &["none"]), "invalid_input"),
        (json!({ "selector": "#one", "text": "x", "files": ["b.txt"] }), "invalid_input"),
    ] {
        let refused = stage.refused("webview_type", args.clone()).await;
        assert_eq!(refused.code, code, "{args}: {refused:?}");
    }
}
