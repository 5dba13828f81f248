//! Clicks, typing, dialogs, pages that pages open, files in both directions.

use hivekeep_testkit::eventually;
use serde_json::{Value, json};

use super::stage::{Pages, Stage};

#[tokio::test]
async fn clicks_are_a_persons() {
    let page = "<body style='height:4000px'><div style='height:2500px'></div>\
        <button id=far onclick='far=event.isTrusted'>Far</button>\
        <button id=twice ondblclick='twice=1'>Twice</button>\
        <button id=menu oncontextmenu='menu=1'>Menu</button>\
        <button id=late disabled onclick='late=1'>Late</button>\
        <button id=off disabled>Off</button><button id=unseen style='visibility:hidden'>Unseen</button>\
        <div style='position:relative'><button id=under onclick='under=1'>Under</button>\
        <div id=cover class='veil x' style='position:absolute;inset:0'>Wait</div></div>\
        <label for=box>Label</label><input id=box type=checkbox>\
        <button id=slides onclick='slides=1' style='position:relative'>Slides</button>\
        <script>setTimeout(() => document.getElementById('late').disabled = false, 300);\
        document.getElementById('slides').animate([{ left: '0px' }, { left: '300px' }], { duration: 700, fill: 'forwards' })</script>";
    let pages = Pages::one(page).await;
    let stage = Stage::at(&pages.url("/")).await;
    let click = async |args: Value| stage.good("webview_click", args).await;
    click(json!({ "selector": "#slides" })).await;
    click(json!({ "selector": "#far" })).await;
    click(json!({ "selector": "#twice", "double": true })).await;
    click(json!({ "selector": "#menu", "button": "right" })).await;
    click(json!({ "selector": "#late" })).await;
    click(json!({ "selector": "label" })).await;
    let done = "[far, twice, menu, late, slides, document.getElementById('box').checked]";
    assert_eq!(stage.eval(done).await, json!([true, 1, 1, 1, 1, true]));
    let refuse = async |selector: &str| {
        let args = json!({ "selector": selector, "timeout_secs": 1 });
        stage.refused("webview_click", args).await
    };
    let covered = refuse("#under").await;
    assert_eq!(covered.code, "browser_element_not_ready");
    assert!(covered.message.contains("div#cover.veil.x \"Wait\""), "{covered:?}");
    for (selector, why) in [("#off", "disabled"), ("#unseen", "hidden")] {
        let refused = refuse(selector).await;
        assert_eq!(
            (refused.code.as_ref(), &refused.details["why"]),
            ("browser_element_not_ready", &json!(why))
        );
    }
    assert_eq!(refuse("#none").await.code, "browser_element_not_found");
    stage.eval("document.getElementById('cover').remove()").await;
    click(json!({ "selector": "#under" })).await;
    assert_eq!(stage.eval("under").await, 1);
}

#[tokio::test]
async fn text_is_typed_by_keys() {
    let page = "<form onsubmit='sent=document.getElementById(\"name\").value; return false'>\
        <input id=name value=old onkeydown='keys=(window.keys||0)+1'><textarea id=area></textarea>\
        <select id=list><option value=1>One<option value=2>Two</select></form>\
        <div id=rich contenteditable>rich</div><input id=fixed readonly><p id=plain>p</p>\
        <input id=file type=file style='display:none'><input type=number id=number>";
    let pages = Pages::one(page).await;
    let stage = Stage::at(&pages.url("/")).await;
    let write = async |args: Value| stage.good("webview_type", args).await;
    write(json!({ "selector": "#name", "text": "er" })).await;
    assert_eq!(
        stage.eval("[document.getElementById('name').value, keys]").await,
        json!(["older", 2])
    );
    let text = "Zoë (1) 日本 x";
    write(json!({ "selector": "#name", "text": text, "clear": true, "submit": true })).await;
    assert_eq!(stage.eval("sent").await, text);
    write(json!({ "selector": "#area", "text": "a\nb" })).await;
    write(json!({ "selector": "#list", "text": "Two" })).await;
    write(json!({ "selector": "#rich", "text": "new", "clear": true })).await;
    write(json!({ "selector": "#number", "text": "42" })).await;
    write(json!({ "selector": "#file", "text": "content", "file_name": "a.csv" })).await;
    let script = "[...['area', 'list', 'number'].map(id => document.getElementById(id).value), \
                  document.getElementById('rich').innerText, document.getElementById('file').files[0].name, \
                  await document.getElementById('file').files[0].text()]";
    assert_eq!(
        stage.eval(&format!("return {script}")).await,
        json!(["a\nb", "2", "42", "new", "a.csv", "content"])
    );
    for (selector, args, why) in [
        ("#fixed", json!({ "text": "x" }), "readonly"),
        ("#plain", json!({ "text": "x" }), "text"),
        ("#list", json!({ "text": "Three" }), "option"),
    ] {
        let mut args = args;
        args["selector"] = selector.into();
        args["timeout_secs"] = 1.into();
        let refused = stage.refused("webview_type", args).await;
        assert_eq!(refused.details["why"], why, "{refused:?}");
    }
    let outside = json!({ "selector": "#file", "text": "x", "file_name": "../x" });
    assert_eq!(stage.refused("webview_type", outside).await.code, "invalid_input");
}

#[tokio::test]
async fn dialogs_are_answered_and_told() {
    let page = "<button onclick='answer=[confirm(\"Sure?\"), prompt(\"Name?\", \"x\")]'>Ask</button>\
                <script>addEventListener('beforeunload', event => event.preventDefault())</script>";
    let pages = Pages::one(page).await;
    let stage = Stage::at(&pages.url("/")).await;
    let clicked = stage.good("webview_click", json!({ "selector": "button" })).await;
    let told = json!([
        { "kind": "confirm", "message": "Sure?", "accepted": false },
        { "kind": "prompt", "message": "Name?", "accepted": false },
    ]);
    assert_eq!(clicked["dialogs"], told);
    assert_eq!(stage.eval("answer").await, json!([false, null]));
    // A page has no say in whether it is left.
    let left = stage.go(&pages.url("/?left")).await;
    assert_eq!(left["dialogs"][0]["kind"], "beforeunload", "{left}");
    stage.good("webview_disconnect", json!({})).await;
    let accepting =
        json!({ "debug_url": "local", "timeout": 60, "dialogs": "accept", "prompt_text": "Ann" });
    stage.good("webview_connect", accepting).await;
    stage.go(&pages.url("/")).await;
    stage.good("webview_click", json!({ "selector": "button" })).await;
    assert_eq!(stage.eval("answer").await, json!([true, "Ann"]));
    let evaluated = stage.good("webview_eval", json!({ "script": "alert('hi'); 1" })).await;
    assert_eq!(
        (&evaluated["result"], &evaluated["dialogs"][0]["kind"]),
        (&json!(1), &json!("alert"))
    );
}

#[tokio::test]
async fn pages_that_pages_open_are_pages_of_the_session() {
    let pages =
        Pages::some(&[("/", "<a target=_blank href=/two>open</a>"), ("/two", "<h1>Two</h1>")])
            .await;
    let stage = Stage::at(&pages.url("/")).await;
    stage.good("webview_click", json!({ "selector": "a" })).await;
    let mut tabs = Value::Null;
    eventually("the page is there", async || {
        tabs = stage.good("webview_snapshot", json!({})).await["tabs"].clone();
        tabs[1]["url"] == pages.url("/two")
    })
    .await;
    assert_eq!((&tabs[0]["active"], &tabs[1]["active"]), (&json!(true), &json!(false)));
    let other = stage.good("webview_snapshot", json!({ "tab": tabs[1]["tab"] })).await;
    assert!(other["outline"].as_str().expect("a text").contains("heading \"Two\""), "{other}");
    assert_eq!(stage.eval("document.querySelector('h1').innerText").await, "Two");
    stage.eval("setTimeout(() => window.close(), 10)").await;
    eventually("calls are about the first again", async || {
        // One that runs while the page goes is told so.
        let read = stage.call("webview_snapshot", json!({})).await.unwrap_or_default();
        read["url"] == pages.url("/") && read["tabs"].is_null()
    })
    .await;
    let args = json!({ "url": pages.url("/two"), "tab": "new" });
    let new = stage.good("webview_navigate", args).await;
    assert_eq!(new["tabs"].as_array().map(Vec::len), Some(2), "{new}");
    let unknown = stage.refused("webview_snapshot", json!({ "tab": "none" })).await;
    assert_eq!(unknown.code, "browser_element_not_found");
    // A page that opens pages without an end is held back.
    stage.eval("for (let i = 0; i < 30; i++) window.open('/two')").await;
    eventually("the rest was closed", async || {
        let read = stage.good("webview_console", json!({ "level": "error" })).await;
        read["messages"].as_array().is_some_and(|rows| {
            rows.iter()
                .any(|row| row["text"].as_str().is_some_and(|it| it.contains("a page was closed")))
        })
    })
    .await;
}
