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

use crate::{
    house::{House, Kind, PATIENCE, open_to_all},
    needs::named,
};
use page::{Block, Mark, Page};
use shell::Shell;

/// Commands that change nothing: they are repeated until they show what is shown.
const LOOKS: [&str; 5] = [
    "hivekeep approvals",
    "hivekeep call aegis.git.status",
    "hivekeep call webview_eval",
    "hivekeep dag list",
    "hivekeep dag runs",
];

/// Where a page is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    Sandboxes,
    /// In virtual machines, with the blocks that only they can do: `<!-- run with: machine -->`.
    Machines,
    /// With the files of a model, below `/srv`, as [`MODEL`] has them: `<!-- run with: model -->`.
    Model,
}

/// Names the folder of a model.
pub const MODEL: &str = "TEST_HIVEKEEP_STATIC_MODEL";

/// Pages that have commands which are run there.
pub fn pages(place: Where) -> Vec<Page> {
    let mut pages = page::pages(Path::new(env!("CARGO_MANIFEST_DIR")));
    let own = |block: &Block| place == Where::Sandboxes || block.mark.is_some();
    pages.retain(|page| page.blocks.iter().any(|block| is_run(block, place) && own(block)));
    pages
}

/// Name of a page's scene.
pub fn name(page: &Page) -> String {
    let name = page.name.trim_start_matches("docs/").trim_end_matches(".md");
    format!("guides::{}", name.to_lowercase())
}

fn is_run(block: &Block, place: Where) -> bool {
    let mark = match place {
        Where::Sandboxes => None,
        Where::Machines => Some("machine"),
        Where::Model => Some("model"),
    };
    block.is_shell()
        && match &block.mark {
            None => true,
            Some(Mark::RunWith(what)) => Some(&**what) == mark,
            Some(_) => false,
        }
}

/// Does what a page says, in its order.
pub fn follow(page: &Page, place: Where) {
    let before = page.blocks.iter().take_while(|block| !is_run(block, place));
    let settings = before.filter(|block| block.language == "toml" && block.mark.is_none());
    let config: String = settings.map(Block::text).collect();
    let srv = (place == Where::Model).then(srv);
    let placed = |text: &str| match &srv {
        Some(srv) => text.replace("/srv/", &format!("{}/", srv.path().display())),
        None => text.to_owned(),
    };
    let kind = if place == Where::Machines { Kind::Vm } else { Kind::Sandbox };
    let house = House::open_networked("off", kind, &placed(&config));
    let mut shell = Shell::open(&house);
    for block in page.blocks.iter().filter(|block| is_run(block, place)) {
        for step in steps(block) {
            let place = format!("{}:{}", page.name, step.line);
            let shown = step.shown.join("\n");
            let begun = Instant::now();
            loop {
                let (output, status) = shell.run(&placed(&step.command));
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

/// What pages have below `/srv`: the guides, and a model.
fn srv() -> tempfile::TempDir {
    let srv = tempfile::tempdir().expect("a folder");
    open_to_all(srv.path());
    let guides = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guides");
    for (from, to) in [(guides, "notes/guides"), (named(MODEL), "models/all-MiniLM-L6-v2")] {
        let to = srv.path().join(to);
        std::fs::create_dir_all(&to).expect("made");
        for file in std::fs::read_dir(&from).expect("it is there").map(|it| it.expect("an entry")) {
            std::fs::copy(file.path(), to.join(file.file_name())).expect("copied");
        }
    }
    srv
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
        mark: None,
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
