//! Requests that others wrote down, to a server of the test's own.

use std::{collections::BTreeMap, time::Duration};

use hivekeep_kernel::ToolError;
use hivekeep_ports::{OutboundAnswer, OutboundRequest, OutboundRequests};

use super::{
    server::{Reply, Server},
    stage::{Stage, options},
};
use crate::Options;

async fn send(
    stage: &Stage,
    url: String,
    headers: &[(&str, &str)],
) -> Result<OutboundAnswer, ToolError> {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let request = OutboundRequest {
        method: "PUT".to_owned(),
        url,
        headers: headers.collect::<BTreeMap<_, _>>(),
        key: "key-1".to_owned(),
        body: "{\"a\": 1}".to_owned(),
        timeout: Duration::from_secs(20),
        most_bytes: 3,
    };
    stage.web.send(request).await
}

fn says(status: &str, more: &str) -> Reply {
    Reply::Bytes(format!("HTTP/1.1 {status}\r\n{more}content-length: 5\r\n\r\ntaken").into_bytes())
}

#[tokio::test]
async fn a_request_is_sent_with_its_key_and_a_failure_says_whether_it_may_pass() {
    let server = Server::new(|asked, _| match asked.path.as_str() {
        "/good" => says("202 Accepted", ""),
        "/away" => says("302 Found", "location: /good\r\n"),
        "/busy" => says("503 Busy", ""),
        _ => says("410 Gone", ""),
    })
    .await;
    let stage = Stage::new(&options());
    let good = send(&stage, server.url("/good"), &[("X-Team", "core")]).await.expect("taken");
    assert_eq!((good.status, good.body.as_str()), (202, "tak"), "as much as is asked for");
    assert_eq!(good.headers.get("content-length").map(String::as_str), Some("5"));
    let head = server.heads().remove(0).to_lowercase();
    for line in
        ["put /good", "idempotency-key: key-1", "content-type: application/json", "x-team: core"]
    {
        assert!(head.contains(line), "{line}: {head}");
    }
    for (path, passes) in [("/away", false), ("/busy", true), ("/gone", false)] {
        let failed = send(&stage, server.url(path), &[]).await.expect_err(path);
        assert_eq!((&*failed.code, failed.retryable), ("web_status_failed", passes), "{path}");
    }
    for header in ["Host", "Idempotency-Key", "a b"] {
        let refused = send(&stage, server.url("/good"), &[(header, "x")]).await.expect_err(header);
        assert_eq!(refused.code, "web_url_refused", "{header}");
    }
    assert_eq!(server.asked().len(), 4);
}

#[tokio::test]
async fn a_request_reaches_only_what_the_operator_lets_be_fetched() {
    let server = Server::new(|_, _| says("200 OK", "")).await;
    let strict = Options { allow_networks: Vec::new(), ..options() };
    let named = Stage::with_names(&strict, &[("hook.example", &["127.0.0.1"])]);
    for url in [
        server.url("/"),
        server.named("hook.example", "/"),
        "http://10.0.0.1/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "http://u:p@a.example/".to_owned(),
    ] {
        let refused = send(&named, url.clone(), &[]).await.expect_err(&url);
        assert!(
            ["web_address_refused", "web_url_refused"].contains(&&*refused.code),
            "{url}: {refused}"
        );
        assert!(!refused.retryable, "{url}");
    }
    assert!(server.asked().is_empty());
}
