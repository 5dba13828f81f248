//! Tree of files that searches and days of work are measured on.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Result;

pub(super) const FILES: usize = 10_000;
pub(super) const FOLDERS: usize = 100;
/// Lines of a file.
const LINES: usize = 20;
const LINE: &str = "what a line of a note says, and it is as long as such lines are.";

/// The same tree in the shell of a sandbox, below its `/workspace`.
pub(super) const MAKE: &str = r##"
cd /workspace
n=0
while [ $n -lt 10000 ]; do
    f=$((n % 100)); [ $f -lt 10 ] && f=0$f
    [ $n -lt 100 ] && mkdir folder-$f
    {
        echo "# Note $n"
        l=0
        while [ $l -lt 20 ]; do
            echo "Line $l says what a line of a note says, and it is as long as such lines are."
            l=$((l + 1))
        done
    } > folder-$f/note-$n.md
    n=$((n + 1))
done
"##;

/// Path of a file by its number.
pub(super) fn file(nth: usize) -> String {
    format!("folder-{:02}/note-{nth}.md", nth % FOLDERS)
}

/// Makes the tree; its size in bytes.
pub(super) fn make(folder: &Path) -> Result<usize> {
    let mut bytes = 0;
    for nth in 0..FILES {
        let path = folder.join(file(nth));
        if let (true, Some(parent)) = (nth < FOLDERS, path.parent()) {
            fs::create_dir_all(parent)?;
        }
        let mut text = format!("# Note {nth}\n");
        for line in 0..LINES {
            let _ = writeln!(text, "Line {line} says {LINE}");
        }
        bytes += text.len();
        fs::write(path, text)?;
    }
    Ok(bytes)
}
