//! Validators of an agent, as its manifest has them, and the scores of those that need no judge.

mod ordered;

use std::{collections::BTreeSet, slice};

use hivekeep_manifest::{
    agent::{AgentExecution, Consensus, OutputStream, ToolValidator, Validation, Validator},
    common::JsonObject,
};
use hivekeep_runtime::{json_schema, json_text};
use regex::RegexBuilder;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use ordered::{JudgeSeat, OrderedPanel, OrderedScore};

/// Tools whose results have the exit status of a command, and whether they tell its standard error by itself.
const COMMANDS: [(&str, bool); 3] = [("cmd.run", true), ("exec", true), ("bash", false)];
/// Score from which a judge is content, where the manifest names none.
const JUDGE_SCORE: f64 = 0.7;
/// Longest judgment where the manifest names none.
const JUDGE_SECS: u64 = 300;
/// Memory of a compiled pattern, as when the manifest was checked.
const PATTERN_BYTES: usize = 1024 * 1024;
/// Violations of a schema that are told.
const MOST_REASONS: usize = 10;

/// Validators of an execution, in the order in which they are asked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ValidationPlan {
    /// Validators of an iteration's output.
    pub(crate) output: Vec<Validator>,
    /// Validators of a call that has side effects: judges alone.
    pub(crate) calls: Vec<Validator>,
    /// Place among those of the output of the one that a fork was begun with, to be the best of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) best_of: Option<usize>,
    /// Judges of whoever ordered the execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ordered: Option<OrderedPanel>,
}

/// Judges of a validator.
pub(crate) struct JudgeCheck<'v> {
    pub(crate) judges: &'v [String],
    pub(crate) criteria: &'v str,
    pub(crate) timeout_secs: u64,
    /// How several scores become one.
    pub(crate) consensus: Option<Consensus>,
    /// Judges that have to answer; of `best_of_n` also how many the best are.
    pub(crate) required: usize,
}

/// Command that an iteration ran last, or why its end is not known.
pub(super) type LastCommand<'c> = Result<&'c RanCommand, String>;

/// End of a command that a call ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RanCommand {
    pub(crate) exit_code: i64,
    /// Standard error, where a validator looks at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stderr: Option<String>,
}

impl ValidationPlan {
    pub(crate) fn is_empty(&self) -> bool {
        self.output.is_empty() && self.calls.is_empty()
    }

    /// Validators of a manifest none of which is [`refused`].
    pub(super) fn of(execution: Option<AgentExecution>) -> Self {
        let (output, calls) =
            execution.map_or((None, None), |it| (it.validation, it.tool_validation));
        let output = match output {
            Some(Validation::List(list)) => list,
            Some(Validation::Rules(_)) | None => Vec::new(),
        };
        let calls = calls.into_iter().flatten().map(
            |ToolValidator::Semantic {
                 judge_agent,
                 criteria,
                 min_score,
                 min_confidence,
                 timeout_seconds,
             }| {
                Validator::Semantic {
                    judge_agent,
                    criteria,
                    min_score,
                    min_confidence,
                    timeout_seconds,
                }
            },
        );
        Self { output, calls: calls.collect(), best_of: None, ordered: None }
    }

    /// Judges of a fork that is to be the best of several.
    pub(crate) fn best_of(&self) -> Option<&Validator> {
        self.output.get(self.best_of?)
    }

    /// Has the output of a fork judged, last and in place of what its source was judged by as a fork.
    pub(crate) fn judge_best_of(&mut self, by: Validator) {
        if let Some(before) = self.best_of.filter(|before| *before < self.output.len()) {
            self.output.remove(before);
        }
        self.best_of = Some(self.output.len());
        self.output.push(by);
    }

    /// Field of a validator.
    pub(super) fn field(&self, calls: bool, at: usize) -> String {
        match calls {
            false if self.best_of == Some(at) => "best_of".to_owned(),
            false if self.is_ordered(at) => "order".to_owned(),
            false => format!("spec.execution.validation[{at}]"),
            true => format!("spec.execution.tool_validation[{at}]"),
        }
    }

    /// Judges of all validators: whether of calls, the field that has it, the name.
    pub(crate) fn judges(&self) -> impl Iterator<Item = (bool, String, &String)> {
        let of =
            |calls: bool, list| (0..).zip(list).map(move |(at, validator)| (calls, at, validator));
        of(false, &self.output).chain(of(true, &self.calls)).flat_map(
            move |(calls, at, validator)| {
                let judges = judged_by(validator).map_or(&[][..], |it| it.judges);
                judges.iter().enumerate().map(move |(judge, name)| {
                    let part = match validator {
                        Validator::MultiJudge { .. } => format!("judges[{judge}]"),
                        _ => "judge_agent".to_owned(),
                    };
                    (calls, format!("{}.{part}", self.field(calls, at)), name)
                })
            },
        )
    }

    /// Whether a validator looks at the exit status.
    pub(super) fn reads_exit_code(&self) -> bool {
        self.output.iter().any(|it| matches!(it, Validator::ExitCode { .. }))
    }

    /// Whether the standard error of commands is looked at.
    pub(super) fn reads_stderr(&self) -> bool {
        self.output.iter().any(of_stderr)
    }
}

fn of_stderr(validator: &Validator) -> bool {
    matches!(validator, Validator::Regex { target: Some(OutputStream::Stderr), .. })
}

/// Judges of a validator; `None` for one that needs none.
pub(super) fn judged_by(validator: &Validator) -> Option<JudgeCheck<'_>> {
    let (judges, criteria, timeout, consensus, required) = match validator {
        Validator::Semantic { judge_agent, criteria, timeout_seconds, .. } => {
            (slice::from_ref(judge_agent), criteria, timeout_seconds, None, 1)
        }
        Validator::MultiJudge {
            judges,
            criteria,
            timeout_seconds,
            consensus,
            min_judges_required,
            ..
        } => {
            let consensus = consensus.unwrap_or(Consensus::WeightedAverage);
            let required = min_judges_required.unwrap_or(1);
            (judges.as_slice(), criteria, timeout_seconds, Some(consensus), required)
        }
        _ => return None,
    };
    Some(JudgeCheck {
        judges,
        criteria,
        timeout_secs: timeout.unwrap_or(JUDGE_SECS),
        consensus,
        required: usize::try_from(required).unwrap_or(usize::MAX),
    })
}

/// Least score and least confidence that a validator takes.
pub(super) fn least(validator: &Validator) -> (f64, f64) {
    let (score, usual, confidence) = match validator {
        Validator::ExitCode { min_score, .. }
        | Validator::JsonSchema { min_score, .. }
        | Validator::Regex { min_score, .. } => (min_score, 1.0, None),
        Validator::Semantic { min_score, min_confidence, .. }
        | Validator::MultiJudge { min_score, min_confidence, .. } => {
            (min_score, JUDGE_SCORE, *min_confidence)
        }
    };
    (score.map_or(usual, |it| it.0), confidence.map_or(0.0, |it| it.0))
}

/// Type of a validator, as manifests have it.
pub(super) fn name(validator: &Validator) -> &'static str {
    match validator {
        Validator::ExitCode { .. } => "exit_code",
        Validator::JsonSchema { .. } => "json_schema",
        Validator::Regex { .. } => "regex",
        Validator::Semantic { .. } => "semantic",
        Validator::MultiJudge { .. } => "multi_judge",
    }
}

/// Score of an output by a validator that needs no judge, with the reasons for a low one.
pub(super) fn score(
    validator: &Validator,
    output: &str,
    last: LastCommand<'_>,
) -> (f64, Vec<String>) {
    let found = match validator {
        Validator::ExitCode { expected, .. } => last.map_err(|why| vec![why]).and_then(|ran| {
            let (found, expected) = (ran.exit_code, expected.unwrap_or(0));
            let told =
                format!("the last command ended with exit code {found}, {expected} is expected");
            if u64::try_from(found) == Ok(expected) { Ok(()) } else { Err(vec![told]) }
        }),
        Validator::JsonSchema { schema, .. } => fits(schema, output),
        Validator::Regex { pattern, .. } if of_stderr(validator) => {
            let no_stderr = || vec!["the last command's tool tells no standard error".to_owned()];
            let ran = last.map_err(|why| vec![why]);
            let text = ran.and_then(|ran| ran.stderr.as_deref().ok_or_else(no_stderr));
            text.and_then(|text| matches(pattern, text, "the standard error of the last command"))
        }
        Validator::Regex { pattern, .. } => matches(pattern, output, "the output"),
        Validator::Semantic { .. } | Validator::MultiJudge { .. } => Ok(()),
    };
    found.map_or_else(|reasons| (0.0, reasons), |()| (1.0, Vec::new()))
}

/// Validators that nothing obeys, or that none of these tools could satisfy, with what to do instead. Of a program,
/// without tools here, it is its own end.
pub(super) fn refused(
    execution: &AgentExecution,
    tools: Option<&BTreeSet<String>>,
) -> Vec<(String, &'static str)> {
    let list = match &execution.validation {
        None => return Vec::new(),
        Some(Validation::List(list)) => list,
        Some(Validation::Rules(_)) => {
            let instead = "write a list of validators, each with its `type`";
            return vec![("spec.execution.validation".to_owned(), instead)];
        }
    };
    let Some(tools) = tools else { return Vec::new() };
    let has = |stderr: bool| {
        let is = |name: &str, tool: &String| tool.replace('.', "_") == name.replace('.', "_");
        let meant = COMMANDS.iter().filter(|(_, tells)| *tells || !stderr);
        meant.into_iter().any(|(name, _)| tools.iter().any(|tool| is(name, tool)))
    };
    let of_command = (0..).zip(list).filter_map(|(at, validator)| {
        let (may, instead) = match validator {
            Validator::ExitCode { .. } => (
                has(false),
                "name `cmd.run`, `exec` or `bash` in `tools`: it is that of the last command",
            ),
            _ if of_stderr(validator) => {
                (has(true), "name `cmd.run` or `exec` in `tools`: it is that of the last command")
            }
            _ => return None,
        };
        (!may).then(|| (format!("spec.execution.validation[{at}]"), instead))
    });
    of_command.collect()
}

/// Whether calls of a tool run commands.
pub(super) fn is_command(tool: &str) -> bool {
    COMMANDS.iter().any(|(name, _)| *name == tool)
}

/// End of a command, where a tool's result has one.
pub(super) fn ran_command(tool: &str, result: &Value, with_stderr: bool) -> Option<RanCommand> {
    if !is_command(tool) {
        return None;
    }
    let exit_code = result.get("exit_code")?.as_i64()?;
    let stderr = result.get("stderr").and_then(Value::as_str).filter(|_| with_stderr);
    Some(RanCommand { exit_code, stderr: stderr.map(str::to_owned) })
}

fn fits(schema: &JsonObject, output: &str) -> Result<(), Vec<String>> {
    let value: Value = serde_json::from_str(json_text::without_fence(output))
        .map_err(|error| vec![format!("the output is not JSON: {error}")])?;
    let schema = json_schema::validator(&Value::Object(schema.clone())).map_err(|why| vec![why])?;
    let told = |error: json_schema::ValidationError<'_>| {
        let path = error.instance_path().as_str().trim_start_matches('/').to_owned();
        format!("/{path}: {}", error.masked_with("the value"))
    };
    let reasons: Vec<_> = schema.iter_errors(&value).take(MOST_REASONS).map(told).collect();
    if reasons.is_empty() { Ok(()) } else { Err(reasons) }
}

fn matches(pattern: &str, text: &str, what: &str) -> Result<(), Vec<String>> {
    let compiled = RegexBuilder::new(pattern).size_limit(PATTERN_BYTES).build();
    let compiled = compiled.map_err(|error| vec![error.to_string()])?;
    match compiled.is_match(text) {
        true => Ok(()),
        false => Err(vec![format!("{what} does not match `{pattern}`")]),
    }
}
