//! Fuzz targets: notes as anybody may write them.

use serde_json::json;

use crate::{front, tags};

/// Reads and edits a note's front matter, and finds its tags.
///
/// # Panics
/// When an edit does not have the requested effect.
pub fn note(bytes: &[u8]) {
    let text = &*String::from_utf8_lossy(bytes);
    let Ok(before) = front::read(text) else { return };
    let _ = front::tags_of(&before);
    if let Ok(edited) = front::set(text, "status", &json!("done: #1")) {
        let after = front::read(&edited).expect("an edit leaves front matter");
        assert_eq!(after.get("status"), Some(&json!("done: #1")));
        assert_eq!(front::body(&edited).1, front::body(text).1);
    }
    if let Ok(Some(without)) = front::delete(text, "tags") {
        assert!(!front::read(&without).expect("an edit leaves front matter").contains_key("tags"));
    }
    if let Ok(Some(tagged)) = front::add_tag(text, "a/b") {
        let after = front::read(&tagged).expect("an edit leaves front matter");
        assert!(front::tags_of(&after).iter().any(|tag| tag == "a/b"));
    }
    let _ = tags::inline(front::body(text).1, &|| false);
}

#[test]
fn the_corpus_and_its_mutations_are_taken() {
    hivekeep_replay::replay("note", note);
}
