//! Logs of a sandbox: its console and `stderr`. Their lines have no times.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, Query, State},
};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    error::E2bError,
    state::{E2b, Owner},
};

/// Lines for which a client names no number, and the most.
const MOST: usize = 1_000;

/// Lines that are wanted.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(in super::super) struct LogQuery {
    /// Milliseconds of the epoch, as `cursor`.
    #[serde(alias = "cursor")]
    start: i64,
    limit: Option<usize>,
    direction: Option<String>,
    level: Option<String>,
    search: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct LogTexts {
    console: Option<String>,
    stderr: Option<String>,
}

impl LogQuery {
    /// Lines with their levels, the oldest first unless asked otherwise.
    fn lines(&self, texts: &LogTexts) -> Result<Vec<(String, &'static str)>, E2bError> {
        let least = match self.level.as_deref() {
            None | Some("debug" | "info") => 0,
            Some("warn") => 1,
            Some("error") => 2,
            Some(other) => return Err(E2bError::invalid(format!("`{other}` is not a level"))),
        };
        let of = |text: &Option<String>, level: &'static str| -> Vec<(String, &'static str)> {
            text.iter().flat_map(|it| it.lines()).map(|line| (line.to_owned(), level)).collect()
        };
        let mut lines = of(&texts.console, "info");
        lines.extend(of(&texts.stderr, "warn"));
        lines.retain(|(line, level)| {
            let grade = usize::from(*level == "warn");
            grade >= least && self.search.as_ref().is_none_or(|text| line.contains(text))
        });
        match self.direction.as_deref() {
            None | Some("forward") => {}
            Some("backward") => lines.reverse(),
            Some(other) => return Err(E2bError::invalid(format!("`{other}` is not a direction"))),
        }
        lines.truncate(self.limit.unwrap_or(MOST));
        Ok(lines)
    }
}

impl E2b {
    async fn log(
        &self,
        owner: &Owner,
        id: &str,
        query: &LogQuery,
    ) -> Result<(DateTime<Utc>, Vec<(String, &'static str)>), E2bError> {
        let sandbox = self.sandbox(owner, id).await?;
        let now = Utc::now();
        // All lines are of before now.
        if query.start > now.timestamp_millis() {
            return Ok((now, Vec::new()));
        }
        if query.start > sandbox.created_at.timestamp_millis() {
            let why = "lines since a time (the lines of a log have none here)";
            return Err(E2bError::unsupported(why));
        }
        let asked = json!({ "workspace_id": sandbox.name, "max_lines": MOST });
        let texts = self.ask(owner, "workspace_logs", asked).await?;
        Ok((now, query.lines(&texts)?))
    }
}

/// `GET /sandboxes/{id}/logs`.
pub(in super::super) async fn logs(
    State(e2b): State<Arc<E2b>>,
    owner: Owner,
    Path(id): Path<String>,
    Query(query): Query<LogQuery>,
) -> Result<Json<Value>, E2bError> {
    let (at, lines) = e2b.log(&owner, &id, &query).await?;
    let plain = lines.iter().map(|(line, _)| json!({ "timestamp": at, "line": line }));
    let (plain, entries) = (plain.collect::<Vec<_>>(), entries(at, &lines));
    Ok(Json(json!({ "logs": plain, "logEntries": entries })))
}

/// `GET /v2/sandboxes/{id}/logs`.
pub(in super::super) async fn logs_v2(
    State(e2b): State<Arc<E2b>>,
    owner: Owner,
    Path(id): Path<String>,
    Query(query): Query<LogQuery>,
) -> Result<Json<Value>, E2bError> {
    let (at, lines) = e2b.log(&owner, &id, &query).await?;
    Ok(Json(json!({ "logs": entries(at, &lines) })))
}

fn entries(at: DateTime<Utc>, lines: &[(String, &str)]) -> Vec<Value> {
    let entry = |(line, level): &(String, &str)| json!({ "timestamp": at, "message": line, "level": level, "fields": {} });
    lines.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_chosen_by_what_is_asked_for() {
        let texts = LogTexts { console: Some("a\nab".into()), stderr: Some("abc\n".into()) };
        let lines = |query: Value| {
            let query: LogQuery = serde_json::from_value(query).expect("a query");
            query.lines(&texts).map(|lines| lines.into_iter().map(|it| it.0).collect::<Vec<_>>())
        };
        assert_eq!(lines(json!({})).expect("lines"), ["a", "ab", "abc"]);
        assert_eq!(lines(json!({ "search": "b", "limit": 1 })).expect("lines"), ["ab"]);
        assert_eq!(lines(json!({ "level": "warn" })).expect("lines"), ["abc"]);
        assert!(lines(json!({ "level": "error" })).expect("lines").is_empty());
        assert_eq!(lines(json!({ "direction": "backward", "limit": 1 })).expect("lines"), ["abc"]);
        assert!(lines(json!({ "level": "loud" })).is_err());
    }
}
