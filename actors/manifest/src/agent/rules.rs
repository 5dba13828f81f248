//! Rules of an agent that its schema cannot say.

use std::collections::HashSet;

use chrono::Utc;

use super::{
    AgentDelivery, AgentManifest, AgentRuntime, AgentSchedule, AgentSpec, AgentVolume,
    JudgeFallback, OutputFormat, Validation, ValidationRules, Validator,
};
use crate::{
    common::{check_cron, check_json_schema, check_regex, check_unique},
    problems::{ManifestPath, ProblemList, at, not_there},
};

/// Checks an agent.
pub(crate) fn check(agent: &AgentManifest, problems: &mut ProblemList<'_>) {
    let AgentSpec { runtime, execution, schedule, tools, volumes, input_schema, .. } = &agent.spec;
    let spec = at!["spec"];
    check_runtime(runtime, &spec.join("runtime"), problems);
    if agent.spec.contexts.is_some() {
        let message = "the daemon keeps no accounts of services: have the operator add a source \
            with the service's tools, and name these in `tools`";
        problems.add_key(&spec.join("contexts"), message);
    }
    if let Some(execution) = execution {
        let at = spec.join("execution");
        if execution.max_retries.is_some() && execution.max_iterations.is_some() {
            problems.add_key(&at.join("max_iterations"), "is the same as `max_retries`: keep one");
        }
        if execution.memory == Some(true) {
            let message = "nothing is remembered between executions: remove it, and name `vault` \
                in `tools` to keep notes";
            problems.add(&at.join("memory"), message);
        }
        match &execution.validation {
            Some(Validation::List(list)) => {
                check_validators(list.iter(), &at.join("validation"), problems);
            }
            Some(Validation::Rules(rules)) => check_rules(rules, &at.join("validation"), problems),
            None => {}
        }
        if let Some(delivery) = &execution.delivery {
            check_delivery(delivery, &at.join("delivery").join("destinations"), problems);
        }
    }
    if let Some(schedule) = schedule {
        check_schedule(schedule, &spec.join("schedule"), problems);
    }
    check_unique(tools.iter().flatten(), &spec.join("tools"), problems);
    check_volumes(volumes.as_deref().unwrap_or_default(), &spec.join("volumes"), problems);
    if let Some(schema) = input_schema {
        check_json_schema(schema, &spec.join("input_schema"), problems);
    }
}

fn check_runtime(runtime: &AgentRuntime, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    let AgentRuntime { language, version, image, program, command, .. } = runtime;
    if program.is_some() && command.is_some() {
        let message = "stands in place of `program`: remove one of them";
        problems.add_key(&at.join("command"), message);
    }
    match (language, version, image) {
        (None, None, Some(_)) | (Some(_), Some(_), None) => {}
        (None, None, None) => problems.add(at, "needs `language` and `version`, or `image`"),
        (Some(_), None, None) => problems.add(at, "`language` needs `version`, too"),
        (None, Some(_), None) => problems.add(at, "`version` needs `language`, too"),
        (.., Some(_)) => {
            let message = "`image` stands in place of `language` and `version`: remove one of them";
            problems.add_key(&at.join("image"), message);
        }
    }
}

fn check_validators<'v>(
    validators: impl Iterator<Item = &'v Validator>,
    at: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    for (index, validator) in validators.enumerate() {
        let at = at.join(index);
        match validator {
            Validator::Regex { pattern, .. } => {
                check_regex(pattern, &at.join("pattern"), problems);
            }
            Validator::JsonSchema { schema, .. } => {
                check_json_schema(schema, &at.join("schema"), problems);
            }
            Validator::MultiJudge { judges, min_judges_required: Some(required), .. }
                if *required > judges.len() as u64 =>
            {
                let message = format!("there are {} judges only", judges.len());
                problems.add(&at.join("min_judges_required"), message);
            }
            _ => {}
        }
    }
}

fn check_rules(rules: &ValidationRules, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    if let Some(output) = &rules.output {
        let at = at.join("output");
        if output.format == Some(OutputFormat::Pdf) {
            let message = "an output is text: have the agent write the document to a file, and \
                judge that by `script`";
            problems.add(&at.join("format"), message);
        }
        if let Some(schema) = &output.schema {
            check_json_schema(schema, &at.join("schema"), problems);
            if !matches!(output.format, Some(OutputFormat::Json | OutputFormat::Yaml)) {
                problems.add_key(&at.join("schema"), "needs `format: json` or `format: yaml`");
            }
        }
        if let Some(pattern) = &output.regex {
            check_regex(pattern, &at.join("regex"), problems);
        }
    }
    let fallback = rules.semantic.as_ref().and_then(|rule| rule.fallback_on_unavailable);
    if fallback == Some(JudgeFallback::Skip) {
        let message = "a result that nobody has judged is not taken: write `fail`, or set \
            `enabled: false`";
        problems.add(&at.join("semantic").join("fallback_on_unavailable"), message);
    }
}

/// Tells tools that are not among the known names; `.` and `_` are one letter, as in calls.
pub(crate) fn check_tools(agent: &AgentManifest, known: &[&str], problems: &mut ProblemList<'_>) {
    let plain = |name: &str| name.replace('.', "_");
    let all: HashSet<_> = known.iter().map(|name| plain(name)).collect();
    for (index, name) in agent.spec.tools.iter().flatten().enumerate() {
        if !all.contains(&plain(name)) {
            problems.add(&at!["spec", "tools", index], not_there("tool", name, known));
        }
    }
}

pub(crate) fn check_delivery(
    delivery: &AgentDelivery,
    at: &ManifestPath,
    problems: &mut ProblemList<'_>,
) {
    check_unique(delivery.destinations.iter().map(|one| &one.name), at, problems);
    for (index, one) in delivery.destinations.iter().enumerate() {
        let kinds = [&one.email, &one.webhook, &one.rest, &one.sms];
        if kinds.into_iter().flatten().count() != 1 {
            problems.add(&at.join(index), "needs exactly one of `email`, `webhook`, `rest`, `sms`");
        }
    }
}

fn check_schedule(schedule: &AgentSchedule, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    let AgentSchedule::Cron { cron, timezone, .. } = schedule else { return };
    let before = problems.found.len();
    check_cron(cron, &at.join("cron"), problems);
    if schedule.zone().is_none() {
        let zone = timezone.as_deref().unwrap_or_default();
        let message = format!("`{zone:.40}` is not a time zone: write one as `Europe/Berlin`");
        problems.add(&at.join("timezone"), message);
    }
    let now = Utc::now();
    if problems.found.len() == before
        && schedule.times().is_some_and(|it| it.next(now, now).is_none())
    {
        problems.add(&at.join("cron"), "has no time that ever comes");
    }
}

fn check_volumes(volumes: &[AgentVolume], at: &ManifestPath, problems: &mut ProblemList<'_>) {
    check_unique(volumes.iter().map(|volume| &volume.name), at, problems);
    for (index, volume) in volumes.iter().enumerate() {
        let path = at.join(index).join("mount_path");
        if volume.mount_path.split('/').any(|part| part == "." || part == "..") {
            problems.add(&path, "may not have `.` or `..` in it");
        }
        let overlaps = |other: &&AgentVolume| {
            let (a, b) = (&other.mount_path, &volume.mount_path);
            let within =
                |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.starts_with('/'));
            a == b || within(a, b) || within(b, a)
        };
        if let Some(other) = volumes[..index].iter().find(overlaps) {
            let message = format!("overlaps the mount path of `{}`", other.name);
            problems.add(&path, message);
        }
    }
}
