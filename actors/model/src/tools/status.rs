//! `ml_status`.

use std::{collections::BTreeMap, fmt::Write};

use hivekeep_kernel::{CallCx, Layer, ToolError, serve::Reply, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    codes,
    influx::{InfluxDatabase, Rows},
    models::ModelsActor,
};

/// Show how trainings and generations of data go on, from the InfluxDB that the operator configured.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MlStatus {
    /// Address of the database, one of those that the operator configured.
    #[serde(default = "default_url")]
    #[schemars(length(max = 300))]
    pub(crate) influx_url: String,
    /// Name of the database.
    #[serde(default = "default_database")]
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[A-Za-z0-9_.-]+$"))]
    pub(crate) influx_db: String,
}

fn default_url() -> String {
    "http://localhost:8086".to_owned()
}

fn default_database() -> String {
    "lem".to_owned()
}

/// Status.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MlStatusText {
    /// The status as text: trainings, then generations.
    pub(crate) status: String,
    /// Queries that failed, with the reasons: what they would show is missing above.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) failed: BTreeMap<&'static str, String>,
}

const STATUS: &str = "training_status";
const LOSS: &str = "training_loss";
const GOLDEN: &str = "golden_gen_progress";
const EXPANSION: &str = "expansion_progress";

/// Measurements with the queries for their newest rows.
const QUERIES: [(&str, &str); 4] = [
    (
        STATUS,
        "SELECT model, run_id, status, iteration, total_iters, pct FROM training_status \
         ORDER BY time DESC LIMIT 10",
    ),
    (
        LOSS,
        "SELECT model, loss, iteration, tokens_per_sec FROM training_loss \
         WHERE loss_type = 'train' ORDER BY time DESC LIMIT 10",
    ),
    (
        GOLDEN,
        "SELECT worker, completed, target, pct FROM golden_gen_progress ORDER BY time DESC LIMIT 5",
    ),
    (
        EXPANSION,
        "SELECT worker, completed, target, pct FROM expansion_progress ORDER BY time DESC LIMIT 5",
    ),
];

impl ModelsActor {
    /// Serves `ml_status`.
    pub(crate) fn status(
        &mut self,
        cx: &CallCx,
        input: MlStatus,
    ) -> Result<Reply<MlStatusText>, ToolError> {
        self.work(cx, |shared, _| async move {
            let database = shared.influx.database(&input.influx_url, &input.influx_db).await?;
            status(&database).await
        })
    }
}

async fn status(database: &InfluxDatabase) -> Result<MlStatusText, ToolError> {
    let (mut rows, mut failed) = (BTreeMap::new(), BTreeMap::new());
    for (name, sql) in QUERIES {
        match database.query(sql).await {
            Ok(found) => drop(rows.insert(name, found)),
            Err(why) => drop(failed.insert(name, why)),
        }
    }
    if rows.is_empty() {
        let message = format!("no query was answered: {}", failed[STATUS]);
        return Err(ToolError::new(Layer::Actor, codes::ML_STATUS_FAILED, message)
            .next("check the database, its name and its token")
            .detail("failed", serde_json::to_value(&failed).unwrap_or_default())
            .retryable());
    }
    let mut text = String::from("Training\n");
    let losses = newest(rows.get(LOSS), "model");
    section(&mut text, &newest(rows.get(STATUS), "model"), failed.get(STATUS), |model, row| {
        let loss = losses.get(model).map(|row| {
            let [loss, speed] = ["loss", "tokens_per_sec"].map(|key| shown(&row[key]));
            format!(", loss {loss}, {speed} tokens/s")
        });
        let [run, status, at, of, pct] =
            ["run_id", "status", "iteration", "total_iters", "pct"].map(|key| shown(&row[key]));
        format!("{model} ({run}): {status}, {at} of {of} ({pct} %){}", loss.unwrap_or_default())
    });
    text.push_str("Generation\n");
    for (name, word) in [(GOLDEN, "golden"), (EXPANSION, "expansion")] {
        section(&mut text, &newest(rows.get(name), "worker"), failed.get(name), |worker, row| {
            let [done, of, pct] = ["completed", "target", "pct"].map(|key| shown(&row[key]));
            format!("{word} {worker}: {done} of {of} ({pct} %)")
        });
    }
    Ok(MlStatusText { status: text, failed })
}

type Newest<'a> = BTreeMap<&'a str, &'a serde_json::Map<String, Value>>;

/// The first row of each name: the newest ones come first.
fn newest<'a>(rows: Option<&'a Rows>, key: &str) -> Newest<'a> {
    let mut newest = Newest::new();
    for row in rows.into_iter().flatten() {
        if let Some(name) = row.get(key).and_then(Value::as_str) {
            newest.entry(name).or_insert(row);
        }
    }
    newest
}

fn section(
    text: &mut String,
    rows: &Newest<'_>,
    failed: Option<&String>,
    line: impl Fn(&str, &serde_json::Map<String, Value>) -> String,
) {
    // Writing to a string does not fail.
    let _ = match (failed, rows.is_empty()) {
        (Some(why), _) => writeln!(text, "  (the query failed: {why})"),
        (None, true) => writeln!(text, "  (no data)"),
        (None, false) => Ok(()),
    };
    for (name, row) in rows {
        let _ = writeln!(text, "  {}", line(name, row));
    }
}

/// A value for people, in few characters.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "?".to_owned(),
        Value::String(text) => text.chars().filter(|c| !c.is_control()).take(60).collect(),
        Value::Number(number) => match number.as_f64() {
            Some(value) if number.is_f64() => format!("{value:.3}"),
            _ => number.to_string(),
        },
        other => other.to_string().chars().take(60).collect(),
    }
}

tools! { pub(crate) FAMILY: "ml" for ModelsActor, singleton models;
    ml_status: MlStatus => MlStatusText = ModelsActor::status {
        title: "Show trainings", effect: Read, open_world: true,
    };
}
