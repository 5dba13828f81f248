//! A background job, followed by a cursor.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hivekeep_mcp_client::blocking::Client;
use serde_json::{Value, json};

/// For the job as a whole; it takes seconds.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two looks at it.
const PAUSE: Duration = Duration::from_millis(200);

/// A job of a workspace and what of its output was read so far.
pub(super) struct Job {
    workspace: &'static str,
    pub(super) id: String,
    cursor: u64,
    pub(super) output: String,
}

impl Job {
    pub(super) fn start(
        client: &Client,
        workspace: &'static str,
        workdir: &str,
        command: &str,
    ) -> Result<Self> {
        let arguments = json!({
            "workspace_id": workspace, "action": "start", "command": command, "workdir": workdir,
        });
        let started = client.call("exec_background", arguments)?;
        let id = started["job_id"].as_str().context("a job without an id")?.to_owned();
        Ok(Self { workspace, id, cursor: 0, output: String::new() })
    }

    /// Reads what is new.
    fn poll(&mut self, client: &Client) -> Result<Value> {
        let arguments = json!({
            "workspace_id": self.workspace, "action": "poll", "job_id": self.id,
            "stdout_from": self.cursor,
        });
        let poll = client.call("exec_background", arguments)?;
        self.output.push_str(poll["stdout"].as_str().context("a poll without output")?);
        self.cursor = poll["stdout_next"].as_u64().context("a poll without a cursor")?;
        Ok(poll)
    }

    /// Follows it until it has printed something, and still runs.
    pub(super) fn until_it_speaks(&mut self, client: &Client) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while self.output.is_empty() {
            let poll = self.poll(client)?;
            ensure!(poll["running"] == true, "it ended early: {poll}");
            ensure!(Instant::now() < until, "it printed nothing in {} s", PATIENCE.as_secs());
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Follows it to its end and the end of its output; its exit status.
    pub(super) fn follow(&mut self, client: &Client) -> Result<i64> {
        let until = Instant::now() + PATIENCE;
        loop {
            let poll = self.poll(client)?;
            let all_read = poll["stdout_bytes"].as_u64() == Some(self.cursor);
            if poll["running"] == false && all_read {
                ensure!(poll.get("interrupted").is_none(), "it was interrupted: {poll}");
                return poll["exit_code"].as_i64().context("it ended without a status");
            }
            ensure!(Instant::now() < until, "it does not end in {} s", PATIENCE.as_secs());
            std::thread::sleep(PAUSE);
        }
    }
}
