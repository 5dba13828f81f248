//! Fuzz target: requests of programs to their gateway.

use hivekeep_ports::GuestHttpRequest;

use super::request::{api_like, key, parse};

/// Reads a request: a line with method and target, lines of headers, a blank one and the body.
///
/// # Panics
/// When one is let through that names no model, or another path than one for answers of models.
pub fn gateway_request(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    let line = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let (method, target) = line.split_once(' ').unwrap_or(("POST", &line));
    let rest = parts.next().unwrap_or_default();
    let blank = rest.windows(2).position(|pair| pair == b"\n\n");
    let (head, body) = blank.map_or((&[][..], rest), |at| (&rest[..at], &rest[at + 2..]));
    let head = String::from_utf8_lossy(head);
    let header = |line: &str| {
        line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()))
    };
    let request = GuestHttpRequest {
        method: method.to_owned(),
        target: target.to_owned(),
        headers: head.lines().filter_map(header).collect(),
        body: body.to_vec().into(),
    };
    match parse(&request) {
        Ok(read) => {
            assert_eq!(request.method, "POST");
            assert!(!read.model.is_empty() && !read.model.chars().any(char::is_control));
            let path = target.split('?').next().unwrap_or_default();
            assert!(read.model.len() <= 128);
            assert!(!path.split('/').any(|part| part == "." || part == ".."));
            assert!(["/v1/", "/v1beta/models/"].iter().any(|root| target.starts_with(root)));
        }
        Err(refusal) => {
            let answer = refusal.answer(api_like(target));
            assert!((400..500).contains(&answer.status));
        }
    }
    assert_eq!(key(&request), key(&request.clone()));
}

#[test]
fn the_corpus_and_its_mutations_are_taken() {
    hivekeep_replay::replay("gateway_request", gateway_request);
}
