//! `hivekeep policy`.

use hivekeep_kernel::SessionId;
use hivekeep_policy::{RuleEffect, RuleOptions, RuleRow, ToolPattern};
use serde_json::{Map, Value};

use super::{CliContext, CommandFailure, output};
use crate::control::{ControlMethod, ExplainedCall, PolicyMethod};

/// Explain and change who may call what.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep policy explain exec --session ses_0192f0c1a2b37c4d8e5f60718293a4b5 \\
      --json '{\"workspace_id\": \"w\", \"command\": \"git push\"}'
  hivekeep policy add no-push deny 'exec*' --when 'commands.exists(c, c[0] == \"git\" && \"push\" in c)'
  hivekeep policy rules
  hivekeep policy remove no-push")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Explain(ExplainArgs),
    Rules(RulesArgs),
    Add(AddArgs),
    Remove(RemoveArgs),
}

/// Show what each layer would say to a call. Nothing is called.
#[derive(Debug, clap::Args)]
struct ExplainArgs {
    /// The tool.
    tool: String,
    /// The session that would call; without it, you at this command line.
    #[arg(long)]
    session: Option<SessionId>,
    /// The input as a JSON object; without it, rules that depend on one are left out.
    #[arg(long, value_name = "ARGS", value_parser = object)]
    json: Option<Object>,
    /// Print JSON.
    #[arg(long)]
    as_json: bool,
}

/// List the rules in the order in which they are asked.
#[derive(Debug, clap::Args)]
struct RulesArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Add a rule before all others. It holds at once, and after a restart.
#[derive(Debug, clap::Args)]
struct AddArgs {
    /// Its name.
    name: String,
    /// Effect on calls that match.
    #[arg(value_parser = effect)]
    effect: RuleEffect,
    /// Tools: names, or beginnings with `*`.
    #[arg(required = true, value_parser = pattern)]
    tools: Vec<ToolPattern>,
    /// A condition in CEL over `tool`, `session`, `args` and `commands`.
    #[arg(long, value_name = "CEL")]
    when: Option<String>,
    /// Why, for whoever meets it.
    #[arg(long, default_value = "")]
    why: String,
}

/// Remove a rule that was added. Those of the configuration are changed in its file.
#[derive(Debug, clap::Args)]
struct RemoveArgs {
    /// Its name.
    name: String,
}

/// JSON object of a command line.
#[derive(Debug, Clone)]
struct Object(Map<String, Value>);

fn object(text: &str) -> Result<Object, String> {
    serde_json::from_str(text).map(Object).map_err(|error| error.to_string())
}

fn pattern(text: &str) -> Result<ToolPattern, String> {
    text.to_owned().try_into()
}

fn effect(text: &str) -> Result<RuleEffect, String> {
    let known = serde_json::from_value(Value::from(text));
    known.map_err(|_| "is not one of allow, ask, deny".to_owned())
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    match args.command {
        Command::Explain(args) => explain(context, args),
        Command::Rules(args) => rules(context, &args),
        Command::Add(AddArgs { name, effect, tools, when, why }) => {
            let rule = RuleOptions { name, effect, tools, when, why };
            context.client()?.get(ControlMethod::Policy(PolicyMethod::Add { rule }))?;
            Ok(())
        }
        Command::Remove(RemoveArgs { name }) => {
            context.client()?.get(ControlMethod::Policy(PolicyMethod::Remove { name }))?;
            Ok(())
        }
    }
}

fn explain(context: &CliContext, args: ExplainArgs) -> Result<(), CommandFailure> {
    let ExplainArgs { tool, session, json, as_json } = args;
    let call = ExplainedCall { tool, session, args: json.map(|input| input.0) };
    let found = context.client()?.get(ControlMethod::Policy(PolicyMethod::Explain(call)))?;
    if as_json {
        return Ok(output::json(&found)?);
    }
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let verdicts = found["verdicts"].as_array().into_iter().flatten();
    let rows: Vec<_> = verdicts
        .map(|one| vec![text(&one["layer"]), text(&one["ruling"]), text(&one["why"])])
        .collect();
    output::text(&output::table(&["LAYER", "RULING", "WHY"], &rows))?;
    Ok(output::text(&format!("\n{}\n", text(&found["outcome"])))?)
}

fn rules(context: &CliContext, args: &RulesArgs) -> Result<(), CommandFailure> {
    let rows: Vec<RuleRow> =
        context.client()?.get_as(ControlMethod::Policy(PolicyMethod::Rules {}))?;
    if args.json {
        return Ok(output::json(&rows)?);
    }
    let table: Vec<_> = rows
        .into_iter()
        .map(|RuleRow { rule, added }| {
            let effect = serde_json::to_value(rule.effect).unwrap_or_default();
            let tools: Vec<_> = rule.tools.iter().map(ToString::to_string).collect();
            vec![
                rule.name,
                effect.as_str().unwrap_or_default().to_owned(),
                tools.join(" "),
                if added { "added" } else { "configuration" }.to_owned(),
                rule.when.unwrap_or_default(),
            ]
        })
        .collect();
    Ok(output::text(&output::table(&["NAME", "EFFECT", "TOOLS", "FROM", "WHEN"], &table))?)
}
