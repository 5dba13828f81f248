//! Structural splitter: text into passages of bounded size that end where its structure does.
//!
//! ```text
//! text ─▶ blocks (paragraphs, fences, headings) ─▶ units, none too long ─▶ passages, packed greedily
//! ```
//! Everything is a range of the text, so no character is torn and none is lost: the passages without their
//! overlaps, laid end to end, are the text. A passage has one section; a heading stays with what it heads.

mod blocks;

use std::ops::Range;

pub(crate) use blocks::TextForm;
use blocks::{Block, blocks};

/// Size of passages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PassageSize {
    /// Bytes of a passage without its overlap; headings alone may double it.
    pub(crate) bytes: usize,
    /// Characters of the passage before that are repeated, cut to whole words.
    pub(crate) overlap_chars: usize,
}

/// Passage as a range of its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Passage {
    /// With the overlap.
    pub(crate) shown: Range<usize>,
    /// Without it.
    pub(crate) own: Range<usize>,
    /// Headings above it, or the definition that it is of.
    pub(crate) section: String,
    /// Line that its own part begins at, from 1.
    pub(crate) line: u32,
}

/// Passage that is being packed.
struct Packed {
    own: Range<usize>,
    section: usize,
    /// Nothing but headings so far.
    bare: bool,
}

/// Splits a text. What is only white space is in no passage.
pub(crate) fn split(text: &str, form: TextForm, size: PassageSize) -> Vec<Passage> {
    let (blocks, sections) = blocks(text, form);
    let mut packed: Vec<Packed> = Vec::new();
    for block in &blocks {
        for unit in units(text, block, size.bytes) {
            pack(text, &mut packed, block, unit, size.bytes);
        }
    }
    let (mut passages, mut line, mut counted) = (Vec::<Passage>::new(), 1, 0);
    for (at, Packed { own, section, .. }) in packed.iter().enumerate() {
        let begin = own.start + leading_space(&text[own.clone()]);
        line += text[counted..begin].bytes().filter(|byte| *byte == b'\n').count();
        counted = begin;
        if text[own.clone()].trim().is_empty() {
            continue;
        }
        let before = at.checked_sub(1).map(|at| &packed[at]).filter(|it| it.section == *section);
        let start =
            before.map_or(own.start, |it| overlap(text, it.own.clone(), size.overlap_chars));
        passages.push(Passage {
            shown: start..own.end,
            own: own.clone(),
            section: sections[*section].clone(),
            line: u32::try_from(line).unwrap_or(u32::MAX),
        });
    }
    passages
}

/// Ranges of a block, none longer than `bytes` unless one character is: cut at sentences or lines, else between
/// words, else between characters.
fn units(text: &str, block: &Block, bytes: usize) -> Vec<Range<usize>> {
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

fn pack(text: &str, packed: &mut Vec<Packed>, block: &Block, unit: Range<usize>, bytes: usize) {
    let bare = block.heading || text[unit.clone()].trim().is_empty();
    if let Some(last) = packed.last_mut() {
        let length = unit.end - last.own.start;
        let joins = match last.bare {
            true => length <= 2 * bytes,
            false => last.section == block.section && length <= bytes,
        };
        if joins {
            last.own.end = unit.end;
            last.section = block.section;
            last.bare &= bare;
            return;
        }
    }
    packed.push(Packed { own: unit, section: block.section, bare });
}

/// Where the last characters of a passage begin, at a word.
fn overlap(text: &str, before: Range<usize>, chars: usize) -> usize {
    let part = &text[before.clone()];
    let Some((at, _)) = part.char_indices().rev().take(chars).last() else { return before.end };
    if at == 0 {
        return before.start;
    }
    // In the middle of a word it begins at the next one.
    let tail = &part[at..];
    let word = match part[..at].ends_with(char::is_whitespace) {
        true => 0,
        false => tail.find(char::is_whitespace).unwrap_or(tail.len()),
    };
    before.start + at + word
}

fn leading_space(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

#[cfg(test)]
mod tests;
