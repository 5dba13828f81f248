//! Events, applied.

use serde_json::{Value, json};

use super::{downloads::DownloadState, *};

fn state() -> BrowserState {
    let mut state =
        BrowserState { context: "C".to_owned(), download_bytes: 100, ..BrowserState::default() };
    let tab = |name: &str| Tab {
        target: name.to_owned(),
        session: format!("s{name}"),
        frame: format!("f{name}"),
        ..Tab::default()
    };
    state.add(tab("1"));
    state
}

fn apply(state: &mut BrowserState, method: &str, params: Value) -> Option<BrowserEffect> {
    state.apply(method, Some("s1"), &params, &|_| None)
}

#[test]
fn only_pages_that_our_pages_opened_are_attached_to() {
    let mut state = state();
    let created = |kind: &str, context: &str, opener: Option<&str>, id: &str| {
        json!({ "targetInfo": {
            "targetId": id, "type": kind, "browserContextId": context, "openerId": opener, "url": "u",
        } })
    };
    let mut seen = |params| apply(&mut state, "Target.targetCreated", params);
    assert_eq!(
        seen(created("page", "C", Some("1"), "2")),
        Some(BrowserEffect::Attach("2".to_owned()))
    );
    for (kind, context, opener, id) in [
        ("page", "D", Some("1"), "3"),
        ("page", "C", None, "4"),
        ("worker", "C", Some("1"), "5"),
        ("page", "C", Some("1"), "1"),
    ] {
        assert_eq!(seen(created(kind, context, opener, id)), None, "{kind} {context} {id}");
    }
    while state.tabs.len() < MAX_TABS {
        let target = format!("t{}", state.tabs.len());
        state.add(Tab { target, ..Tab::default() });
    }
    let more = apply(&mut state, "Target.targetCreated", created("page", "C", Some("1"), "9"));
    assert_eq!(more, Some(BrowserEffect::CloseTarget("9".to_owned())));
}

#[test]
fn a_document_is_loaded_by_its_own_events_and_its_requests_are_counted() {
    let mut state = state();
    let life =
        |name: &str, loader: &str| json!({ "frameId": "f1", "loaderId": loader, "name": name });
    apply(&mut state, "Page.lifecycleEvent", life("load", "A"));
    apply(&mut state, "Page.lifecycleEvent", life("load", "A"));
    assert_eq!(state.tabs[0].loaded, ["load"], "a page may say so without an end");
    let long = format!("http://a/{}", "x".repeat(100_000));
    apply(&mut state, "Page.navigatedWithinDocument", json!({ "frameId": "f1", "url": long }));
    assert!(state.tabs[0].url.len() <= 2_048);
    apply(&mut state, "Page.lifecycleEvent", life("init", "B"));
    assert_eq!(state.tabs[0].loaded, [""; 0], "another document");
    let asked = |id: &str| json!({ "requestId": id, "type": "Fetch", "request": { "method": "GET", "url": "http://a/" } });
    for id in ["1", "2"] {
        apply(&mut state, "Network.requestWillBeSent", asked(id));
    }
    apply(
        &mut state,
        "Network.requestWillBeSent",
        json!({ "requestId": "3", "type": "EventSource", "request": {} }),
    );
    assert_eq!(state.tabs[0].busy(), 2);
    apply(&mut state, "Network.loadingFinished", json!({ "requestId": "1" }));
    apply(&mut state, "Network.loadingFailed", json!({ "requestId": "2", "errorText": "net::X" }));
    assert_eq!(state.tabs[0].busy(), 0);
    let (rows, _) = state.console.since(0);
    assert_eq!(rows.map(|row| row.text.as_str()).collect::<Vec<_>>(), ["GET http://a/: net::X"]);
}

#[test]
fn what_is_told_of_a_process_that_was_is_not_held_against_the_next() {
    let mut state = state();
    let ended = json!({ "targetId": "1", "status": "crashed" });
    let told = apply(&mut state, "Target.targetCrashed", ended.clone());
    assert!(matches!(told, Some(BrowserEffect::TellPage(end)) if end.crashed.is_some()));
    assert_eq!(apply(&mut state, "Inspector.targetCrashed", json!({})), None, "told once");
    assert_eq!(state.tabs[0].crashed.as_deref(), Some("crashed"));
    state.revive();
    apply(&mut state, "Inspector.targetCrashed", json!({}));
    assert_eq!(state.tabs[0].crashed, None, "the same end, told twice");
    let frame = json!({ "frame": { "id": "f1", "loaderId": "B", "url": "http://a/" } });
    apply(&mut state, "Page.frameNavigated", frame);
    apply(&mut state, "Target.targetCrashed", ended);
    assert_eq!(state.tabs[0].crashed.as_deref(), Some("crashed"), "the next one");
}

#[test]
fn a_download_beyond_its_bound_is_cancelled_once() {
    let mut state = state();
    let mark = state.mark();
    apply(
        &mut state,
        "Browser.downloadWillBegin",
        json!({ "guid": "g", "url": "u", "suggestedFilename": "n" }),
    );
    let progress = |bytes: u64, word: &str| json!({ "guid": "g", "receivedBytes": bytes, "totalBytes": 0, "state": word });
    assert_eq!(apply(&mut state, "Browser.downloadProgress", progress(100, "inProgress")), None);
    let cancelled = apply(&mut state, "Browser.downloadProgress", progress(101, "inProgress"));
    assert_eq!(cancelled, Some(BrowserEffect::CancelDownload("g".to_owned())));
    assert_eq!(apply(&mut state, "Browser.downloadProgress", progress(102, "inProgress")), None);
    apply(&mut state, "Browser.downloadProgress", progress(102, "canceled"));
    let told = state.tell(mark).downloads;
    let states: Vec<_> = told.iter().map(|it| it.state).collect();
    assert_eq!(states, [DownloadState::Oversized]);
}

#[test]
fn downloads_are_bounded_in_number_and_named_by_plain_ids() {
    let mut state = state();
    let begin = |state: &mut BrowserState, guid: &str| {
        let begun = json!({ "guid": guid, "url": "u", "suggestedFilename": "n" });
        apply(state, "Browser.downloadWillBegin", begun)
    };
    for guid in ["../x", "/etc/passwd", "", "a b", &"x".repeat(65)] {
        assert_eq!(begin(&mut state, guid), None);
    }
    assert!(state.downloads.is_empty());
    for number in 0..downloads::MAX_DOWNLOADS {
        assert_eq!(begin(&mut state, &format!("g{number}")), None);
    }
    let more = begin(&mut state, "more");
    assert_eq!(more, Some(BrowserEffect::CancelDownload("more".to_owned())));
    let (rows, _) = state.console.since(0);
    assert!(rows.last().is_some_and(|row| row.text.contains("as many as may")));
}

#[test]
fn what_happens_between_calls_is_told_by_the_next_answer_and_once() {
    let mut state = state();
    let dialog = || json!({ "type": "alert", "message": "hi" });
    apply(&mut state, "Page.javascriptDialogOpening", dialog());
    let mark = state.mark();
    let completed =
        json!({ "guid": "g", "receivedBytes": 3, "totalBytes": 3, "state": "completed" });
    let begun = json!({ "guid": "g", "url": "u", "suggestedFilename": "n" });
    apply(&mut state, "Browser.downloadWillBegin", begun);
    let effect = apply(&mut state, "Browser.downloadProgress", completed);
    assert_eq!(effect, Some(BrowserEffect::SaveDownload("g".to_owned())));
    let told = state.tell(mark);
    assert_eq!((told.dialogs.len(), told.downloads[0].state), (1, DownloadState::Saving));
    let mark = state.mark();
    assert_eq!(state.tell(mark), Happened::default(), "once");
    assert!(!state.downloads_are_over());
    state.download_saved("g", Err("no room".to_owned()));
    let told = state.tell(mark);
    assert_eq!(told.downloads[0].why.as_deref(), Some("no room"));
    assert!(state.downloads_are_over());
}

#[test]
fn nothing_that_chrome_says_breaks_it() {
    let mut state = state();
    for method in [
        "Page.frameNavigated",
        "Page.lifecycleEvent",
        "Network.loadingFailed",
        "Target.targetCreated",
        "Runtime.consoleAPICalled",
        "Runtime.exceptionThrown",
        "Log.entryAdded",
        "Browser.downloadProgress",
        "Browser.downloadWillBegin",
        "Page.javascriptDialogOpening",
        "Fetch.x",
        "none",
    ] {
        for params in [
            json!({}),
            json!([]),
            json!(null),
            json!({ "frame": 1, "args": "x", "targetInfo": [] }),
        ] {
            apply(&mut state, method, params);
        }
    }
    assert_eq!(state.tabs.len(), 1);
}
