//! Waits, and limits of time.

use serde_json::{Value, json};

use super::stage::{Pages, Sent, Stage};

#[tokio::test]
async fn waits_are_for_elements_text_urls_and_the_network() {
    let page = "<p id=first>first</p><script>\
        setTimeout(() => { const p = document.createElement('p'); p.id = 'late'; p.style.display = 'none'; document.body.append(p); }, 200);\
        setTimeout(() => { const p = document.getElementById('late'); p.style.display = ''; p.innerText = 'ready now'; }, 500);\
        setTimeout(() => document.getElementById('first').remove(), 600);\
        setTimeout(() => history.pushState({}, '', '/moved'), 700);\
        for (let i = 0; i < 3; i++) setTimeout(() => fetch('/data' + i), i * 100)</script>";
    let pages = Pages::new(move |path| match path.starts_with("/data") {
        true => Some(Sent(200, "", b"x".to_vec())),
        false => Some(Sent::html(page)),
    })
    .await;
    let stage = Stage::at(&pages.url("/")).await;
    for args in [
        json!({ "selector": "#late", "state": "attached" }),
        json!({ "selector": "#late" }),
        json!({ "selector": "#late", "text": "ready" }),
        json!({ "selector": "", "text": "ready now" }),
        json!({ "selector": "#first", "state": "hidden" }),
        json!({ "selector": "", "url": "/moved" }),
        json!({ "selector": "", "network_idle": true }),
    ] {
        assert_eq!(stage.good("webview_wait", args).await["success"], true);
    }
    assert_eq!(pages.asked().iter().filter(|path| path.starts_with("/data")).count(), 3);
    let never = stage.refused("webview_wait", json!({ "selector": "#never", "timeout": 1 })).await;
    assert_eq!(
        (never.code.as_ref(), &never.details["missing"]),
        ("browser_timed_out", &json!("the element or text"))
    );
    assert_eq!(
        stage.refused("webview_wait", json!({ "selector": "" })).await.code,
        "invalid_input"
    );
    let wrong = stage.refused("webview_wait", json!({ "selector": "a[", "timeout": 1 })).await;
    assert_eq!(wrong.code, "invalid_input");
}

#[tokio::test]
async fn a_wait_goes_on_across_a_navigation() {
    let pages = Pages::some(&[
        ("/", "<script>setTimeout(() => location = '/two', 300)</script>"),
        ("/two", "<h1 id=two>two</h1>"),
    ])
    .await;
    let stage = Stage::at(&pages.url("/")).await;
    stage.good("webview_wait", json!({ "selector": "#two" })).await;
}

#[tokio::test]
async fn a_page_that_hangs_is_stopped_and_goes_on() {
    let pages = Pages::one("<button onclick='while (true) {}'>hang</button>").await;
    let stage = Stage::at(&pages.url("/")).await;
    let hung = |error: hivekeep_kernel::ToolError| {
        assert_eq!(error.code, "browser_page_hung", "{error:?}");
        assert_eq!(error.details["page_answers_again"], true);
    };
    hung(
        stage
            .refused("webview_eval", json!({ "script": "while (true) {}", "timeout_secs": 1 }))
            .await,
    );
    assert_eq!(stage.eval("1 + 1").await, 2);
    hung(stage.refused("webview_click", json!({ "selector": "button", "timeout_secs": 1 })).await);
    assert_eq!(stage.eval("1 + 1").await, 2);
    // A page that hangs by itself is found out by whatever comes next.
    stage.eval("setTimeout(() => { while (true) {} }, 10)").await;
    let args = json!({ "selector": "#x", "timeout": 1 });
    hung(stage.refused("webview_wait", args).await);
    // A call that nobody waits for any more leaves no script running.
    let call = stage.begin("webview_eval", json!({ "script": "while (true) {}" }));
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    call.cancel.cancel();
    assert_eq!(call.answer().await.expect_err("cancelled").code, "cancelled");
    let answer: Value = stage.eval("1 + 1").await;
    assert_eq!(answer, 2);
}
