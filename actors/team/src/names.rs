//! Name port of teams.

use hivekeep_kernel::ToolError;
use hivekeep_runtime::names::{KnownNames, Names};
use serde_json::{Map, Value};

use crate::api::TeamResult;

/// Names of all teams.
pub(crate) struct TeamNames;

impl Names for TeamNames {
    fn kind(&self) -> &'static str {
        "team"
    }

    fn tool(&self) -> &'static str {
        "team"
    }

    fn args(&self) -> Map<String, Value> {
        Map::from_iter([("action".to_owned(), "list".into())])
    }

    fn known(&self, answer: Value) -> Result<KnownNames, ToolError> {
        let output: TeamResult = serde_json::from_value(answer)
            .map_err(|error| ToolError::internal(error.to_string()))?;
        let teams = output.teams.unwrap_or_default();
        Ok(KnownNames { names: teams.into_iter().map(|row| row.name).collect(), complete: true })
    }
}
