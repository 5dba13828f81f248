//! Waits of a run: for a time, which is a time in its records, and for a file or an answer, which are looked for.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use hivekeep_kernel::ToolError;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{
    RunSaga,
    command::LONGEST_SECS,
    failure::failed,
    files::path_word,
    node_try::NodeTry,
    requests::{StepRequest, of_key, status_of},
};

/// Pause between two looks where a step names none, and the shortest.
const POLL: Duration = Duration::from_secs(1);
/// Time limit of a request where a step names none.
const REQUEST: Duration = Duration::from_secs(10);
/// Longest wait for a time.
const MOST_DAYS: i64 = 366;

/// Time that a step waits for; none if it is over. Before the first look that is computed, behind it recorded.
///
/// # Errors
/// `step_failed` for a time that is none, or too far away.
pub(super) fn wait_end(
    of: &NodeTry<'_>,
    action: &str,
    with: &Map<String, Value>,
) -> Result<Option<DateTime<Utc>>, ToolError> {
    let now = Utc::now();
    let recorded = of.state.left.get(&of.key.node).and_then(|left| left.until);
    let text = |name: &str| with.get(name).and_then(Value::as_str).unwrap_or_default().trim();
    let until = match (recorded, action) {
        (Some(until), _) => until,
        (None, "wait.until") => {
            let until = DateTime::parse_from_rfc3339(text("until"));
            let unreadable = |_| {
                let until = text("until");
                failed(format!("`with.until` is a time as 2030-01-02T03:04:05Z: {until:.80}"))
            };
            until.map_err(unreadable)?.to_utc()
        }
        (None, _) => {
            let span = TimeDelta::from_std(span(text("duration"), "duration")?).ok();
            span.and_then(|span| now.checked_add_signed(span)).unwrap_or(DateTime::<Utc>::MAX_UTC)
        }
    };
    if until.signed_duration_since(now).num_days() > MOST_DAYS {
        return Err(failed(format!("{until} is more than {MOST_DAYS} days away")));
    }
    Ok((until > now).then_some(until))
}

/// Time span of numbers with units, as `1h30m` or `500ms`; without a unit seconds.
///
/// # Errors
/// `step_failed` for another text.
pub(super) fn span(text: &str, name: &str) -> Result<Duration, ToolError> {
    let bad = || failed(format!("`with.{name}` is a time span as 30s or 1h30m: {text:.80}"));
    if let Ok(secs) = text.parse::<u32>() {
        return Ok(Duration::from_secs(secs.into()));
    }
    let (mut rest, mut secs) = (text, 0.0_f64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let (number, behind) = rest.split_at(digits);
        let letters = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(letters);
        let each = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return Err(bad()),
        };
        secs += number.parse::<f64>().map_err(|_| bad())? * each;
        rest = behind;
    }
    let span = Duration::try_from_secs_f64(secs).ok().filter(|_| !text.is_empty());
    span.ok_or_else(bad)
}

fn poll_of(with: &Map<String, Value>) -> Result<Duration, ToolError> {
    let text = with.get("poll_interval").and_then(Value::as_str);
    Ok(text.map(|text| span(text, "poll_interval")).transpose()?.unwrap_or(POLL).max(POLL))
}

impl RunSaga {
    /// Waits for a file, or for its end.
    ///
    /// # Errors
    /// `step_failed` where the step's time is over.
    pub(super) async fn wait_file(
        &self,
        of: &NodeTry<'_>,
        with: &Map<String, Value>,
    ) -> Result<String, ToolError> {
        let text = |name: &str| with.get(name).and_then(Value::as_str).unwrap_or_default();
        let until = match text("state") {
            "" | "exists" => "",
            "missing" => "! ",
            other => {
                let message = format!("`with.state` is `exists` or `missing`: {other:.80}");
                return Err(failed(message));
            }
        };
        let script = format!(
            "p={}\nuntil {until}{{ [ -e \"$p\" ] || [ -L \"$p\" ]; }}; do sleep {}; done\n",
            path_word(text("path"), "path")?,
            poll_of(with)?.as_secs(),
        );
        self.helper(of, "wait", script).await.map(|_| String::new())
    }

    /// Waits for an answer with a status.
    ///
    /// # Errors
    /// `step_failed` where the step's time is over, or for a request that can never be made.
    pub(super) async fn wait_http(
        &self,
        of: &NodeTry<'_>,
        with: &Map<String, Value>,
    ) -> Result<String, ToolError> {
        let wanted = with.get("status").map(hivekeep_plan::resolve::value_text);
        let wanted = match wanted.map(|text| text.trim().parse::<u16>()) {
            None => 200,
            Some(Ok(status)) => status,
            Some(Err(_)) => return Err(failed("`with.status` is not a status of HTTP".to_owned())),
        };
        let mut request = StepRequest::of(with, "GET")?;
        let limit = with.get("request_timeout").and_then(Value::as_str);
        let limit = limit.map(|text| span(text, "request_timeout")).transpose()?;
        request.timeout = limit.unwrap_or(REQUEST);
        let poll = poll_of(with)?;
        let secs = of.node.step.timeout_sec.filter(|secs| *secs > 0).unwrap_or(LONGEST_SECS);
        let until = Instant::now() + Duration::from_secs(secs);
        let cancel = self.cancel_of(of.state, of.key);
        loop {
            let sent = cancel.run_until_cancelled(self.send(of.state, of_key(of), &request));
            let answered = match sent.await {
                None => return Err(ToolError::cancelled()),
                Some(sent) => status_of(sent)?,
            };
            if answered == Some(wanted) {
                return Ok(wanted.to_string());
            }
            let next = Instant::now() + poll;
            if next >= until {
                let told = answered.map_or("nothing".to_owned(), |status| status.to_string());
                return Err(failed(format!("within {secs} s {told} answered, not {wanted}")));
            }
            if cancel.run_until_cancelled(tokio::time::sleep_until(next)).await.is_none() {
                return Err(ToolError::cancelled());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_spans_are_numbers_with_units() {
        for (text, ms) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("1h30m", 5_400_000),
            ("1.5s", 1_500),
            ("7", 7_000),
            ("2d", 172_800_000),
        ] {
            assert_eq!(span(text, "x").map(|it| it.as_millis()).ok(), Some(ms), "{text}");
        }
        for text in ["", "s", "-1s", "1x", "1h3", "1.2.3s", "1e400h", "99999999999999999999d"] {
            assert!(span(text, "x").is_err(), "{text}");
        }
    }
}
