//! Servers and pages that mean harm.

use std::time::Duration;

use serde_json::json;

use super::{
    contents::gzipped,
    server::{Reply, Server, no_rules, ok, reply},
    stage::{Stage, options},
};
use crate::document;

const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn a_body_is_read_up_to_its_limit() {
    let server = Server::new(no_rules(|asked| match asked.path.as_str() {
        "/endless" => Reply::Endless(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n".to_vec(),
            vec![b'x'; 64 * 1024],
            Duration::ZERO,
        ),
        "/announced" => {
            let headers = [("content-type", "text/plain"), ("content-length", "99999999999")];
            reply("200 OK", &headers, "x")
        }
        "/bomb" => gzipped(vec![0x20; 64 * MIB]),
        "/short" => {
            let headers = [("content-type", "text/plain"), ("content-length", "1000")];
            reply("200 OK", &headers, "x")
        }
        _ => ok("text/plain", vec![b'x'; MIB]),
    }))
    .await;
    let stage = Stage::new(&options());
    for path in ["/endless", "/announced", "/bomb"] {
        assert_eq!(stage.refused(&server.url(path)).await, "web_too_large", "{path}");
    }
    assert_eq!(stage.refused(&server.url("/short")).await, "web_unreachable");
    assert_eq!(stage.good(&server.url("/whole")).await.size_bytes, MIB);
}

#[tokio::test]
async fn a_slow_server_is_left_in_time() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n".to_vec();
    let drop_by_drop =
        move || Reply::Endless(head.clone(), b"x".to_vec(), Duration::from_millis(50));
    let body = Server::new(no_rules(move |_| drop_by_drop())).await;
    let head = || Reply::Endless(b"HTTP/1.1 200".to_vec(), Vec::new(), Duration::from_secs(1));
    let heads = Server::new(no_rules(move |_| head())).await;
    let rules = Server::new(move |_, _| head()).await;
    let stage = Stage::new(&options());
    for server in [body, heads, rules] {
        let args = json!({ "url": server.url("/"), "timeout_secs": 1 });
        let error = stage.fetch_with(args).await.expect_err("too slow");
        assert_eq!((&*error.code, error.retryable), ("web_timed_out", true));
    }
}

#[tokio::test]
async fn headers_without_an_end_are_not_collected() {
    let more = b"x-more: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n".repeat(100);
    let endless =
        move || Reply::Endless(b"HTTP/1.1 200 OK\r\n".to_vec(), more.clone(), Duration::ZERO);
    let server = Server::new(no_rules(move |_| endless())).await;
    assert_eq!(Stage::new(&options()).refused(&server.url("/")).await, "web_unreachable");
}

/// Pages that grow, or nest without an end, while they are parsed.
fn monsters() -> Vec<(&'static str, String)> {
    let bold = |n: usize| format!("<b id={n}>");
    vec![
        ("nested", "<div>".repeat(200_000)),
        ("nested lists", "<ul><li>".repeat(100_000)),
        ("nested tables", "<table><tr><td>".repeat(50_000)),
        ("foster parents", "<table><div>".repeat(110_000)),
        ("formatting", (0..100_000).map(bold).collect()),
        ("repeated formatting", {
            let open: String = (0..200).map(bold).collect();
            format!("<p>{open}{}", "<p>x".repeat(100_000))
        }),
        ("closed formatting", (0..20_000).map(|n| format!("<p><b id={n}></p>")).collect()),
        ("many", "<i></i>".repeat(210_000)),
        ("deep lines", format!("{}<pre>{}", "<blockquote>".repeat(200), "\n".repeat(400_000))),
    ]
}

#[test]
fn a_page_that_grows_is_refused() {
    for (name, page) in monsters() {
        let refused = document::readable(&page, "http://a.test/").err();
        assert_eq!(refused.expect(name).code, "web_page_refused", "{name}");
    }
}

#[test]
fn a_page_at_the_budget_is_converted() {
    let text = "Words of a paragraph that is long enough to be one of an article. ".repeat(5);
    for (open, close) in
        [("<div>", "</div>"), ("<ul><li>", "</li></ul>"), ("<blockquote>", "</blockquote>")]
    {
        let depth = 240 / open.matches('<').count();
        let page = format!("{}<p>{text}</p>{}", open.repeat(depth), close.repeat(depth));
        let article = document::readable(&page, "http://a.test/").expect(open);
        assert!(article.markdown.contains("Words of a paragraph"), "{open}");
    }
    let many = format!("<p>{text}</p>").repeat(4000);
    assert!(
        document::readable(&many, "http://a.test/").expect("many").markdown.len() > many.len() / 2
    );
}

#[tokio::test]
async fn a_page_that_is_refused_can_be_had_as_html() {
    let page = "<div>".repeat(10_000);
    let sent = page.clone();
    let server = Server::new(no_rules(move |_| ok("text/html", &sent))).await;
    let stage = Stage::new(&options());
    assert_eq!(stage.refused(&server.url("/")).await, "web_page_refused");
    let args = json!({ "url": server.url("/"), "to_markdown": false, "max_bytes": 65536 });
    assert_eq!(stage.fetch_with(args).await.expect("fetched").content, page);
}
