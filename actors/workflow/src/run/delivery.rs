//! Receivers of a run's end: those of `delivery`, and of `mail_on`. Each attempt is recorded before it is made, and has
//! the key of its receiver, under which one that a crash cut is made again.

use std::time::Duration;

use chrono::Utc;
use hivekeep_kernel::{Layer, ToolError};
use hivekeep_manifest::{
    agent::{DeliveryCondition, DeliveryDestination},
    common::{AttemptLimit, JsonObject, SendAttempts, TimeSpan},
    dag::DagManifest,
};
use hivekeep_plan::{
    progress::{NodeOutcome, NodePhase, NodeResult, RunOutcome},
    resolve::{TextField, managed_env, resolve_value},
};
use hivekeep_runtime::log::LogError;
use serde_json::{Value, json};

use super::{
    RunFold, RunRecord, RunSaga,
    delivery_record::{DeliveryRecord, DeliveryStage},
    expand::run_outputs,
    requests::StepRequest,
    scope::{RunScopes, too_long},
};

/// Most receivers.
const MOST: usize = 16;
/// Most steps that are named in a message.
const MOST_NAMED: usize = 20;
/// Longest attempt at a mail.
const MAILING: Duration = Duration::from_secs(60);
/// Bytes of an answer that its event shows.
const SHOWN_BYTES: usize = 2 * 1024;

/// A receiver.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RunDelivery {
    name: String,
    condition: DeliveryCondition,
    /// True for a mail, false for a request.
    is_mail: bool,
    /// Settings as steps with `mail.send` or `http.request` have them.
    with: JsonObject,
    attempts: SendAttempts,
}

/// Receivers that a DAG names.
///
/// # Errors
/// The first field that no run obeys, in words.
pub(super) fn deliveries(dag: &DagManifest) -> Result<Vec<RunDelivery>, String> {
    let named = dag.delivery.iter().flat_map(|delivery| &delivery.destinations);
    let mut all = named.map(receiver).collect::<Result<Vec<_>, _>>()?;
    for (key, value) in dag.mail_on.iter().flatten() {
        let (field, mail, condition) = match key.as_str() {
            "success" => ("info_mail", &dag.info_mail, DeliveryCondition::OnSuccess),
            "failure" => ("error_mail", &dag.error_mail, DeliveryCondition::OnFailure),
            other => return Err(format!("`mail_on.{other:.80}`")),
        };
        if *value != true {
            continue;
        }
        let with = mail.clone().unwrap_or_default();
        if with.get("to").is_none_or(|to| *to == "" || *to == json!([])) {
            return Err(format!("`mail_on.{key}` without `{field}.to`"));
        }
        if with.get("attach_logs") == Some(&true.into()) {
            return Err(format!(
                "`{field}.attach_logs` (the mail names the command that shows them)"
            ));
        }
        let (name, attempts) = (field.to_owned(), SendAttempts::default());
        all.push(RunDelivery { name, condition, is_mail: true, with, attempts });
    }
    match all.len() > MOST {
        true => Err(format!("more than {MOST} receivers")),
        false => Ok(all),
    }
}

fn receiver(one: &DeliveryDestination) -> Result<RunDelivery, String> {
    let DeliveryDestination { name, condition, transform, email, webhook, rest, sms } = one;
    let field = |field: &str| format!("`{field}` of the receiver `{name:.80}`");
    if transform.is_some() {
        return Err(field("transform"));
    }
    let (is_mail, with) = match (email, webhook.as_ref().or(rest.as_ref())) {
        (Some(email), _) => (true, email),
        (None, Some(request)) => (false, request),
        (None, None) => return Err(field(if sms.is_some() { "sms" } else { "delivery" })),
    };
    let mut with = with.clone();
    if let Some(body) = with.remove("body_template") {
        with.entry("body").or_insert(body);
    }
    if let Some(timeout) = with.get_mut("timeout") {
        let span = serde_json::from_value::<TimeSpan>(timeout.take()).ok();
        let span = span.and_then(|span| span.duration()).ok_or_else(|| field("timeout"))?;
        *timeout = span.as_secs().max(1).into();
    }
    let retry = with.remove("retry").map(serde_json::from_value::<AttemptLimit>).transpose();
    let attempts = retry.ok().and_then(|retry| SendAttempts::of(retry.as_ref()));
    Ok(RunDelivery {
        name: name.clone(),
        condition: condition.unwrap_or(DeliveryCondition::Always),
        is_mail,
        with,
        attempts: attempts.ok_or_else(|| field("retry"))?,
    })
}

impl RunFold {
    /// Receivers of this end of the run, each with its place. One that was stopped tells nobody, nor does the body of a
    /// loop.
    fn told_of(&self) -> impl Iterator<Item = (usize, RunDelivery)> {
        let failed = match self.outcome() {
            Some(RunOutcome::Succeeded | RunOutcome::PartlySucceeded) => Some(false),
            Some(RunOutcome::Failed | RunOutcome::Rejected) => Some(true),
            Some(RunOutcome::Aborted) | None => None,
        };
        let wanted = failed.filter(|_| self.begun.body.is_none());
        let all = wanted.and_then(|_| deliveries(&self.begun.dag).ok()).unwrap_or_default();
        let is_meant = move |delivery: &RunDelivery| match delivery.condition {
            DeliveryCondition::OnSuccess => failed == Some(false),
            DeliveryCondition::OnFailure => failed == Some(true),
            DeliveryCondition::Always => true,
        };
        all.into_iter().enumerate().filter(move |(_, delivery)| is_meant(delivery))
    }

    /// Receiver that is told next.
    pub(super) fn delivery_due(&self) -> Option<usize> {
        let mut places = self.told_of().map(|(place, _)| place);
        places.find(|place| !self.delivered.get(place).is_some_and(DeliveryRecord::is_last))
    }

    /// Failures of the run in words.
    pub(super) fn failures(&self) -> Vec<String> {
        let refused = self.refused().map(ToolError::to_text);
        let nodes = self.work().into_iter().flat_map(|work| {
            let nodes = work.progress.plan().indexed();
            nodes.filter_map(|(at, node)| Some((at, node, &work.progress.node(at)?.phase)))
        });
        let failed = nodes.filter_map(|(at, node, phase)| match phase {
            NodePhase::Ended(NodeResult { outcome: NodeOutcome::Failed, exit_code, .. }) => {
                let error = self.left.get(&at).and_then(|left| left.error.as_ref());
                let code =
                    exit_code.map_or("failed".to_owned(), |code| format!("exit status {code}"));
                Some(format!("{}: {}", node.name, error.map_or(code, |it| it.message.clone())))
            }
            _ => None,
        });
        refused.into_iter().chain(failed.take(MOST_NAMED)).collect()
    }
}

fn word(outcome: Option<RunOutcome>) -> &'static str {
    match outcome {
        Some(RunOutcome::PartlySucceeded) => "partly_succeeded",
        Some(RunOutcome::Succeeded) => "succeeded",
        Some(RunOutcome::Rejected) => "rejected",
        Some(RunOutcome::Aborted) => "aborted",
        Some(RunOutcome::Failed) | None => "failed",
    }
}

impl RunSaga {
    /// Tells a receiver, until that has taken it or for the last time.
    pub(super) async fn deliver(&self, place: usize) -> Result<(), LogError> {
        let state = self.handle.state();
        // The parent waits for no receiver.
        self.inform(&state).await;
        let Some((_, delivery)) = state.told_of().find(|(at, _)| *at == place) else {
            return Ok(());
        };
        let name = &delivery.name;
        let record = async |attempt, stage| {
            let about = Box::new(DeliveryRecord { place, name: name.clone(), attempt, stage });
            self.handle.record(RunRecord::Delivered { about, at: Utc::now() }).await
        };
        let before = state.delivered.get(&place);
        let mut attempt = before.map_or(0, |before| before.attempt);
        let mut is_open = before.is_some_and(|before| before.stage == DeliveryStage::Begun);
        loop {
            if !std::mem::take(&mut is_open) {
                attempt += 1;
                record(attempt, DeliveryStage::Begun).await?;
            }
            let key = format!("{}-{}-{place}", state.begun.id, state.attempt);
            let error = match self.told(&state, &delivery, key).await {
                Ok(result) => return record(attempt, DeliveryStage::Done { result }).await,
                Err(error) => Box::new(error),
            };
            if self.shared.daemon.closing.is_cancelled() {
                // The next daemon tells it.
                return std::future::pending().await;
            }
            let last = attempt >= delivery.attempts.most || !error.retryable;
            record(attempt, DeliveryStage::Failed { error, last }).await?;
            if last {
                return Ok(());
            }
            tokio::time::sleep(delivery.attempts.pause).await;
        }
    }

    /// Makes an attempt; what the receiver answered.
    async fn told(
        &self,
        state: &RunFold,
        delivery: &RunDelivery,
        key: String,
    ) -> Result<Value, ToolError> {
        let mut with = resolved(state, &delivery.with)?;
        let status = word(state.outcome());
        let name = &state.begun.name;
        if delivery.is_mail {
            let prefix = with.get("prefix").and_then(Value::as_str).map(|it| format!("{it} "));
            let subject = format!("{}{name}: {status}", prefix.unwrap_or_default());
            with.entry("subject").or_insert_with(|| subject.into());
            let (failures, id) = (state.failures().join("\n"), state.begun.id);
            let text = format!(
                "The run {id} of the DAG {name}: {status}\n\n{failures}\n\nhivekeep dag runs {id} shows it.\n"
            );
            let text = with.remove("body").unwrap_or_else(|| text.into());
            with.entry("message").or_insert(text);
            let sent = tokio::time::timeout(MAILING, self.send_mail(state, key, &with)).await;
            let id = sent.map_err(|_| ToolError::deadline(Layer::Actor, MAILING.as_secs()))??;
            return Ok(json!({ "message_id": id }));
        }
        let (mut errors, mut outputs) = (state.failures(), None);
        match state.work().map(|work| run_outputs(state, work)) {
            Some(Ok(values)) => outputs = Some(values),
            Some(Err(error)) => errors.push(error.message),
            None => {}
        }
        with.entry("body").or_insert_with(|| {
            json!({
                "run_id": state.begun.id, "name": name, "status": status, "outputs": outputs,
                "errors": errors, "retries": state.attempt,
                "started_at": state.begun.at, "ended_at": state.last_at,
            })
        });
        let request = StepRequest::of(&with, "POST")?;
        let answer = self.send(state, key, &request).await?;
        let shown = &answer.body[..answer.body.floor_char_boundary(SHOWN_BYTES)];
        Ok(json!({ "status": answer.status, "answer": shown }))
    }
}

/// Settings with the references of their texts resolved, of a run that has come to its steps.
fn resolved(state: &RunFold, with: &JsonObject) -> Result<JsonObject, ToolError> {
    let Some(work) = state.work() else { return Ok(with.clone()) };
    let mut scopes = RunScopes::of_end(state, work);
    scopes.context.insert("run.status".to_owned(), word(state.outcome()).to_owned());
    scopes.env.extend(managed_env(&scopes.context));
    let texts = scopes.texts(work);
    match resolve_value(&Value::Object(with.clone()), TextField::StepText, &texts) {
        Ok(Value::Object(with)) => Ok(with),
        _ => Err(too_long("delivery")),
    }
}
