//! Size limit: a result must fit what its tool declared.
//!
//! A cut result would be a lie to a program and break its output schema, so one that is larger is kept
//! whole for its user, and the answer is an error that says where, how it begins, and which parameters
//! make it smaller. Where it cannot be kept, the error says so instead.

use std::{io, time::Duration};

use hivekeep_kernel::{CallId, Effect, Layer, SessionId, ToolError, User};
use hivekeep_ports::{KeptResult, LargeResult, ResultKeeper};
use serde_json::{Value, json};

use super::Inner;
use crate::{Catalogue, Redactor, ToolEntry, ToolView, codes};

/// Parameters that make results smaller, by their usual names.
const NARROWING: [&str; 12] = [
    "limit",
    "max_bytes",
    "max_output_bytes",
    "max_lines",
    "lines",
    "tail",
    "max_results",
    "count",
    "offset",
    "depth",
    "pattern",
    "path",
];

/// How much of the beginning of a result is shown.
const PREVIEW_BYTES: usize = 2 * 1024;
/// Read beyond that, so that a credential at the end of the preview is seen whole and hidden.
const BEYOND_BYTES: usize = 4 * 1024;
/// How long a caller waits for the disk.
const PATIENCE: Duration = Duration::from_secs(30);

/// Owner of a result, with the size limit of its security context.
pub(crate) struct ResultOwner<'a> {
    /// None for a session that is over.
    pub(crate) user: Option<User>,
    pub(crate) session: SessionId,
    pub(crate) call: CallId,
    pub(crate) view: &'a ToolView,
    /// Limit of the security context, where it is below the tool's.
    pub(crate) most_bytes: Option<usize>,
}

impl ResultOwner<'_> {
    /// Largest result that reaches the caller whole.
    fn budget(&self, entry: &ToolEntry) -> usize {
        let declared = entry.spec.result_budget_bytes;
        self.most_bytes.map_or(declared, |most| most.min(declared))
    }
}

pub(super) async fn enforce(
    inner: &Inner,
    entry: &ToolEntry,
    owner: ResultOwner<'_>,
    value: Value,
) -> Result<Value, ToolError> {
    let budget = owner.budget(entry);
    within(inner, entry, owner, value, budget).await
}

/// Like [`enforce`], with another budget.
pub(super) async fn within(
    inner: &Inner,
    entry: &ToolEntry,
    owner: ResultOwner<'_>,
    value: Value,
    budget: usize,
) -> Result<Value, ToolError> {
    if fits(&value, budget) {
        return Ok(value);
    }
    // Boxed, so that calls whose results fit do not carry its future.
    Err(Box::pin(too_large(inner, entry, owner, value, budget)).await)
}

/// True for a value of at most so many bytes of JSON.
pub(super) fn fits(value: &Value, budget: usize) -> bool {
    serde_json::to_writer(&mut Counter { left: budget }, value).is_ok()
}

async fn too_large(
    inner: &Inner,
    entry: &ToolEntry,
    owner: ResultOwner<'_>,
    value: Value,
    budget: usize,
) -> ToolError {
    let error = refusal(entry, budget).detail("preview", preview(&inner.redactor, &value));
    let Some(keeper) = &inner.results else { return error };
    match keep(&**keeper, entry, &owner, value).await {
        Ok(kept) => told(inner, error, &owner, keeper.reader(), &kept),
        Err(why) => error.detail("not_kept", json!({ "code": why.code, "message": why.message })),
    }
}

/// The refusal as it is where nothing can be kept.
fn refusal(entry: &ToolEntry, budget: usize) -> ToolError {
    let narrow = narrowing(entry);
    let step = match narrow.as_slice() {
        [] => "ask for less".to_owned(),
        names => format!("ask for less with `{}`", names.join("` or `")),
    };
    let done = match entry.spec.effect {
        Effect::Read => "",
        _ => "; what it was to do is done",
    };
    let message = format!("the result of `{}` is larger than {budget} bytes{done}", entry.name());
    ToolError::new(Layer::Result, codes::RESULT_TOO_LARGE, message)
        .next(step)
        .detail("budget_bytes", budget)
        .detail("narrow_by", narrow)
}

async fn keep(
    keeper: &dyn ResultKeeper,
    entry: &ToolEntry,
    owner: &ResultOwner<'_>,
    value: Value,
) -> Result<KeptResult, ToolError> {
    let &ResultOwner { user, session, call, .. } = owner;
    let over = || ToolError::new(Layer::Session, codes::SESSION_ENDED, "its session is over");
    let user = user.ok_or_else(over)?;
    let result = LargeResult { user, session, call, tool: entry.spec.name, value };
    let kept = tokio::time::timeout(PATIENCE, keeper.keep(result)).await;
    kept.unwrap_or_else(|_| Err(ToolError::deadline(Layer::Store, PATIENCE.as_secs())))
}

/// The refusal with where the result is.
fn told(
    inner: &Inner,
    mut error: ToolError,
    owner: &ResultOwner<'_>,
    reader: &'static str,
    kept: &KeptResult,
) -> ToolError {
    let read = step_for(owner.view, &inner.catalogue.now(), reader);
    let otherwise = error.next_step.take().unwrap_or_default();
    error.message.push_str(&format!("; all of it is kept as {}", kept.uri));
    error.next(format!("{read}, or {otherwise}")).detail("artifact", json!(kept))
}

/// How to read what is kept, for a caller with this view.
pub(super) fn step_for(view: &ToolView, catalogue: &Catalogue, reader: &'static str) -> String {
    match catalogue.find(reader).filter(|entry| view.shows(entry.spec)) {
        Some(entry) => format!("read it in ranges with `{}`", view.name(entry.spec)),
        None => "have the operator read it with `hivekeep artifact get`".to_owned(),
    }
}

fn narrowing(entry: &ToolEntry) -> Vec<&'static str> {
    let properties = entry.input_schema.get("properties");
    let has = |name: &&str| properties.is_some_and(|all| all.get(*name).is_some());
    NARROWING.into_iter().filter(has).collect()
}

/// The beginning of a result as JSON, without credentials, cut between two characters.
fn preview(redactor: &Redactor, value: &Value) -> String {
    let mut head = Head(Vec::new());
    // Writing ends with an error where the head is full.
    let _full = serde_json::to_writer(&mut head, value);
    let mut text = String::from_utf8_lossy(&head.0);
    if let Err(error) = std::str::from_utf8(&head.0) {
        text = String::from_utf8_lossy(&head.0[..error.valid_up_to()]);
    }
    let text = redactor.text(&text);
    text[..text.floor_char_boundary(PREVIEW_BYTES)].to_owned()
}

/// Takes the beginning of what is written.
struct Head(Vec<u8>);

impl io::Write for Head {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = (PREVIEW_BYTES + BEYOND_BYTES) - self.0.len();
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() > room { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Counts what is written and stops at the budget.
struct Counter {
    left: usize,
}

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.left.checked_sub(bytes.len()) {
            Some(left) => {
                self.left = left;
                Ok(bytes.len())
            }
            None => Err(io::ErrorKind::FileTooLarge.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use schemars::{Schema, json_schema};
    use serde_json::json;

    use super::*;
    use crate::{RedactionOptions, catalogue::tests::catalogue_of};

    fn input() -> Schema {
        json_schema!({ "type": "object", "description": "x", "properties": {
            "limit": { "type": "integer", "description": "x" },
            "other": { "type": "integer", "description": "x" },
        } })
    }

    fn fits(budget: usize, text: &str) -> bool {
        serde_json::to_writer(&mut Counter { left: budget }, &json!({ "a": text })).is_ok()
    }

    #[test]
    fn the_budget_is_exact_and_counts_json_bytes() {
        let framing = r#"{"a":""}"#.len();
        assert!(fits(100, &"x".repeat(100 - framing)) && !fits(100, &"x".repeat(101 - framing)));
        assert!(fits(100, &"é".repeat(50 - framing / 2)));
        assert!(!fits(100, &"é".repeat(51 - framing / 2)));
        assert!(!fits(100, &"\n".repeat(50)), "escapes count");
    }

    #[test]
    fn a_context_may_allow_less_than_the_tool_and_not_more() {
        let catalogue = catalogue_of(Effect::Read, input);
        let entry = catalogue.entries().next().expect("one");
        let budget = |most_bytes| {
            let (view, session, call) = (&ToolView::default(), SessionId::new(), CallId::new());
            ResultOwner { user: None, session, call, view, most_bytes }.budget(entry)
        };
        assert_eq!([budget(None), budget(Some(99)), budget(Some(101))], [100, 99, 100]);
    }

    #[test]
    fn the_refusal_names_what_makes_it_smaller_and_what_was_done() {
        let of = |effect| refusal(catalogue_of(effect, input).entries().next().expect("one"), 9);
        let read = of(Effect::Read);
        assert_eq!(read.details["narrow_by"], json!(["limit"]));
        assert!(read.next_step.expect("a step").contains("`limit`"));
        assert!(!read.message.contains("is done"));
        assert!(of(Effect::Write).message.contains("what it was to do is done"));
    }

    #[test]
    fn a_preview_is_cut_between_characters_and_shows_no_part_of_a_credential() {
        let redactor = Redactor::new(&RedactionOptions::default()).expect("patterns");
        for shift in 0..4 {
            let text = format!("{}{}", "x".repeat(shift), "é𝄞".repeat(5_000));
            let shown = preview(&redactor, &json!({ "a": text }));
            assert!(shown.len() <= PREVIEW_BYTES && shown.len() > PREVIEW_BYTES - 4);
            assert!(json!({ "a": text }).to_string().starts_with(&shown));
        }
        let secret = format!("ghp_{}", "a1B2".repeat(9));
        for before in [PREVIEW_BYTES - 20, PREVIEW_BYTES - 60, 5] {
            let text = format!("{} {secret} {}", "x".repeat(before), "y".repeat(9_000));
            let shown = preview(&redactor, &json!({ "a": text }));
            assert!(!shown.contains("ghp_"), "{before}: {shown}");
        }
        assert_eq!(preview(&redactor, &json!({ "a": 1 })), r#"{"a":1}"#);
    }
}
