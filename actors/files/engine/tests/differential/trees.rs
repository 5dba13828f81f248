//! Generated trees with odd names, encodings and kinds of files.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::Path,
};

use fastrand::Rng;
use tempfile::TempDir;

/// Parts of names. No `/` and no NUL: everything else is a name. The last is left out where there are rules:
/// an earlier `rg` does not see that a rule matches below a folder with an end of line in its name.
const NAMES: [&[u8]; 22] = [
    b"a",
    b"b",
    b"c",
    b"ab",
    b".rs",
    b".txt",
    b".md",
    b"A",
    b" ",
    b"-",
    b"--x",
    b"*",
    b"?",
    b"[",
    b"]",
    b"{",
    b"\\",
    b"\xc3\xa4",
    b"\xf0\x9f\x98\x80",
    b"\xff",
    b".",
    b"\n",
];

/// Parts of texts.
const TEXTS: [&[u8]; 16] = [
    b"hit",
    b"Hit",
    b"miss",
    b" ",
    b"fn ",
    b"()",
    b"\t",
    b"\n",
    b"\n",
    b"\r\n",
    b"x",
    b"42",
    b"\xc3\xa4",
    b"\xe2\x82\xac",
    b"\xff",
    b"\r",
];

fn name(rng: &mut Rng, lines: bool) -> OsString {
    let names = &NAMES[..NAMES.len() - usize::from(!lines)];
    let parts = (0..rng.usize(1..5)).map(|_| names[rng.usize(..names.len())]);
    let name: Vec<u8> = parts.flatten().copied().collect();
    match name.as_slice() {
        b"." | b".." => OsString::from("dots"),
        _ => OsStr::from_bytes(&name).to_owned(),
    }
}

fn text(rng: &mut Rng) -> Vec<u8> {
    let parts = (0..rng.usize(0..60)).map(|_| TEXTS[rng.usize(..TEXTS.len())]);
    let mut text: Vec<u8> = parts.flatten().copied().collect();
    match rng.u8(..20) {
        // UTF-16 with a mark, which both decode.
        0 => {
            let wide = String::from_utf8_lossy(&text).into_owned();
            text = [0xff, 0xfe].into_iter().collect();
            text.extend(wide.encode_utf16().flat_map(u16::to_le_bytes));
        }
        1 => text.splice(0..0, *b"\xef\xbb\xbf").for_each(drop),
        2 => text.insert(rng.usize(..=text.len()), 0),
        3 => text = text.repeat(20),
        _ => {}
    }
    text
}

/// A folder of a few dozen files and links, or of files and `.gitignore` files, if asked.
pub(super) fn make(rng: &mut Rng, ignores: bool) -> TempDir {
    let tree = TempDir::new().expect("a folder");
    let mut folders = vec![tree.path().to_owned()];
    for _ in 0..rng.usize(0..8) {
        let folder = folders[rng.usize(..folders.len())].join(name(rng, !ignores));
        if fs::create_dir(&folder).is_ok() {
            folders.push(folder);
        }
    }
    for _ in 0..rng.usize(1..30) {
        let path = folders[rng.usize(..folders.len())].join(name(rng, !ignores));
        // A name that is taken already stays as it is.
        if path.symlink_metadata().is_ok() {
            continue;
        }
        match rng.u8(..12) {
            0..3 if ignores => {}
            0 => symlink(folders[rng.usize(..folders.len())].as_path(), &path).expect("linked"),
            1 => symlink("/etc/hostname", &path).expect("linked"),
            2 => symlink("nowhere", &path).expect("linked"),
            _ => fs::write(&path, text(rng)).expect("written"),
        }
    }
    if ignores {
        for folder in &folders {
            if rng.bool() {
                ignore(rng, folder);
            }
        }
    }
    tree
}

fn ignore(rng: &mut Rng, folder: &Path) {
    let path = folder.join(".gitignore");
    if path.symlink_metadata().is_ok() {
        return;
    }
    let mut lines = String::new();
    for _ in 0..rng.usize(0..6) {
        let letter =
            ["a", "b", "ab", "*.rs", "*.txt", "*", "?", "[ab]*", "**/a", "a/**", "#x", "a/b"];
        let (before, after) = (["", "", "!", "/"], ["", "", "/"]);
        lines.push_str(before[rng.usize(..before.len())]);
        lines.push_str(letter[rng.usize(..letter.len())]);
        lines.push_str(after[rng.usize(..after.len())]);
        lines.push('\n');
    }
    fs::write(path, lines).expect("written");
}

/// Adds the files below a folder in which there is a NUL, as they are shown: those are told apart as binary.
pub(super) fn binaries(folder: &Path, shown: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let (path, shown) = (entry.path(), shown.join(entry.file_name()));
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            binaries(&path, &shown, found);
        } else if entry.file_type().is_ok_and(|kind| kind.is_file())
            && fs::read(path).is_ok_and(|is| is.contains(&0) && !is.starts_with(b"\xff\xfe"))
        {
            found.insert(shown.display().to_string());
        }
    }
}
