//! Commands of the pages for users, as they are printed, in a home of the page's own.
//!
//! What a page shows before its first command as settings is the daemon's configuration. Output that is shown is
//! compared; ids, numbers and what `...` stands for may be others.

#[path = "../../it/guides/page.rs"]
mod page;
mod shell;

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use regex::Regex;

use crate::house::{House, Kind, PATIENCE};
use page::{Block, Page};
use shell::Shell;

/// Commands that change nothing: they are repeated until they show what is shown.
const LOOKS: [&str; 2] = ["hivekeep approvals", "hivekeep call aegis.git.status"];

/// Pages that have commands which are run.
pub fn pages() -> Vec<Page> {
    let mut pages = page::pages(Path::new(env!("CARGO_MANIFEST_DIR")));
    pages.retain(|page| page.blocks.iter().any(is_run));
    pages
}

fn is_run(block: &Block) -> bool {
    block.is_shell() && block.not_run.is_none()
}

/// Does what a page says, in its order.
pub fn follow(page: &Page) {
    let before = page.blocks.iter().take_while(|block| !is_run(block));
    let settings = before.filter(|block| block.language == "toml" && block.not_run.is_none());
    let config: String = settings.map(Block::text).collect();
    let house = House::open_networked("off", Kind::Sandbox, &config);
    let mut shell = Shell::open(&house);
    for block in page.blocks.iter().filter(|block| is_run(block)) {
        for step in steps(block) {
            let place = format!("{}:{}", page.name, step.line);
            let shown = step.shown.join("\n");
            let begun = Instant::now();
            loop {
                let (output, status) = shell.run(&step.command);
                let told = format!("{place}: {}\n{output}", step.command);
                // Where an error is shown the command fails.
                let fails = shown.starts_with("hivekeep: ") && step.command.starts_with("hivekeep");
                assert_eq!(status != 0, fails, "{told}\n{}", house.stderr());
                if shown.is_empty() || agrees(&shown, &output) {
                    break;
                }
                // What was begun before may not be so far yet.
                let looks = LOOKS.iter().any(|look| step.command.starts_with(look));
                let waits = looks && begun.elapsed() < PATIENCE;
                assert!(waits, "{told}\nis shown as\n{shown}");
                thread::sleep(Duration::from_millis(200));
            }
        }
    }
}

/// A command and what is shown as its output.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    line: usize,
    command: String,
    shown: Vec<String>,
}

/// Commands are lines of their own where there is no prompt. One goes on in the next line as a shell has it.
fn steps(block: &Block) -> Vec<Step> {
    let prompted = block.lines.iter().any(|line| line.starts_with("$ "));
    let mut steps: Vec<Step> = Vec::new();
    let mut open = false;
    for (at, line) in block.lines.iter().enumerate() {
        let begins = if prompted { line.strip_prefix("$ ") } else { Some(line.as_str()) };
        match (steps.last_mut(), begins) {
            (Some(step), _) if open => {
                step.command.push('\n');
                step.command.push_str(line);
            }
            (_, Some(command)) => {
                let (line, command) = (block.line + at, command.to_owned());
                steps.push(Step { line, command, shown: Vec::new() });
            }
            (Some(step), None) => step.shown.push(line.clone()),
            (None, None) => {}
        }
        let last = steps.last().map_or("", |step| &step.command);
        open = (open || begins.is_some()) && shell::goes_on(last);
    }
    steps
}

/// True if an output is what is shown, but for ids, numbers, spaces between columns and what is left out.
fn agrees(shown: &str, output: &str) -> bool {
    // Left out, an id, a time, a digest or a token, a number, space.
    let parts = r"\.\.\.|…|\b[a-z]+_[0-9a-f]{4,}\b|\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z|\b[0-9a-f]*[0-9][0-9a-f]*\b|[0-9]+|\s+";
    let parts = Regex::new(parts).expect("a pattern");
    let mut pattern = String::from(r"(?s)\A\s*");
    let mut end = 0;
    for part in parts.find_iter(shown.trim()) {
        pattern += &regex::escape(&shown.trim()[end..part.start()]);
        pattern += match part.as_str() {
            "..." | "…" => ".*",
            id if id.contains('_') => "[a-z]+_[0-9a-f]+",
            time if time.ends_with('Z') => "[0-9TZ:.-]+",
            space if space.trim().is_empty() => r"\s+",
            _ => "[0-9a-f]+",
        };
        end = part.end();
    }
    pattern += &regex::escape(&shown.trim()[end..]);
    pattern += r"\s*\z";
    Regex::new(&pattern).expect("a pattern").is_match(output)
}

pub fn what_is_shown_is_compared() {
    let block = |text: &str| Block {
        language: "console".to_owned(),
        line: 7,
        lines: text.lines().map(str::to_owned).collect(),
        not_run: None,
    };
    let found = steps(&block("$ one |\n  two '{\n}'\nout\n\n$ three"));
    let step = |line, command: &str, shown: &[&str]| Step {
        line,
        command: command.to_owned(),
        shown: shown.iter().map(|&line| line.to_owned()).collect(),
    };
    assert_eq!(found, [step(7, "one |\n  two '{\n}'", &["out", ""]), step(12, "three", &[])]);
    let lines = steps(&block("one # a word\ntwo"));
    assert_eq!(lines, [step(7, "one # a word", &[]), step(8, "two", &[])]);

    let id = "ws_01a2238ccd6b74b4809f87ad206f88d5";
    assert!(agrees("made ws_0193 in 12 ms ...", &format!("made {id} in 7  ms\nand more\n")));
    assert!(!agrees("made ws_0193", &format!("made {id}, or not")));
}
