//! Two runs side by side.

use serde_json::{Value, json};

use crate::cli::{
    CommandFailure,
    client::Client,
    output::{self, word},
    runs::{call, list},
};

/// Show what differs between two runs: parameters, outcomes and outputs, step by step.
#[derive(Debug, clap::Args)]
pub(super) struct CompareArgs {
    /// Id of a run.
    run: String,
    /// Id of another one.
    other: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn compare(client: &mut Client, args: &CompareArgs) -> Result<(), CommandFailure> {
    let mut all = Vec::new();
    loop {
        let input = json!({
            "run_id": args.run, "compare_with": args.other, "limit": 200, "offset": all.len(),
        });
        let page = call(client, "dag_runs", input)?["compared"].take();
        let differences = list(&page["differences"]);
        all.extend(differences.iter().cloned());
        if differences.is_empty() || all.len() as u64 >= page["total"].as_u64().unwrap_or_default()
        {
            break;
        }
    }
    if args.json {
        return Ok(output::json(&json!({ "differences": all }))?);
    }
    if all.is_empty() {
        return Ok(output::text("They do not differ but in their times.\n")?);
    }
    let shown = |of: &Value| if of.is_null() { "-".to_owned() } else { word(of) };
    let row = |it: &Value| {
        vec![word(&it["step"]), word(&it["field"]), shown(&it["value"]), shown(&it["other"])]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    Ok(output::text(&output::table(&["STEP", "FIELD", "RUN", "OTHER"], &rows))?)
}
