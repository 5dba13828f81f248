//! Blocks of the pages that show how hivekeep is used.
//!
//! A block is what stands between fences. A comment before it says how it is run, if not in a sandbox with all others
//! of its page: [`Mark`].

use std::{fs, path::Path};

/// Folders and files of such pages, below the checkout.
const PAGES: [&str; 5] =
    ["README.md", "docs/guides", "docs/e2b.md", "docs/mcp-clients.md", "docs/runbook"];

/// A page, by its name below the checkout.
pub struct Page {
    pub name: String,
    pub blocks: Vec<Block>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub language: String,
    /// Line of the page that the first of its own is on, from 1.
    pub line: usize,
    pub lines: Vec<String>,
    pub mark: Option<Mark>,
}

/// Comment before a block, `<!-- WORDS: TEXT -->`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// `not run`: it is only shown, and why.
    NotRun(String),
    /// `not ours`: it is another program's, and only shown.
    NotOurs(String),
    /// `run by`: the scene or step that runs it, by its name.
    RunBy(String),
    /// `run with`: its page is followed where that is, too: `machine`.
    RunWith(String),
}

impl Mark {
    fn read(line: &str) -> Option<Self> {
        let (words, text) = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?.split_once(": ")?;
        let text = text.to_owned();
        match words {
            "not run" => Some(Self::NotRun(text)),
            "not ours" => Some(Self::NotOurs(text)),
            "run by" => Some(Self::RunBy(text)),
            "run with" => Some(Self::RunWith(text)),
            _ => None,
        }
    }
}

impl Block {
    pub fn text(&self) -> String {
        self.lines.iter().flat_map(|line| [line, "\n"]).collect()
    }

    /// True if a shell is to do it.
    pub fn is_shell(&self) -> bool {
        let prompted = self.lines.iter().any(|line| line.starts_with("$ "));
        match self.language.as_str() {
            "sh" | "console" => true,
            "text" => prompted,
            _ => false,
        }
    }
}

/// All pages, in a stable order.
///
/// # Panics
/// Where the checkout cannot be read.
pub fn pages(root: &Path) -> Vec<Page> {
    let mut names = Vec::new();
    for name in PAGES {
        match fs::read_dir(root.join(name)) {
            Ok(folder) => names.extend(folder.map(|entry| {
                let entry = entry.expect("an entry");
                format!("{name}/{}", entry.file_name().to_string_lossy())
            })),
            Err(_) => names.push(name.to_owned()),
        }
    }
    names.retain(|name| name.ends_with(".md"));
    names.sort();
    let page = |name: String| {
        let text = fs::read_to_string(root.join(&name)).expect("a page is read");
        Page { blocks: blocks(&text), name }
    };
    names.into_iter().map(page).collect()
}

/// Blocks between fences of three backticks or more, which end with as many.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut mark = None;
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let fence: String = line.chars().take_while(|char| *char == '`').collect();
        if fence.len() < 3 {
            mark = Mark::read(line);
            continue;
        }
        let language = line[fence.len()..].to_owned();
        let body = lines.by_ref().take_while(|(_, line)| *line != fence);
        let body: Vec<_> = body.map(|(_, line)| line.to_owned()).collect();
        blocks.push(Block { language, line: at + 2, lines: body, mark: mark.take() });
    }
    blocks
}

#[test]
fn blocks_are_found_with_what_is_said_of_them() {
    let text = "one\n```sh\na\n```\n<!-- not run: it takes long -->\n````text\n$ b\n```\n````\n\n```json\n{}\n```\n";
    let found = blocks(text);
    let seen: Vec<_> = found
        .iter()
        .map(|block| (&*block.language, block.line, block.text(), block.mark.clone()))
        .collect();
    let expected = [
        ("sh", 3, "a\n".to_owned(), None),
        ("text", 7, "$ b\n```\n".to_owned(), Some(Mark::NotRun("it takes long".to_owned()))),
        ("json", 12, "{}\n".to_owned(), None),
    ];
    assert_eq!(seen, expected);
    assert_eq!(found.iter().map(Block::is_shell).collect::<Vec<_>>(), [true, true, false]);
}
