//! Bounds: bodies, heads, time, places.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use serde_json::json;

use super::{Api, bearer, head};
use crate::home::{PATIENCE, wait_until};

fn connect(api: &Api) -> TcpStream {
    let stream = TcpStream::connect(&api.address).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

fn start(api: &Api, rest: &str) -> TcpStream {
    let mut stream = connect(api);
    let auth = bearer(&api.operator);
    let begin = format!(
        "POST /api/tools/search HTTP/1.1\r\nHost: {}\r\nAuthorization: {auth}\r\n{rest}",
        api.address
    );
    stream.write_all(begin.as_bytes()).expect("writes");
    stream
}

#[test]
fn a_body_that_is_too_large_or_too_slow_or_has_too_many_values_is_refused() {
    let api = Api::with(&[
        ("HIVEKEEP_HTTP__API__MAX_BODY_MB", "1"),
        ("HIVEKEEP_HTTP__BODY_TIMEOUT_SECS", "1"),
    ]);
    let large = json!({ "query": "x".repeat((1 << 20) + 1) });
    assert!(api.post(&api.operator, "/api/tools/search", &large).plain(413).contains("bytes"));
    let chunk = "x".repeat((1 << 20) + 1);
    let mut chunked = start(&api, "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
    let _refused = write!(chunked, "{:x}\r\n{chunk}\r\n0\r\n\r\n", chunk.len());
    assert_eq!(head(chunked).0, 413, "also in chunks");
    let many = format!(r#"{{"query":"a","more":[{}0]}}"#, "0,".repeat(200_000));
    let auth = bearer(&api.operator);
    let many = api.raw("POST", "/api/tools/search", &[("Authorization", &auth)], Some(&many));
    many.plain(413);
    let slow = start(&api, "Content-Length: 100\r\nConnection: close\r\n\r\n{");
    assert_eq!(head(slow).0, 408);
}

#[test]
fn a_head_that_is_too_large_or_too_slow_ends_its_connection() {
    let api = Api::with(&[
        ("HIVEKEEP_HTTP__MAX_HEADER_KB", "8"),
        ("HIVEKEEP_HTTP__HEADER_TIMEOUT_SECS", "1"),
    ]);
    let large = start(&api, &format!("X-Large: {}\r\n\r\n", "x".repeat(16 * 1024)));
    assert_eq!(head(large).0, 431);
    let many: String = (0..100).map(|nth| format!("X-{nth}: 1\r\n")).collect();
    assert_eq!(head(start(&api, &format!("{many}\r\n"))).0, 431);
    for begun in ["", "GET /api/hea"] {
        let mut stream = connect(&api);
        stream.write_all(begun.as_bytes()).expect("writes");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap_or_else(|error| panic!("{begun:?}: {error}"));
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"), "{begun:?}: it is closed");
    }
}

#[test]
fn there_are_so_many_places_and_no_more() {
    let api = Api::with(&[
        ("HIVEKEEP_HTTP__API__MAX_STREAMS", "4"),
        ("HIVEKEEP_HTTP__API__MAX_REQUESTS", "4"),
        ("HIVEKEEP_HTTP__MAX_CONNECTIONS", "8"),
    ]);
    let stream_of = |token: &str| {
        let auth = bearer(token);
        api.begin("GET", "/api/events?from=1", &[("Authorization", &auth)], None)
    };
    let stream = || stream_of(&api.operator);
    let mut streams = vec![stream(), stream()];
    assert!(streams.iter().all(|(status, ..)| *status == 200));
    assert_eq!(stream().0, 503, "one stream more than half");
    streams.push(stream_of(&api.reader));
    assert_eq!(streams[2].0, 200, "another credential has its own");
    // Streams take no place of other requests.
    api.get(&api.operator, "/api/tools/vault").of(200);
    let slow: Vec<_> = (0..2).map(|_| start(&api, "Content-Length: 10\r\n\r\n{")).collect();
    wait_until("the places are taken", || {
        let answer = api.get(&api.operator, "/api/tools/vault");
        answer.status == 503 && answer.headers["retry-after"] == "1"
    });
    api.get(&api.session, "/api/tools/vault").of(200);
    assert_eq!(api.raw("GET", "/api/health", &[], None).status, 200, "nobody's are their own");
    drop(slow);
    drop(streams.swap_remove(0));
    wait_until("there is room again", || api.get(&api.operator, "/api/tools/vault").status == 200);
    wait_until("and for a stream", || stream().0 == 200);
}

/// The one place for connections is free again although its client neither reads nor leaves.
#[test]
fn a_client_that_does_not_read_its_answers_loses_its_connection() {
    let api = Api::with(&[
        ("HIVEKEEP_HTTP__MAX_CONNECTIONS", "1"),
        ("HIVEKEEP_HTTP__WRITE_TIMEOUT_SECS", "1"),
    ]);
    let mut deaf = connect(&api);
    let ask = format!("GET /api/openapi.json HTTP/1.1\r\nHost: {}\r\n\r\n", api.address);
    // More than fits between the two, and none of it is read.
    let _stalled = deaf.set_write_timeout(Some(std::time::Duration::from_secs(1)));
    for _ in 0..500 {
        if deaf.write_all(ask.as_bytes()).is_err() {
            break;
        }
    }
    assert_eq!(api.raw("GET", "/api/health", &[], None).of(200)["status"], "ok");
    drop(deaf);
}
