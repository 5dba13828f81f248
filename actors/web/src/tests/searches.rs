//! Providers of searches, good and bad days of each.

use std::io::Write;

use serde_json::json;

use super::{
    server::{Reply, Server, ok, reply},
    stage::{Stage, options},
};
use crate::{
    Options, ProviderKind,
    ProviderKind::{Brave, Duckduckgo, Searxng},
    ProviderOptions,
    tools::WebResults,
};

/// Results, an advertisement among them, and a query that names the marks of a challenge.
const DUCK_RESULTS: &str = r##"<html><head><title>anomaly-modal challenge-form</title></head><body>
<input value="id=challenge-form class=anomaly-modal no-results">
<div class="result result--ad"><a class="result__a" href="https://duckduckgo.com/y.js?ad_domain=shop.test">Buy</a>
<a class="result__snippet" href="#">cheap</a></div>
<div class="result"><h2><a rel="nofollow" class="result__a"
 href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fone.test%2Fa%3Fb%3Dc%26d&amp;rut=0">The <b>first</b> one</a></h2>
<a class="result__snippet" href="#">About   <b>tides</b> &amp; winds</a></div>
<div class="result"><a class="result__a" href="https://two.test/">Second</a></div>
<div class="result"><a class="result__a" href="javascript:alert(1)">Bad</a></div></body></html>"##;
const DUCK_NOTHING: &str = r#"<div class="no-results">Nothing was found for it.</div>"#;
const DUCK_CHALLENGE: &str = r#"<form id="challenge-form" action="//duckduckgo.com/anomaly.js">
<div class="anomaly-modal__title">Pick all the ducks</div></form>"#;

async fn saying(status: &'static str, body: &'static str) -> Server {
    Server::new(move |_, _| reply(status, &[("content-type", "text/html")], body)).await
}

async fn ask(kind: ProviderKind, server: &Server) -> Result<WebResults, (String, String)> {
    let stage = Stage::searching(&[(kind, &server.url("/"))]);
    let asked = stage.search(json!({ "query": "tides & winds" })).await;
    asked.map_err(|error| (error.code.into_owned(), error.message))
}

async fn code(kind: ProviderKind, status: &'static str, body: &'static str) -> String {
    let asked = ask(kind, &saying(status, body).await).await;
    asked.map(|found| format!("{} results", found.results.len())).unwrap_or_else(|error| error.0)
}

#[tokio::test]
async fn searxng_is_asked_for_json() {
    let server = Server::new(|asked, _| {
        assert_eq!(asked.path, "/search?q=tides+%26+winds&format=json");
        ok(
            "application/json",
            r#"{"results": [{"url": "https://one.test/", "title": "One", "content": "first"},
            {"url": "ftp://x", "title": "no page"}, null, {"url": 1}, {"title": "no URL"}, {"url": "https://two.test/", "title": null, "content": null}]}"#,
        )
    })
    .await;
    let found = ask(Searxng, &server).await.expect("found");
    assert_eq!((found.provider, found.query.as_str()), ("searxng", "tides & winds"));
    let rows: Vec<_> =
        found.results.iter().map(|hit| (&*hit.title, &*hit.url, &*hit.snippet)).collect();
    assert_eq!(rows, [("One", "https://one.test/", "first"), ("", "https://two.test/", "")]);
    assert_eq!(found.left_out, 4);
}

#[tokio::test]
async fn nothing_found_is_told_apart_from_nothing_said() {
    assert_eq!(code(Searxng, "200 OK", r#"{"results": []}"#).await, "0 results");
    let silent = r#"{"results": [], "unresponsive_engines": [["google", "CAPTCHA"]]}"#;
    assert_eq!(code(Searxng, "200 OK", silent).await, "search_blocked");
    assert_eq!(code(Searxng, "200 OK", "<html>").await, "search_failed");
    assert_eq!(code(Searxng, "403 Forbidden", "").await, "search_failed");
    assert_eq!(code(Duckduckgo, "200 OK", DUCK_NOTHING).await, "0 results");
    assert_eq!(code(Duckduckgo, "202 Accepted", DUCK_CHALLENGE).await, "search_blocked");
    assert_eq!(code(Duckduckgo, "200 OK", DUCK_CHALLENGE).await, "search_blocked");
    assert_eq!(code(Duckduckgo, "202 Accepted", "").await, "search_blocked");
    assert_eq!(code(Duckduckgo, "200 OK", "<p>A new layout</p>").await, "search_failed");
    assert_eq!(code(Duckduckgo, "302 Found", "").await, "search_failed");
}

#[tokio::test]
async fn duckduckgos_page_is_read() {
    let server = Server::new(|asked, _| {
        assert_eq!((asked.path.as_str(), asked.body.as_str()), ("/", "q=tides+%26+winds"));
        ok("text/html", DUCK_RESULTS)
    })
    .await;
    let found = ask(Duckduckgo, &server).await.expect("found");
    let rows: Vec<_> =
        found.results.iter().map(|hit| (&*hit.title, &*hit.url, &*hit.snippet)).collect();
    let first = ("The first one", "https://one.test/a?b=c&d", "About tides & winds");
    assert_eq!(rows, [first, ("Second", "https://two.test/", "")]);
}

#[tokio::test]
async fn brave_is_asked_with_a_key_that_is_seen_nowhere_else() {
    const KEY: &str = "brave-key-5f1c9a";
    let server = Server::new(|asked, before| match before {
        0 => {
            assert!(asked.head.contains(&format!("x-subscription-token: {KEY}")), "{}", asked.head);
            assert!(asked.path.contains("count=7"), "{}", asked.path);
            let body = r#"{"web": {"results": [{"url": "https://one.test/", "title": "It&#x27;s one",
                "description": "the <strong>first</strong>"}]}}"#;
            ok("application/json", body)
        }
        1 => ok("application/json", r#"{"query": {}}"#),
        _ => reply("401 Unauthorized", &[], KEY),
    })
    .await;
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    writeln!(file, "{KEY}").expect("written");
    let provider = ProviderOptions {
        kind: Brave,
        url: Some(server.url("/res")),
        key_file: Some(file.path().to_owned()),
        key_env: None,
    };
    let stage = Stage::new(&Options { providers: vec![provider.clone()], ..options() });
    let found = stage.search(json!({ "query": "x", "max_results": 7 })).await.expect("found");
    let hit = &found.results[0];
    assert_eq!((hit.title.as_str(), hit.snippet.as_str()), ("It's one", "the first"));
    let nothing = stage.search(json!({ "query": "x" })).await.expect("an answer");
    assert!(nothing.results.is_empty());
    let refused = stage.search(json!({ "query": "x" })).await.expect_err("401");
    assert_eq!(refused.code, "search_failed");
    assert!(!format!("{refused:?}{found:?}{provider:?}").contains(KEY));
    file.as_file().set_len(0).expect("emptied");
    let unkeyed = stage.search(json!({ "query": "x" })).await.expect_err("no key");
    assert_eq!(unkeyed.code, "search_not_configured");
    assert!(unkeyed.message.contains(&file.path().display().to_string()), "{unkeyed}");
}

#[tokio::test]
async fn failures_are_repeated_by_their_kind() {
    const FOUND: &str = r#"{"results": [{"url": "https://one.test/", "title": "One"}]}"#;
    for (statuses, asked_times, code) in [
        (["503 No", "200 OK", ""], 2, None),
        (["429 No", "500 No", "200 OK"], 3, None),
        (["500 No", "500 No", "500 No"], 3, Some("search_failed")),
        (["429 No", "429 No", "429 No"], 3, Some("search_blocked")),
        (["400 No", "200 OK", ""], 1, Some("search_failed")),
        (["hang up", "200 OK", ""], 2, None),
    ] {
        let server = Server::new(move |_, before| match statuses[before] {
            "hang up" => Reply::Bytes(Vec::new()),
            status => reply(status, &[("retry-after", "0")], FOUND),
        })
        .await;
        let asked = ask(Searxng, &server).await.err().map(|error| error.0);
        assert_eq!((asked.as_deref(), server.asked().len()), (code, asked_times), "{statuses:?}");
    }
}

#[tokio::test]
async fn the_next_provider_is_asked_when_one_does_not_answer() {
    let blocked = saying("202 Accepted", DUCK_CHALLENGE).await;
    let good =
        saying("200 OK", r#"{"results": [{"url": "https://one.test/", "title": "One"}]}"#).await;
    let stage = Stage::searching(&[(Duckduckgo, &blocked.url("/")), (Searxng, &good.url("/"))]);
    let found = stage.search(json!({ "query": "x" })).await.expect("found");
    assert_eq!((found.provider, found.results.len()), ("searxng", 1));
    assert_eq!((found.failed[0].provider, found.failed[0].code), ("duckduckgo", "search_blocked"));
    let stage = Stage::searching(&[(Duckduckgo, &blocked.url("/"))]);
    let error = stage.search(json!({ "query": "x" })).await.expect_err("blocked");
    assert_eq!((&*error.code, error.retryable), ("search_blocked", true));
}

#[tokio::test]
async fn a_search_ends_in_its_time() {
    let silent = Server::new(|_, _| {
        Reply::Endless(b"HTTP/1.1 2".to_vec(), Vec::new(), std::time::Duration::from_secs(1))
    })
    .await;
    let provider = ProviderOptions {
        kind: Searxng,
        url: Some(silent.url("/")),
        key_file: None,
        key_env: None,
    };
    let providers = vec![provider.clone(), provider];
    let stage = Stage::new(&Options { providers, search_timeout_secs: 1, ..options() });
    let error = stage.search(json!({ "query": "x" })).await.expect_err("silent");
    assert_eq!(error.code, "web_timed_out");
}

#[tokio::test]
async fn results_are_bounded_in_number_and_size() {
    let server = Server::new(|_, _| {
        let row = json!({ "url": "https://one.test/", "title": "t ".repeat(5000), "content": "s".repeat(5000) });
        ok("application/json", json!({ "results": vec![row; 100] }).to_string())
    })
    .await;
    let stage = Stage::searching(&[(Searxng, &server.url("/"))]);
    let found = stage.search(json!({ "query": "x", "max_results": 3 })).await.expect("found");
    assert_eq!(found.results.len(), 3);
    assert!(found.results[0].title.len() <= 300 && found.results[0].snippet.len() == 1000);
    let found = stage.search(json!({ "query": "x" })).await.expect("found");
    assert_eq!(found.results.len(), 10);
}
