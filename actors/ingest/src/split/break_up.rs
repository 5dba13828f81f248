//! Breaking up of a block that is too long for a passage: at sentences or lines, else between words, else
//! between characters.

use std::ops::Range;

use super::Block;

/// Ranges of a block, none longer than `bytes` unless one character is.
pub(super) fn units(text: &str, block: &Block, bytes: usize) -> Vec<Range<usize>> {
    let Range { mut start, end } = block.range.clone();
    let mut units = Vec::new();
    while end - start > bytes {
        let cut = start + cut(&text[start..end], bytes, block.verbatim);
        units.push(start..cut);
        start = cut;
    }
    units.push(start..end);
    units
}

/// Where to cut a text that is longer than `bytes`. More than 0.
fn cut(text: &str, bytes: usize, verbatim: bool) -> usize {
    let most = match text.floor_char_boundary(bytes) {
        0 => text.ceil_char_boundary(1),
        most => most,
    };
    let part = &text[..most];
    let line = || part.rfind('\n').map(|at| at + 1);
    let sentence = || {
        let ends = [". ", "? ", "! ", ".\n", "?\n", "!\n"];
        ends.iter().filter_map(|end| part.rfind(end)).max().map(|at| at + 2)
    };
    let word = || {
        let (at, space) = part.char_indices().rev().find(|(_, letter)| letter.is_whitespace())?;
        Some(at + space.len_utf8())
    };
    let found = if verbatim { line() } else { sentence().or_else(line) };
    // Not after a few words of many.
    found.filter(|at| *at >= most / 4).or_else(word).filter(|at| *at > 0).unwrap_or(most)
}
