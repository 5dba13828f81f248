//! Fuzz target: lines of an editor, or of a program.

use super::frames::{AcpFrame, MAX_FRAME_BYTES};

/// Reads each line.
///
/// # Panics
/// When a frame is read that is written as another, or an answer to a broken one is none.
pub fn frames(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| line.len() <= MAX_FRAME_BYTES) {
        let frame = AcpFrame::read(line).unwrap_or_else(|refused| *refused);
        let again = AcpFrame::read(frame.line().trim_ascii_end()).expect("our own");
        assert_eq!(again, frame);
    }
}

#[test]
fn the_corpus_and_its_mutations_are_taken() {
    hivekeep_replay::replay("acp_frames", frames);
}

#[test]
fn a_line_that_is_no_frame_is_answered_with_its_id() {
    let refused = |line: &str| match AcpFrame::read(line.as_bytes()) {
        Err(answer) => String::from_utf8(answer.line()).expect("JSON"),
        Ok(frame) => panic!("{frame:?}"),
    };
    let cases = [
        ("{", "null", "-32700"),
        ("[]", "null", "-32600"),
        (r#"{"jsonrpc":"1.0","id":7,"method":"m"}"#, "7", "-32600"),
        (r#"{"jsonrpc":"2.0","id":"a"}"#, "\"a\"", "-32600"),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#, "null", "-32600"),
        (r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":""}}"#, "1", "-32600"),
    ];
    for (line, id, code) in cases {
        let answer = refused(line);
        assert!(answer.contains(&format!("\"id\":{id},\"error\":{{\"code\":{code},")), "{answer}");
    }
    let null = r#"{"jsonrpc":"2.0","id":1,"result":null}"#;
    assert!(
        matches!(AcpFrame::read(null.as_bytes()), Ok(AcpFrame::Response(_))),
        "an empty answer"
    );
}
