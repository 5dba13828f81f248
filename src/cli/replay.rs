//! `hivekeep replay`: an execution carried out again over what was recorded of it.

use hivekeep_door_server::plain;
use serde_json::json;

use super::{
    CliContext, CommandFailure,
    output::{self, word},
    runs::call,
};

/// Carry an execution out again over its recorded answers and results, and show the first request that differs.
/// Nothing is asked and nothing is called.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep replay ID                      # after an upgrade: is it still asked the same?
  hivekeep replay ID --version latest     # and by the agent's latest version?

Exit code 1 when a request differs.")]
pub struct Args {
    /// Id of the execution.
    id: String,
    /// Version of its agent to carry out, or `latest`. Default: what was recorded.
    #[arg(long)]
    version: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &CliContext, args: &Args) -> Result<(), CommandFailure> {
    let input = json!({ "execution_id": args.id, "version": args.version });
    let replayed = call(&mut context.client()?, "agent_replay", input)?;
    if args.json {
        output::json(&replayed)?;
    } else {
        let mut text = format!("{} requests are the same\n", word(&replayed["requests"]));
        if replayed["unknown"] != 0 {
            let unknown = word(&replayed["unknown"]);
            text.push_str(&format!("{unknown} were recorded without what a replay compares\n"));
        }
        let difference = &replayed["difference"];
        if difference.is_object() {
            let part = |key: &str| word(&difference[key]);
            let (what, iteration, turn) = (part("what"), part("iteration"), part("turn"));
            text.push_str(&format!(
                "{what} of iteration {iteration}, turn {turn}, is another one\n"
            ));
            for (sign, key) in [("-", "recorded"), ("+", "now")] {
                for line in difference[key].as_str().into_iter().flat_map(str::lines) {
                    text.push_str(&format!("{sign} {}\n", plain::line(line)));
                }
            }
        }
        output::text(&text)?;
    }
    match replayed["same"] == true {
        true => Ok(()),
        false => Err(CommandFailure::Reported),
    }
}
