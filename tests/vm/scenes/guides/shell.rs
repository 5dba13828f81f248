//! A shell that a person's commands are typed into, one after the other.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use regex::Regex;

use crate::house::House;

/// How long a command may take.
const PATIENCE: Duration = Duration::from_secs(100);
/// Begins the line after a command's output.
const END: char = '\u{1e}';

pub struct Shell {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    /// The last id of each kind that was printed.
    ids: HashMap<String, String>,
}

impl Shell {
    /// A shell in the network namespace and with the home of a house, in an empty folder.
    pub fn open(house: &House) -> Self {
        let folder = house.path().join("at");
        std::fs::create_dir(&folder).expect("a folder");
        let daemon = house.command();
        let program = Path::new(daemon.get_program()).parent().expect("it is in a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        let set = daemon.get_envs().filter_map(|(name, value)| value.map(|value| (name, value)));
        command.args(["--norc", "--noprofile"]).current_dir(folder).envs(set);
        command.env("PATH", format!("{}:{path}", program.display()));
        // Some commands write to the home of whoever types them.
        command.env("HOME", house.path()).env_remove("XDG_CONFIG_HOME");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let spawned = match &house.stage {
            Some(stage) => stage.host.run(move || command.spawn()),
            None => command.spawn(),
        };
        let mut child = spawned.expect("bash starts");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (said, lines) = channel();
        thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| said.send(line))
        });
        Self { child, input, lines, ids: HashMap::new() }
    }

    /// Runs a command; its output and status. An id of the page is the last one of its kind that was printed.
    pub fn run(&mut self, command: &str) -> (String, i32) {
        let shown = Regex::new(r"\b([a-z]+_)(?:…|[0-9a-f]{32}\b)").expect("a pattern");
        let ids = &self.ids;
        let command = shown.replace_all(command, |found: &regex::Captures<'_>| {
            ids.get(&found[1]).cloned().unwrap_or_else(|| panic!("no id begins with {}", &found[1]))
        });
        writeln!(self.input, "{{\n{command}\n}} 2>&1 </dev/null; printf '\\n{END}%d\\n' $?")
            .expect("bash listens");
        let mut output = String::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("`{command}` does not end: {output}"));
            if let Some(status) = line.strip_prefix(END) {
                self.learn(&output);
                return (output, status.parse().expect("a status"));
            }
            output.push_str(&line);
            output.push('\n');
        }
    }

    fn learn(&mut self, output: &str) {
        let id = Regex::new(r"\b([a-z]+_)[0-9a-f]{32}\b").expect("a pattern");
        for found in id.captures_iter(output) {
            self.ids.insert(found[1].to_owned(), found[0].to_owned());
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // What a page left in the background goes first; a command may run still.
        let _told = writeln!(self.input, "kill $(jobs -p) 2>/dev/null; exit");
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// True if a shell would wait for more of this command.
pub fn goes_on(command: &str) -> bool {
    if command.ends_with('\\') {
        return true;
    }
    let looked = Command::new("bash").args(["-n", "-c", command]).output().expect("bash runs");
    // A document that has not ended is no error there.
    !looked.status.success() || String::from_utf8_lossy(&looked.stderr).contains("here-document")
}
