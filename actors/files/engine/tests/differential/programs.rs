//! The programs of the system, and what they answer.

use std::{
    ffi::OsStr,
    io::Write,
    os::unix::ffi::OsStrExt,
    path::Path,
    process::{Command, Stdio},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;

/// What a program answers with these words in a folder, in the locale of bytes. One that is missing fails
/// the test.
pub(super) fn output<W: AsRef<OsStr>>(folder: &Path, program: &str, words: &[W]) -> Vec<u8> {
    fed(folder, program, words, b"")
}

/// As [`output`], for what it is given to read.
pub(super) fn fed<W: AsRef<OsStr>>(
    folder: &Path,
    program: &str,
    words: &[W],
    input: &[u8],
) -> Vec<u8> {
    let mut command = Command::new(program);
    command.args(words).current_dir(folder).env("LC_ALL", "C");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let started = command.spawn();
    let mut child =
        started.unwrap_or_else(|error| panic!("{program} (cargo xtask setup): {error}"));
    let mut stdin = child.stdin.take().expect("piped");
    // One that does not read is gone by now.
    let _fed = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().expect("it ends").stdout
}

/// Paths that a program ends with NUL, as the engine shows them, in order.
pub(super) fn paths(listed: &[u8]) -> Vec<String> {
    let paths = listed.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    let paths = paths.map(|path| path.strip_prefix(b"./").unwrap_or(path));
    let mut paths: Vec<_> = paths.map(|path| OsStr::from_bytes(path).to_owned()).collect();
    // As the engine orders them: name by name.
    paths.sort_by(|one, other| Path::new(one).cmp(Path::new(other)));
    paths.iter().map(|path| path.to_string_lossy().into_owned()).collect()
}

/// Line that a search found: path, number, and the text's begin.
pub(super) type Hit = (String, u64, String);

/// Bytes and letters of a line that are compared: the engine cuts lines, perhaps within a letter.
const COMPARED: (usize, usize) = (480, 100);

/// Lines that `rg --json` found.
pub(super) fn hits(json: &[u8]) -> Vec<Hit> {
    let mut hits = Vec::new();
    for line in json.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let event: Value = serde_json::from_slice(line).expect("JSON of rg");
        if event["type"] != "match" {
            continue;
        }
        let data = &event["data"];
        let path = bytes(&data["path"]);
        let path = path.strip_prefix(b"./").unwrap_or(&path);
        let number = data["line_number"].as_u64().expect("numbered");
        hits.push((lossy(path), number, begin(&bytes(&data["lines"]))));
    }
    hits.sort();
    hits
}

fn bytes(told: &Value) -> Vec<u8> {
    match told["text"].as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => BASE64_STANDARD.decode(told["bytes"].as_str().expect("bytes")).expect("base64"),
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The part of a line that is compared.
pub(super) fn begin(line: &[u8]) -> String {
    let line = line.trim_ascii_end();
    lossy(&line[..line.len().min(COMPARED.0)]).chars().take(COMPARED.1).collect()
}
