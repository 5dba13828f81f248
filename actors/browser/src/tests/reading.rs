//! Queries, the console, snapshots.

use serde_json::{Value, json};

use super::stage::{Pages, Stage};

/// A button in a shadow root in a frame, beside one of the page.
const NESTED: &str = "<button class=b>outer</button><host-el></host-el>\
    <iframe src=/inner style='border:5px solid;padding:7px'></iframe>\
    <script>customElements.define('host-el', class extends HTMLElement { connectedCallback() {\
      this.attachShadow({ mode: 'open' }).innerHTML = '<button class=b>shadow</button>'; } })</script>";
const INNER: &str = "<body style='margin:0'><button class=b data-x=1>inner</button>";

#[tokio::test]
async fn queries_reach_into_shadow_roots_and_frames() {
    let pages = Pages::some(&[("/", NESTED), ("/inner", INNER)]).await;
    let stage = Stage::at(&pages.url("/")).await;
    let one = stage.good("webview_query", json!({ "selector": ".b" })).await;
    assert_eq!((&one["count"], &one["total"]), (&json!(1), &json!(3)));
    let all = stage.good("webview_query", json!({ "selector": ".b", "all": true })).await;
    let texts: Vec<_> =
        all["elements"].as_array().expect("a list").iter().map(|it| &it["text"]).collect();
    assert_eq!(texts, ["outer", "shadow", "inner"]);
    let inner = &all["elements"][2];
    assert_eq!(
        (&inner["tagName"], &inner["attributes"]["data-x"]),
        (&json!("button"), &json!("1"))
    );
    let frame = stage.good("webview_query", json!({ "selector": "iframe" })).await;
    let at = |it: &Value, key: &str| it["boundingBox"][key].as_f64().expect("a number");
    // The frame's border and padding are around it.
    assert_eq!(at(inner, "x") - at(&frame["elements"][0], "x"), 12.0);
    assert!(inner["nodeId"].as_u64().is_some_and(|node| node > 0), "{inner}");
    let none = stage.good("webview_query", json!({ "selector": "#none", "all": true })).await;
    assert_eq!(none, json!({ "found": false, "count": 0, "elements": [] }));
    let wrong = stage.refused("webview_query", json!({ "selector": "a[" })).await;
    assert_eq!(wrong.code, "invalid_input", "{wrong:?}");
}

#[tokio::test]
async fn the_console_has_levels_exceptions_and_failed_requests_since_a_cursor() {
    let page = "<script>console.log('one', { a: 1 }); console.warn('two'); console.error('three');\
                setTimeout(() => { throw new Error('four') })</script><img src=/missing.png>";
    let pages = Pages::some(&[("/", page)]).await;
    let stage = Stage::at(&pages.url("/")).await;
    stage.good("webview_wait", json!({ "selector": "", "network_idle": true })).await;
    let read = async |args: Value| stage.good("webview_console", args).await;
    let all = read(json!({})).await;
    let rows = all["messages"].as_array().expect("a list").clone();
    let has = |kind: &str, text: &str| {
        let fits = |row: &&Value| {
            row["type"] == kind && row["text"].as_str().is_some_and(|it| it.contains(text))
        };
        assert!(rows.iter().any(|row| fits(&row)), "{kind} {text}: {rows:#?}");
    };
    has("log", "one {a: 1}");
    has("warn", "two");
    has("error", "three");
    has("exception", "Error: four");
    has("network", "/missing.png: status 404");
    let errors = read(json!({ "level": "error" })).await;
    assert!(
        errors["messages"]
            .as_array()
            .is_some_and(|rows| rows.iter().all(|row| row["type"] != "log"))
    );
    let next = all["next"].clone();
    stage.eval("console.info('later')").await;
    let later = read(json!({ "since": next, "clear": true })).await;
    assert_eq!((&later["count"], &later["messages"][0]["text"]), (&json!(1), &json!("later")));
    assert_eq!(read(json!({ "since": later["next"] })).await["count"], 0);
    // What fell out is counted, and one message is bounded.
    stage.eval("for (let i = 0; i < 1500; i++) console.log('x'.repeat(i ? 3 : 9000))").await;
    let flood = read(json!({ "since": later["next"], "limit": 500 })).await;
    assert_eq!((&flood["count"], &flood["dropped"]), (&json!(500), &json!(500)));
}

#[tokio::test]
async fn texts_that_are_cut_within_a_letter_are_read() {
    let pages = Pages::one("<p id=p>x</p><input id=i>").await;
    let stage = Stage::at(&pages.url("/")).await;
    let script = "p.textContent = 'cut \\ud83d here'; document.title = 't\\ud83d'; i.value = 'v\\ud83d'; \
        console.log('c\\ud83d'); console.log('after'); [p.textContent, '\\ud83d' + '\\ude00']";
    assert_eq!(stage.eval(script).await, json!(["cut \u{fffd} here", "\u{1f600}"]));
    assert_eq!(stage.eval("i.value").await, "v\u{fffd}");
    let read = stage.good("webview_snapshot", json!({})).await;
    let outline = read["outline"].as_str().expect("a text");
    assert!(outline.contains("cut \u{fffd} here") && outline.contains("v\u{fffd}"), "{outline}");
    assert_eq!(read["title"], "t\u{fffd}");
    let console = stage.good("webview_console", json!({})).await;
    let rows = console["messages"].as_array().expect("a list");
    let texts: Vec<_> = rows.iter().filter_map(|row| row["text"].as_str()).collect();
    assert!(texts.contains(&"c\u{fffd}") && texts.contains(&"after"), "{texts:?}");
}

#[tokio::test]
async fn a_snapshot_has_references_to_act_on() {
    let page = "<h1>Form</h1><nav><a href=/next>Next page</a></nav>\
        <label>Name <input id=name value=Ann></label><input type=checkbox checked aria-label=Agree>\
        <button disabled>Off</button><div hidden><button>Unseen</button></div>\
        <p>Some <b>bold</b> text</p><iframe src=/inner></iframe>";
    let pages =
        Pages::some(&[("/", page), ("/inner", "<button onclick='parent.done=1'>Inside</button>")])
            .await;
    let stage = Stage::at(&pages.url("/")).await;
    let read = stage.good("webview_snapshot", json!({})).await;
    let outline = read["outline"].as_str().expect("a text");
    for part in [
        "heading \"Form\"",
        "level=1",
        "link \"Next page\"",
        "textbox \"Name\"",
        "value=\"Ann\"",
        "checkbox \"Agree\"",
        "checked=true",
        "button \"Off\"",
        "disabled",
        "button \"Inside\"",
        "bold",
    ] {
        assert!(outline.contains(part), "{part}: {outline}");
    }
    assert!(!outline.contains("Unseen"), "{outline}");
    assert_eq!(read["title"], "Test page");
    let line = outline.lines().find(|line| line.contains("Inside")).expect("a line");
    let reference = line.split(['[', ']']).nth(1).expect("a reference");
    stage.good("webview_click", json!({ "selector": reference })).await;
    assert_eq!(stage.eval("window.done").await, 1);
    // In pieces it is the same.
    let lines = outline.lines().count();
    let rest = stage.good("webview_snapshot", json!({ "from_line": 2 })).await;
    assert_eq!(rest["outline"].as_str().expect("a text").lines().count(), lines - 2);
    // A reference to what is gone is one to nothing.
    stage.go(&pages.url("/")).await;
    let gone = stage.refused("webview_click", json!({ "selector": reference })).await;
    assert_eq!(gone.code, "browser_element_not_found", "{gone:?}");
}
