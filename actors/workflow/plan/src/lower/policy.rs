//! Policies of steps and DAGs as those of a plan.

use hivekeep_manifest::dag::{
    ContinueOn, ContinueOnDetail, ContinueOnRule, DagBackoff, DagCount, DagEnv, DagEnvItem,
    DagPreconditionItem, DagPreconditions, DagRetryPolicy, DagStatusCodes, DagStep, RepeatPolicy,
    StepRetryPolicy,
};

use super::LowerError;
use crate::plan::{AttemptPolicy, ExitCodes, FailurePolicy, RepeatBound};

/// Factor of a pause that doubles.
const DOUBLE: f64 = 2.0;

/// Resolver of numbers that are written with references.
pub(super) struct Counts<'c>(pub(super) &'c dyn Fn(&str) -> Option<String>);

impl Counts<'_> {
    fn number(&self, count: &DagCount) -> Result<u64, LowerError> {
        match count {
            DagCount::Number(number) => Ok(*number),
            DagCount::Text(text) => {
                let resolved = (self.0)(text).and_then(|text| text.trim().parse().ok());
                resolved.ok_or_else(|| LowerError::Count(text.clone()))
            }
        }
    }

    fn ms(&self, secs: &DagCount) -> Result<u64, LowerError> {
        self.number(secs).map(|secs| secs.saturating_mul(1_000))
    }

    fn limit(&self, count: &DagCount) -> Result<u32, LowerError> {
        self.number(count).map(|count| u32::try_from(count).unwrap_or(u32::MAX))
    }
}

pub(super) fn of_step(
    policy: &StepRetryPolicy,
    counts: &Counts<'_>,
) -> Result<AttemptPolicy, LowerError> {
    Ok(AttemptPolicy {
        limit: counts.limit(&policy.limit)?,
        interval_ms: counts.ms(&policy.interval_sec)?,
        growth: growth(policy.backoff),
        longest_ms: longest(policy.max_interval_sec),
        codes: codes(policy.exit_code.as_ref()),
    })
}

pub(super) fn of_dag(
    policy: &DagRetryPolicy,
    counts: &Counts<'_>,
) -> Result<AttemptPolicy, LowerError> {
    Ok(AttemptPolicy {
        limit: counts.limit(&policy.limit)?,
        interval_ms: counts.ms(&policy.interval_sec)?,
        growth: growth(policy.backoff),
        longest_ms: longest(policy.max_interval_sec),
        codes: ExitCodes::default(),
    })
}

pub(super) fn repeats(
    policy: &RepeatPolicy,
    counts: &Counts<'_>,
) -> Result<RepeatBound, LowerError> {
    let interval_ms = policy.interval_sec.as_ref().map(|secs| counts.ms(secs)).transpose()?;
    let longest = policy.max_interval_sec.as_ref().map(|secs| counts.ms(secs)).transpose()?;
    let rounds = policy.limit.as_ref().map(|limit| counts.limit(limit)).transpose()?;
    Ok(RepeatBound {
        rounds,
        interval_ms: interval_ms.unwrap_or_default(),
        growth: growth(policy.backoff),
        longest_ms: longest.unwrap_or(u64::MAX),
    })
}

fn growth(backoff: Option<DagBackoff>) -> f64 {
    match backoff {
        Some(DagBackoff::Doubles(true)) => DOUBLE,
        Some(DagBackoff::Factor(factor)) => factor,
        Some(DagBackoff::Doubles(false)) | None => 1.0,
    }
}

fn longest(secs: Option<u64>) -> u64 {
    secs.map_or(u64::MAX, |secs| secs.saturating_mul(1_000))
}

fn codes(codes: Option<&DagStatusCodes>) -> ExitCodes {
    ExitCodes(codes.map(DagStatusCodes::codes).unwrap_or_default())
}

pub(super) fn failure(continue_on: Option<&ContinueOn>) -> FailurePolicy {
    match continue_on {
        None => FailurePolicy::default(),
        Some(ContinueOn::Named(rule)) => FailurePolicy {
            failed: *rule == ContinueOnRule::Failed,
            skipped: *rule == ContinueOnRule::Skipped,
            ..FailurePolicy::default()
        },
        Some(ContinueOn::Detail(detail)) => {
            let ContinueOnDetail { failure, skipped, exit_code, mark_success, .. } = detail;
            let is = |truth: &Option<bool>| truth.unwrap_or_default();
            FailurePolicy {
                failed: is(failure),
                skipped: is(skipped),
                codes: codes(exit_code.as_ref()),
                counts_as_success: is(mark_success),
            }
        }
    }
}

/// Step with what the DAG says for all that say nothing: environment and conditions are added before its own.
pub(super) fn with_defaults(mut step: DagStep, defaults: Option<&DagStep>) -> DagStep {
    let Some(defaults) = defaults else { return step };
    let DagStep { retry_policy, continue_on, repeat_policy, timeout_sec, .. } = defaults;
    step.retry_policy = step.retry_policy.or_else(|| retry_policy.clone());
    step.continue_on = step.continue_on.or_else(|| continue_on.clone());
    step.repeat_policy = step.repeat_policy.or_else(|| repeat_policy.clone());
    step.timeout_sec = step.timeout_sec.or(*timeout_sec);
    step.mail_on_error = step.mail_on_error.or(defaults.mail_on_error);
    step.signal_on_stop = step.signal_on_stop.or_else(|| defaults.signal_on_stop.clone());
    step.env = match (&defaults.env, step.env) {
        (Some(before), Some(own)) => Some(DagEnv::List([items(before), items(&own)].concat())),
        (before, own) => own.or_else(|| before.clone()),
    };
    step.preconditions = match (&defaults.preconditions, step.preconditions) {
        (Some(before), Some(own)) => {
            Some(DagPreconditions::More([conditions(before), conditions(&own)].concat()))
        }
        (before, own) => own.or_else(|| before.clone()),
    };
    step
}

fn items(env: &DagEnv) -> Vec<DagEnvItem> {
    match env {
        DagEnv::List(items) => items.clone(),
        DagEnv::Map(map) => vec![DagEnvItem::Map(map.clone())],
    }
}

fn conditions(conditions: &DagPreconditions) -> Vec<DagPreconditionItem> {
    match conditions {
        DagPreconditions::Command(line) => vec![DagPreconditionItem::Command(line.clone())],
        DagPreconditions::More(list) => list.clone(),
    }
}
