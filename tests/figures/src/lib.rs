//! Static analysis of a checkout's sources: lines of each crate with and without tests, lines of each
//! tool, and circles of imports between its files.
//!
//! `cargo xtask figures` prints it, and `tests/it/house` refuses what is too long or too circular.
//! Nothing is compiled, so that any revision can be read.

mod circles;
mod imports;
mod lines;
mod modules;
mod paths;
mod sources;
mod tools;

use std::{collections::BTreeMap, io, path::Path};

pub use circles::Circle;
pub use lines::{TestCode, code_lines, lines_of, only_in_tests};
pub use sources::{Source, sources};
pub use tools::{ToolLines, tools};

/// A crate of the checkout.
pub struct Crate {
    /// Its folder below the root, `.` for the root itself.
    pub folder: String,
    /// Lines of all its files.
    pub lines: usize,
    /// Those of them that are tests.
    pub test_lines: usize,
    /// Code lines of each file that ships and has any, the fewest first.
    pub code_lines: Vec<usize>,
    /// Files that import each other, directly or over others of them; the largest first.
    pub circles: Vec<Circle>,
}

impl Crate {
    /// Files of the largest circle.
    pub fn largest_circle(&self) -> usize {
        self.circles.first().map_or(0, Circle::len)
    }
}

/// Measures the crates below `root`.
///
/// # Errors
/// When a file cannot be read.
pub fn measure(root: &Path) -> io::Result<Vec<Crate>> {
    let manifests = sources(root, &["Cargo.toml"])?;
    let folders: Vec<_> = manifests
        .iter()
        .filter(|manifest| manifest.text.contains("[package]"))
        .map(|manifest| manifest.path.trim_end_matches("Cargo.toml").trim_end_matches('/'))
        .collect();
    let mut crates: BTreeMap<&str, Vec<Source>> = BTreeMap::new();
    for source in sources(root, &[".rs"])? {
        // The innermost: the root's folder holds all the others.
        let within = folders.iter().filter(|folder| Path::new(&source.path).starts_with(folder));
        if let Some(folder) = within.max_by_key(|folder| folder.len()) {
            crates.entry(folder).or_default().push(source);
        }
    }
    Ok(crates.iter().map(|(folder, sources)| measured(folder, sources)).collect())
}

fn measured(folder: &str, sources: &[Source]) -> Crate {
    let (mut lines, mut test_lines) = (0, 0);
    for source in sources {
        let length = source.text.lines().count();
        lines += length;
        test_lines += match source.ships() {
            true => TestCode::of(&source.text).lines,
            false => length,
        };
    }
    let shipped = sources.iter().filter(|source| source.ships());
    let mut code_lines: Vec<_> = shipped.map(|source| code_lines(&source.text)).collect();
    code_lines.retain(|lines| *lines > 0);
    code_lines.sort_unstable();
    let circles = circles::of(&imports::graph(folder, sources));
    let folder = if folder.is_empty() { "." } else { folder }.to_owned();
    Crate { folder, lines, test_lines, code_lines, circles }
}
