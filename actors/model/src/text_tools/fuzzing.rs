//! Fuzz target: calls in the text of an answer.

use super::decoder::{self, FENCE, MOST_CALLS};

/// Reads an answer in both forms.
///
/// # Panics
/// When a call that was read is not the same once it is written again.
pub fn tool_text(bytes: &[u8]) {
    let answer = String::from_utf8_lossy(bytes);
    for cut in [false, true] {
        let (text, calls) = decoder::text(&answer, cut);
        assert!(calls.len() <= MOST_CALLS && text.len() <= answer.len() + 4 * calls.len());
        if !answer.contains(FENCE) {
            assert_eq!((text.as_str(), calls.len()), (answer.trim_end(), 0));
        }
        let (_, one) = decoder::json(&answer, cut);
        for call in calls.iter().chain(&one).filter(|call| call.arguments.is_object()) {
            let again = serde_json::json!({ "tool": call.name, "arguments": call.arguments });
            let (rest, read) = decoder::text(&format!("```{FENCE}\n{again:#}\n```"), cut);
            assert!(rest.is_empty());
            assert_eq!((&read[0].name, &read[0].arguments), (&call.name, &call.arguments));
            assert_eq!(decoder::json(&again.to_string(), cut).1.len(), 1);
        }
    }
}

#[test]
fn the_corpus_and_its_mutations_are_taken() {
    hivekeep_replay::replay("tool_text", tool_text);
}
