//! Shell in a fork of the machine that a failed step left.

use std::{
    io::{self, BufRead as _, IsTerminal as _},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::cli::{
    CommandFailure,
    client::Client,
    output::{self, word},
    runs::call,
};

/// Most bytes that are sent to the shell at a time.
const PART: usize = 32 * 1024;
/// Pause between two looks at what the shell wrote.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Opens the shell, and removes the fork when that ends.
pub(super) fn debug(client: &mut Client, run: &str, step: &str) -> Result<(), CommandFailure> {
    let asked = json!({ "run_id": run, "action": "debug", "step": step });
    let workspace = call(client, "dag_control", asked)?["workspace_id"].clone();
    eprintln!("{}: a fork of the machine of `{step}`, gone when this shell ends", word(&workspace));
    let ended = shell(client, &workspace);
    call(client, "workspace_destroy", json!({ "workspace_id": workspace }))?;
    match ended? {
        0 => Ok(()),
        _ => Err(CommandFailure::Reported),
    }
}

/// Runs a shell over standard input and output; its exit status.
fn shell(client: &mut Client, workspace: &Value) -> Result<i64, CommandFailure> {
    let is_terminal = io::stdin().is_terminal();
    let args = if is_terminal { json!(["-i"]) } else { json!([]) };
    let started = json!({ "command": "/bin/sh", "args": args, "place": workspace });
    let id = call(client, "process_start", started)?["id"].clone();
    let lines = typed();
    let (mut out, mut err, mut is_open) = (0, 0, true);
    loop {
        if is_open {
            match lines.recv_timeout(LOOK_EVERY) {
                Ok(text) => send(client, &id, &text?)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let close = json!({ "id": id, "input": "", "close": true });
                    // A shell that has ended needs none.
                    let _closed = call(client, "process_input", close);
                    is_open = false;
                }
            }
        }
        let wait_secs = u64::from(!is_open);
        let look =
            json!({ "id": id, "stdout_from": out, "stderr_from": err, "wait_secs": wait_secs });
        let told = call(client, "process_output", look)?;
        output::text(told["output"].as_str().unwrap_or_default())?;
        (out, err) = (next(&told["stdout_next"], out), next(&told["stderr_next"], err));
        if told["status"] != "running" && told["more"] != true {
            return Ok(told["exitCode"].as_i64().unwrap_or(1));
        }
    }
}

fn next(told: &Value, before: u64) -> u64 {
    told.as_u64().unwrap_or(before)
}

/// Standard input, line by line.
fn typed() -> mpsc::Receiver<io::Result<String>> {
    let (sender, lines) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        loop {
            let mut text = String::new();
            let read = stdin.read_line(&mut text).map(|_| text);
            let is_last = read.is_err();
            let is_over = read.as_ref().is_ok_and(String::is_empty);
            if is_over || sender.send(read).is_err() || is_last {
                return;
            }
        }
    });
    lines
}

/// Sends a text in parts that are taken whole.
fn send(client: &mut Client, id: &Value, text: &str) -> Result<(), CommandFailure> {
    let mut rest = text;
    while !rest.is_empty() {
        let (part, _) = rest.split_at(rest.floor_char_boundary(PART));
        let told = call(client, "process_input", json!({ "id": id, "input": part }))?;
        let taken = usize::try_from(told["written_bytes"].as_u64().unwrap_or_default());
        rest = rest.get(taken.unwrap_or_default()..).unwrap_or_default();
        if told["written_bytes"] == 0 {
            thread::sleep(LOOK_EVERY);
        }
    }
    Ok(())
}
