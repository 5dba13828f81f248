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
        <button id=slides onclick='slides=1' style='position:relative'>Slides</button><div id=host></div>\
        <script>const root = document.getElementById('host').attachShadow({ mode: 'closed' });\
        root.innerHTML = '<div></div><p style=\"position:relative\"><button>Veiled</button>\
            <i style=\"position:absolute;inset:0\">Veil</i></p>';\
        const inner = root.querySelector('div').attachShadow({ mode: 'closed' });\
        inner.innerHTML = '<button>Within</button>';\
        inner.querySelector('button').onclick = event => within = event.isTrusted</script>\
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
    // What a closed shadow root holds is found by its reference alone.
    let outline = stage.good("webview_snapshot", json!({})).await["outline"].clone();
    let reference = |name: &str| reference(outline.as_str().expect("a text"), name);
    click(json!({ "selector": reference("Within") })).await;
    assert_eq!(stage.eval("within").await, true);
    let veiled = refuse(&reference("Veiled")).await;
    assert!(veiled.message.contains("covers it: i \"Veil\""), "{veiled:?}");
    stage.eval("document.getElementById('cover').remove()").await;
    click(json!({ "selector": "#under" })).await;
    assert_eq!(stage.eval("under").await, 1);
}

/// Reference of the button of a name in an outline.
fn reference(outline: &str, name: &str) -> String {
    let line = outline.lines().find(|line| line.contains(&format!("button \"{name}\"")));
    let line = line.unwrap_or_else(|| panic!("{name} in {outline}"));
    line.split(['[', ']']).nth(1).expect("a reference").to_owned()
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
async fn what_was_entered_is_there_or_it_is_told_what_is() {
    let page = "<input id=date type=date><input id=month type=month><input id=week type=week>\
        <input id=time type=time><input id=both type=datetime-local value=2020-01-01T00:00>\
        <textarea id=area></textarea><input id=next><input id=secret type=password maxlength=4>\
        <input id=mail type=email value=a@b><input id=mask oninput='value=value.toUpperCase()'>\
        <div id=rich contenteditable></div><input id=code maxlength=1 oninput='next.focus()'>\
        <select id=list onchange='selectedIndex=0'><option>One<option>Two</select>\
        <input id=gone oninput='value.length == 2 && location.assign(\"/?gone\")'>\
        <script>told = []; for (const name of ['input', 'change'])\
        addEventListener(name, event => told.push(name + ' ' + event.target.id))</script>";
    let pages = Pages::one(page).await;
    let stage = Stage::at(&pages.url("/")).await;
    let write = async |selector: &str, text: &str| {
        stage.call("webview_type", json!({ "selector": selector, "text": text })).await
    };
    let value =
        async |id: &str| stage.eval(&format!("document.getElementById('{id}').value")).await;
    for (id, text, is) in [
        ("date", "2026-11-27", "2026-11-27"),
        ("month", "2026-11", "2026-11"),
        ("week", "2026-W48", "2026-W48"),
        ("time", "10:30", "10:30"),
        ("both", "2026-11-27 10:30:00", "2026-11-27T10:30"),
        ("area", "a\tb\nc", "a\tb\nc"),
        ("next", "x\ty", "x\ty"),
        ("mail", ".org", "a@b.org"),
        ("secret", "1234", "1234"),
    ] {
        write(&format!("#{id}"), text).await.expect("it is there");
        assert_eq!(value(id).await, is, "{id}");
    }
    assert_eq!(stage.eval("told.slice(0, 2)").await, json!(["input date", "change date"]));
    write("#rich", "a\tb c").await.expect("it is there");
    for (selector, text, is) in [
        ("#date", "27.11.2026", json!("2026-11-27")),
        ("#mask", "ab", json!("AB")),
        ("#code", "1z", json!("1")),
        ("#secret", "56", Value::Null),
        ("#list", "Two", json!("One")),
    ] {
        let refused = write(selector, text).await.expect_err("it is not there");
        assert_eq!(
            (refused.code.as_ref(), &refused.details["value"]),
            ("browser_text_differs", &is),
            "{refused:?}"
        );
        assert!(!refused.message.contains("1234"), "{refused:?}");
    }
    assert_eq!(value("date").await, "2026-11-27", "what is not valid is left out");
    write("#gone", "ab").await.expect("a page that goes away took it");
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
    // The page that opened it is drawn again and again though the other came before it.
    for _ in 0..3 {
        stage.good("webview_screenshot", json!({ "keep": false })).await;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
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
