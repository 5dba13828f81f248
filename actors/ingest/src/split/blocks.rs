//! Blocks of a text: paragraphs, fences and headings of Markdown, or what blank lines divide in code, each with
//! the section that it is in. They follow each other without a gap.

use std::{ops::Range, sync::LazyLock};

use regex::Regex;

/// Longest name of a section.
const SECTION_CHARS: usize = 160;

/// Structure of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextForm {
    Markdown,
    Code,
    Plain,
}

/// Part of a text that belongs together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) range: Range<usize>,
    /// Index of its section.
    pub(super) section: usize,
    pub(super) heading: bool,
    /// Whether the block is cut at ends of lines rather than of sentences.
    pub(super) verbatim: bool,
}

/// Begin of an unindented definition, in common languages.
static DEFINITION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"^(?:export |default |public |private |protected |internal |static |abstract |final |async |unsafe |const |extern |pub(?:\([^)]*\))? )*(?:fn|struct|enum|union|trait|impl|mod|macro_rules!|type|class|interface|record|def|function|func|namespace|package|object|module|sub|create table|const [A-Z]|var [A-Z])\b",
    )
    .expect("it is valid")
});

/// Blocks in order, and the names of their sections.
pub(super) fn blocks(text: &str, form: TextForm) -> (Vec<Block>, Vec<String>) {
    let mut scan = Scan {
        blocks: Vec::new(),
        sections: vec![String::new()],
        headings: Vec::new(),
        begin: 0,
        fence: None,
        verbatim: form == TextForm::Code,
    };
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        match form {
            TextForm::Markdown => scan.markdown(line, at),
            TextForm::Code | TextForm::Plain => {}
        }
        at += line.len();
        if scan.fence.is_none() && line.trim().is_empty() {
            scan.close(at, false);
        }
    }
    scan.close(at, false);
    if form == TextForm::Code {
        scan.definitions(text);
    }
    (scan.blocks, scan.sections)
}

struct Scan {
    blocks: Vec<Block>,
    sections: Vec<String>,
    /// Headings above this place: level and title.
    headings: Vec<(usize, String)>,
    /// Where the open block begins.
    begin: usize,
    /// Letter and length of an open fence.
    fence: Option<(char, usize)>,
    verbatim: bool,
}

impl Scan {
    fn close(&mut self, end: usize, heading: bool) {
        if end > self.begin {
            let (section, verbatim) = (self.sections.len() - 1, self.verbatim);
            self.blocks.push(Block { range: self.begin..end, section, heading, verbatim });
            self.begin = end;
        }
    }

    fn markdown(&mut self, line: &str, at: usize) {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let body = line.trim();
        let mark = fence(body).filter(|_| indent < 4);
        if let Some((letter, length)) = self.fence {
            let ends = |(own, long, rest): (char, usize, &str)| {
                own == letter && long >= length && rest.is_empty()
            };
            if mark.is_some_and(ends) {
                self.close(at + line.len(), false);
                (self.fence, self.verbatim) = (None, false);
            }
        } else if let Some((letter, length, _)) = mark {
            self.close(at, false);
            (self.fence, self.verbatim) = (Some((letter, length)), true);
        } else if let Some((level, title)) = heading(body).filter(|_| indent < 4) {
            self.close(at, false);
            self.headings.retain(|(above, _)| *above < level);
            self.headings.push((level, title.to_owned()));
            let names: Vec<_> = self.headings.iter().map(|(_, title)| title.as_str()).collect();
            self.sections.push(short(&names.join(" > ")));
            self.close(at + line.len(), true);
        }
    }

    /// Makes each unindented definition begin a section, with the comments above it.
    fn definitions(&mut self, text: &str) {
        for block in &mut self.blocks {
            let mut lines = text[block.range.clone()].lines();
            let first = lines.find(|line| !line.trim().is_empty() && !is_remark(line));
            if let Some(line) = first.filter(|line| DEFINITION.is_match(line)) {
                let name = line.trim().trim_end_matches(['{', '(', ':', ' ']);
                self.sections.push(short(name));
            }
            block.section = self.sections.len() - 1;
        }
    }
}

/// Letter, length and info string of a line that opens or ends a fence.
fn fence(body: &str) -> Option<(char, usize, &str)> {
    let letter = body.chars().next().filter(|letter| matches!(letter, '`' | '~'))?;
    let rest = body.trim_start_matches(letter);
    let length = body.len() - rest.len();
    (length >= 3 && !(letter == '`' && rest.contains('`'))).then_some((letter, length, rest.trim()))
}

/// Level and title of an ATX heading.
fn heading(body: &str) -> Option<(usize, &str)> {
    let rest = body.trim_start_matches('#');
    let level = body.len() - rest.len();
    let is_one = (1..=6).contains(&level) && (rest.is_empty() || rest.starts_with([' ', '\t']));
    is_one.then(|| (level, rest.trim().trim_end_matches('#').trim_end()))
}

/// Whether a line is a comment or an attribute, which belongs to what is below it.
fn is_remark(line: &str) -> bool {
    let line = line.trim_start();
    ["//", "#", "/*", "*", "@", "--", "\"\"\""].iter().any(|begin| line.starts_with(begin))
}

fn short(name: &str) -> String {
    name.chars().take(SECTION_CHARS).collect()
}
