//! The layers of text: environment variables and `--set` flags.

use serde_json::Value;

use super::{ConfigProblem, ProblemSource, layers::Leaf};

/// Variables with a meaning of their own; see [`super::folders`] and [`super::load`].
const RESERVED: [&str; 2] = ["HIVEKEEP_HOME", "HIVEKEEP_CONFIG"];

/// Leaves of `HIVEKEEP_SECTION__KEY` variables.
pub(super) fn leaves(env: &[(String, String)]) -> Vec<Leaf> {
    env.iter()
        .filter(|(name, _)| name.starts_with("HIVEKEEP_") && !RESERVED.contains(&name.as_str()))
        .map(|(name, text)| Leaf {
            path: name["HIVEKEEP_".len()..].to_lowercase().split("__").map(str::to_owned).collect(),
            candidates: readings(text),
            source: ProblemSource::Env { name: name.clone() },
        })
        .collect()
}

/// Leaves of `section.key=value` flags.
pub(super) fn flags(flags: &[(String, String)]) -> (Vec<Leaf>, Vec<ConfigProblem>) {
    let (mut leaves, mut problems) = (Vec::new(), Vec::new());
    for (name, text) in flags {
        let source = ProblemSource::Flag { name: name.clone() };
        match text.split_once('=') {
            Some((key, value)) => leaves.push(Leaf {
                path: key.trim().split('.').map(str::to_owned).collect(),
                candidates: readings(value),
                source,
            }),
            None => problems.push(ConfigProblem {
                source,
                key: text.clone(),
                reason: "expected SECTION.KEY=VALUE".to_owned(),
            }),
        }
    }
    (leaves, problems)
}

/// Possible readings of a text: the text itself, or the JSON it spells. The key's type decides.
fn readings(text: &str) -> Vec<Value> {
    let spelled = serde_json::from_str::<Value>(text).ok();
    std::iter::once(Value::from(text)).chain(spelled).collect()
}
