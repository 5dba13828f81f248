//! `hivekeep models`.

use hivekeep_kernel::ToolError;
use serde_json::{Map, Value};

use super::{
    CliContext, CommandFailure,
    call::Bar,
    output::{self, word},
};
use crate::control::ControlMethod;

/// Show the language models: providers and their health, aliases, and what is spent.
///
/// Each provider is asked what it has; no tokens are spent. Providers are configured in `[model]`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep models
  hivekeep models --json | jq '.backends[] | select(.available) | .name'")]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    let tool = "ml_backends".to_owned();
    let wanted = ControlMethod::Call { tool, args: Map::new(), timeout_ms: None };
    let mut client = context.client()?;
    let bar = Bar::new();
    bar.say("asking the providers what they have");
    let listed = client.get(wanted);
    bar.clear();
    let listed = listed?;
    match args.json {
        true => output::json(&listed)?,
        false => output::text(&picture(&listed)?)?,
    }
    Ok(())
}

fn picture(listed: &Value) -> Result<String, ToolError> {
    let backends = rows(&listed["backends"])?;
    if backends.is_empty() {
        let text = "No language model is configured. Add one to the configuration:\n\n  \
                    [model.provider.local]\n  kind = \"ollama\"\n  models = { \"qwen3:4b\" = {} }\n";
        return Ok(text.to_owned());
    }
    let models: Vec<_> = backends.iter().flat_map(models_of).collect();
    let mut text =
        output::table(&["MODEL", "KIND", "FOR", "STATE", "RUNS", "WAITS", "USED", "WHY"], &models);
    let aliases: Vec<_> = rows(&listed["aliases"])?.iter().map(alias).collect();
    if !aliases.is_empty() {
        text.push('\n');
        text.push_str(&output::table(&["ALIAS", "ASKS", "FALLBACK"], &aliases));
    }
    let spent = &listed["spent"];
    let budget = &spent["budget"];
    let period = word(&spent["period"]);
    let total = vec![
        format!("all sessions ({period})"),
        word(&spent["total"]["requests"]),
        of(&spent["total"]["tokens"], &budget["total_tokens"]),
        of(&spent["total"]["usd"], &budget["total_usd"]),
    ];
    text.push('\n');
    text.push_str(&output::table(&["SPENT BY", "REQUESTS", "TOKENS", "US DOLLARS"], &[total]));
    Ok(text)
}

fn rows(value: &Value) -> Result<&Vec<Value>, ToolError> {
    value.as_array().ok_or_else(|| ToolError::internal("the daemon's list of models is not a list"))
}

fn models_of(backend: &Value) -> Vec<Vec<String>> {
    let models = backend["models"].as_array().into_iter().flatten();
    let row = |model: &Value| {
        let missing = model["listed"] == false;
        let why =
            if missing { "the provider does not have it".into() } else { word(&backend["why"]) };
        vec![
            format!("{}/{}", word(&backend["name"]), word(&model["name"])),
            word(&backend["kind"]),
            word(&model["purpose"]),
            if missing { "missing".to_owned() } else { word(&backend["state"]) },
            format!(
                "{} of {}",
                word(&backend["load"]["running"]),
                word(&backend["load"]["parallel"])
            ),
            word(&backend["load"]["waiting"]),
            model["used"]["tokens"]
                .as_u64()
                .map_or_else(|| "-".into(), |it| format!("{it} tokens")),
            why,
        ]
    };
    models.map(row).collect()
}

fn alias(alias: &Value) -> Vec<String> {
    let models = alias["models"].as_array().into_iter().flatten().map(word);
    let fallback = if alias["fallback"] == true { "yes" } else { "no" };
    vec![word(&alias["name"]), models.collect::<Vec<_>>().join(", "), fallback.to_owned()]
}

/// An amount, with its bound where there is one.
fn of(amount: &Value, bound: &Value) -> String {
    match bound.as_f64().is_some_and(|bound| bound > 0.0) {
        true => format!("{} of {}", word(amount), word(bound)),
        false => word(amount),
    }
}
