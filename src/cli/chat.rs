//! `hivekeep chat`: a conversation with an agent, which goes on where it was left.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    thread,
    time::Duration,
};

use hivekeep_door_server::plain;
use serde_json::{Value, json};

use super::{
    CliContext, CommandFailure,
    client::Client,
    output::{self, Paint, word},
    runs::{call, line, list},
};

/// Pause between two looks at what the agent says.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Most events of one page.
const PAGE: usize = 200;

/// Talk with an agent.
///
/// Each line that is read is a message; the agent works until it has an answer. The conversation is an execution:
/// it survives the daemon, and Ctrl-D leaves it waiting for its next message.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep chat helper
  hivekeep chat --resume ID              # ids are in `hivekeep runs`
  echo 'what is in notes.md?' | hivekeep chat helper

Exit code 1 when the execution failed, 5 when no daemon runs.")]
pub struct Args {
    /// Agent to talk with: its id or name.
    #[arg(required_unless_present = "resume")]
    agent: Option<String>,
    /// Go on with this execution.
    #[arg(long, value_name = "ID", conflicts_with = "agent")]
    resume: Option<String>,
    /// Show calls and their results, too.
    #[arg(long, short)]
    verbose: bool,
}

pub(super) fn run(context: &CliContext, args: &Args) -> Result<(), CommandFailure> {
    let mut client = context.client()?;
    let (mut id, mut offset) = (args.resume.clone(), 0);
    if let Some(id) = &id {
        offset = told(&mut client, id, 0, args.verbose)?;
    }
    let (stdin, asks) = (io::stdin(), io::stdin().is_terminal());
    loop {
        if asks {
            output::painted("> ")?;
            io::stdout().flush()?;
        }
        let mut message = String::new();
        if stdin.lock().read_line(&mut message)? == 0 {
            return left(asks, id.as_deref());
        }
        let message = message.trim();
        if message.is_empty() {
            continue;
        }
        let id = match &id {
            Some(id) => {
                let input = json!({ "execution_id": id, "message": message });
                call(&mut client, "agent_continue", input)?;
                id.clone()
            }
            None => {
                let input = json!({ "agent_id": args.agent, "intent": message, "chat": true });
                let begun = call(&mut client, "aegis.task.execute", input)?;
                id.insert(word(&begun["execution_id"])).clone()
            }
        };
        offset = answered(&mut client, &id, offset, args.verbose)?;
    }
}

/// Says how to come back.
fn left(asks: bool, id: Option<&str>) -> Result<(), CommandFailure> {
    match id.filter(|_| asks) {
        Some(id) => Ok(output::text(&format!("\nhivekeep chat --resume {id} goes on.\n"))?),
        None => Ok(()),
    }
}

/// Shows what the agent says and does until it waits for something; the number of events so far.
fn answered(
    client: &mut Client,
    id: &str,
    mut offset: usize,
    verbose: bool,
) -> Result<usize, CommandFailure> {
    loop {
        // Before the events: what was said when it began to wait is among them.
        let state = call(client, "aegis.task.status", json!({ "execution_id": id }))?;
        offset = told(client, id, offset, verbose)?;
        match (state["waiting_for"].as_str(), &*word(&state["status"])) {
            (Some("message"), _) => return Ok(offset),
            (_, "completed") => {
                let why =
                    "the execution is over: it was no chat. Begin one by `hivekeep chat AGENT`";
                return Err(CommandFailure::Other(why.to_owned()));
            }
            (_, "failed" | "cancelled") => {
                let why = word(&state["last_error"]);
                return Err(CommandFailure::Other(format!("the execution is over: {why}")));
            }
            (Some(what), _) => {
                let next = match what {
                    "approval" => "hivekeep approvals",
                    _ => "hivekeep call agent_continue",
                };
                output::text(&format!("It waits for its {what}: {next} has it.\n"))?;
                return Ok(offset);
            }
            _ => thread::sleep(LOOK_EVERY),
        }
    }
}

/// Shows events from one on; the place of the next.
fn told(
    client: &mut Client,
    id: &str,
    mut offset: usize,
    verbose: bool,
) -> Result<usize, CommandFailure> {
    let paint = Paint::stdout();
    loop {
        let input = json!({ "execution_id": id, "limit": PAGE, "offset": offset });
        let page = call(client, "aegis.task.logs", input)?;
        let events = list(&page["events"]);
        for event in events {
            if let Some(text) = said(event) {
                output::text(&text)?;
            } else if verbose {
                output::painted(&line(event, paint))?;
            }
        }
        offset += events.len();
        if events.is_empty() || offset as u64 >= page["total"].as_u64().unwrap_or_default() {
            return Ok(offset);
        }
    }
}

/// Text of the agent's answer.
fn said(event: &Value) -> Option<String> {
    let text = word(&event["payload"]["text"]);
    let is_said = event["event_type"] == "llm_interaction" && !text.trim().is_empty();
    is_said.then(|| format!("{}\n", plain::lines(text.trim())))
}
