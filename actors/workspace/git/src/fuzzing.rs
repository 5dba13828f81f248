//! Fuzz targets: output of a guest's git.

use crate::push;
use crate::status;
use crate::url;
use crate::{GitUrl, SecretRedactor};

/// Parses output of git, and an address that a repository names.
pub fn output(bytes: &[u8]) {
    for cut in [false, true] {
        let _ = status::read(bytes, cut);
    }
    let text = String::from_utf8_lossy(bytes);
    for pushed in push::read(&text) {
        let _ = push::is_behind(&pushed);
    }
    if let Ok(parsed) = GitUrl::parse(&text) {
        let _ = (parsed.secret(), parsed.login());
    }
    let _ = url::origin_of(&text);
    let _ = SecretRedactor::default().text(&text);
}

#[test]
fn the_corpus_and_its_mutations_are_taken() {
    hivekeep_replay::replay("git_output", output);
}
