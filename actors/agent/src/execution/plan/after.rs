//! Jobs behind an output, as a manifest asks for them: its handler, and the receivers that it is delivered to.

use hivekeep_manifest::{
    agent::{AgentSpec, DeliveryCondition, DeliveryDestination, Transform},
    common::{AttemptLimit, HttpMethod, JsonObject, Labels, OutputHandler, SendAttempts, TimeSpan},
};
use hivekeep_runtime::template::{self, TemplateHelpers, TemplateValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AgentMachinePlan, JudgePlan, MachineHost, RefusedFields};

/// Longest request and mail, where the manifest names no time.
const SENDING_SECS: u64 = 30;
/// Longest work of an agent, a container, a tool or a script, where it names none.
const WORK_SECS: u64 = 300;
/// Most of all.
const MOST_SECS: u64 = 86_400;
/// Most receivers.
const MOST_RECEIVERS: usize = 16;
/// Names in templates of what is handed on.
pub(crate) const NAMES: [&str; 8] =
    ["output", "output_json", "status", "error", "execution_id", "agent", "intent", "input"];

/// Jobs behind an output, in their order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct AfterPlan(pub(crate) Vec<AfterJob>);

/// A job behind an output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AfterJob {
    /// Field of the manifest that asks for it.
    pub(crate) field: String,
    /// Kind of the handler, or name of the receiver.
    pub(crate) name: String,
    pub(crate) when: AfterWhen,
    /// Program that makes of the output what is handed on.
    pub(crate) transform: Option<Transform>,
    pub(crate) action: AfterAction,
    pub(crate) timeout_secs: u64,
    pub(crate) attempts: u64,
    pub(crate) pause_ms: u64,
}

/// Time of a job.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AfterWhen {
    /// Before the end, once the output is taken.
    Output { required: bool },
    /// Behind an end of these kinds.
    End(DeliveryCondition),
}

/// Work of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum AfterAction {
    /// Runs an agent, with the output as its input.
    Agent { agent: String, planned: Option<Box<JudgePlan>>, template: Option<String> },
    /// Runs a command in a machine of its own.
    Container { machine: AgentMachinePlan, argv: Vec<String>, env: Labels },
    /// Calls a tool.
    Tool { name: String, arguments: JsonObject },
    /// Makes a request.
    Request(RequestPlan),
    /// Sends a mail.
    Mail(MailPlan),
}

/// Request of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestPlan {
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) method: Option<HttpMethod>,
    #[serde(default)]
    pub(crate) headers: Labels,
    /// Template of its body.
    #[serde(default, alias = "body")]
    pub(crate) body_template: Option<String>,
    #[serde(default)]
    timeout: Option<TimeSpan>,
    #[serde(default)]
    retry: Option<AttemptLimit>,
}

/// Mail of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MailPlan {
    pub(crate) to: Receivers,
    /// Template of its subject.
    #[serde(default)]
    pub(crate) subject: Option<String>,
    /// Template of its text.
    #[serde(default, alias = "body")]
    pub(crate) body_template: Option<String>,
}

/// Receivers of a mail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Receivers {
    One(String),
    More(Vec<String>),
}

impl Receivers {
    pub(crate) fn all(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::More(all) => all,
        }
    }
}

impl AfterPlan {
    /// Plans the jobs of a manifest.
    pub(super) fn of(
        spec: &AgentSpec,
        (host, mails): (&MachineHost, bool),
        machine: Option<&AgentMachinePlan>,
        refused: &mut RefusedFields,
    ) -> Self {
        let handler = spec.output_handler.as_ref();
        let mut jobs: Vec<_> =
            handler.map(|handler| handled(handler, host, machine, refused)).into_iter().collect();
        let delivery = spec.execution.as_ref().and_then(|it| it.delivery.as_ref());
        let receivers = delivery.map(|it| &*it.destinations).unwrap_or_default();
        let field = "execution.delivery.destinations";
        let instead = format!("an execution has at most {MOST_RECEIVERS} receivers");
        refused.add(receivers.len() > MOST_RECEIVERS, field, instead);
        for (at, receiver) in receivers.iter().enumerate() {
            jobs.extend(delivered(receiver, &format!("{field}[{at}]"), (host, mails), refused));
        }
        for job in &jobs {
            for (part, text) in job.templates() {
                if let Err(why) = template::render(text, TemplateHelpers::None, &examples()) {
                    refused.add(true, &format!("{}.{part}", job.field), why);
                }
            }
        }
        Self(jobs)
    }
}

impl AfterJob {
    fn new(field: &str, name: &str, when: AfterWhen, action: AfterAction) -> Self {
        let (field, name) = (field.to_owned(), name.to_owned());
        let (transform, timeout_secs) = (None, WORK_SECS);
        Self { field, name, when, transform, action, timeout_secs, attempts: 1, pause_ms: 0 }
    }

    fn within(self, timeout: Option<u64>, refused: &mut RefusedFields) -> Self {
        let timeout_secs = timeout.unwrap_or(self.timeout_secs);
        let instead = format!("ask for at most {MOST_SECS} seconds");
        refused.add(timeout_secs > MOST_SECS, &format!("{}.timeout", self.field), instead);
        Self { timeout_secs: timeout_secs.max(1), ..self }
    }

    /// The same, tried again with pauses.
    fn tried(self, retry: Option<&AttemptLimit>, refused: &mut RefusedFields) -> Self {
        let attempts = SendAttempts::of(retry);
        let instead = "ask for at most 10 attempts, and pauses of at most 60s";
        refused.add(attempts.is_none(), &format!("{}.retry", self.field), instead);
        let SendAttempts { most: attempts, pause } = attempts.unwrap_or_default();
        let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        Self { timeout_secs: SENDING_SECS, attempts, pause_ms, ..self }
    }

    /// Its templates, each with the field that has it.
    fn templates(&self) -> Vec<(String, &str)> {
        let parts = match &self.action {
            AfterAction::Agent { template, .. } => vec![part("input_template", template)],
            AfterAction::Request(request) => vec![part("body_template", &request.body_template)],
            AfterAction::Mail(mail) => {
                vec![part("subject", &mail.subject), part("body_template", &mail.body_template)]
            }
            AfterAction::Tool { arguments, .. } => {
                let mut all = Vec::new();
                arguments.values().for_each(|value| texts(value, &mut all));
                return all.into_iter().map(|text| ("arguments".to_owned(), text)).collect();
            }
            AfterAction::Container { .. } => Vec::new(),
        };
        parts.into_iter().flatten().collect()
    }
}

fn part<'t>(name: &str, text: &'t Option<String>) -> Option<(String, &'t str)> {
    text.as_deref().map(|text| (name.to_owned(), text))
}

fn texts<'v>(value: &'v Value, all: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => all.push(text),
        Value::Array(list) => list.iter().for_each(|value| texts(value, all)),
        Value::Object(object) => object.values().for_each(|value| texts(value, all)),
        _ => {}
    }
}

fn examples() -> Vec<TemplateValue<'static>> {
    NAMES.iter().map(|name| TemplateValue::text(*name, "x")).collect()
}

fn secs(span: Option<&TimeSpan>) -> Option<u64> {
    span.and_then(TimeSpan::duration).map(|span| span.as_millis().div_ceil(1000) as u64)
}

const FIELD: &str = "output_handler";

fn handled(
    handler: &OutputHandler,
    host: &MachineHost,
    machine: Option<&AgentMachinePlan>,
    refused: &mut RefusedFields,
) -> AfterJob {
    let job = |name: &str, required: &bool, action| {
        AfterJob::new(FIELD, name, AfterWhen::Output { required: *required }, action)
    };
    match handler.clone() {
        OutputHandler::Agent { agent_id, input_template, timeout_seconds, required } => {
            let (agent, planned, template) = (agent_id, None, input_template);
            job("agent", &required, AfterAction::Agent { agent, planned, template })
                .within(timeout_seconds, refused)
        }
        OutputHandler::Container { image, command, env, resources, required } => {
            let resources = resources.unwrap_or_default();
            let timeout = secs(resources.timeout.as_ref());
            let machine =
                AgentMachinePlan::container(&image, &resources, FIELD, host, machine, refused);
            let (argv, env) = (command, env.unwrap_or_default());
            no_secrets(&env, &format!("{FIELD}.env"), refused);
            job("container", &required, AfterAction::Container { machine, argv, env })
                .within(timeout, refused)
        }
        OutputHandler::McpTool { tool_name: name, arguments, timeout, required } => {
            let arguments = arguments.unwrap_or_default();
            job("mcp_tool", &required, AfterAction::Tool { name, arguments })
                .within(secs(timeout.as_ref()), refused)
        }
        OutputHandler::Webhook {
            url,
            method,
            headers,
            body_template,
            timeout,
            retry,
            required,
        } => {
            let headers = headers.unwrap_or_default();
            let request = RequestPlan { url, method, headers, body_template, timeout, retry };
            requested(request, |action| job("webhook", &required, action), refused)
        }
    }
}

fn requested(
    request: RequestPlan,
    job: impl FnOnce(AfterAction) -> AfterJob,
    refused: &mut RefusedFields,
) -> AfterJob {
    let (timeout, retry) = (secs(request.timeout.as_ref()), request.retry.clone());
    let headers = request.headers.clone();
    let job =
        job(AfterAction::Request(request)).tried(retry.as_ref(), refused).within(timeout, refused);
    no_secrets(&headers, &format!("{}.headers", job.field), refused);
    job
}

fn no_secrets(texts: &Labels, field: &str, refused: &mut RefusedFields) {
    for name in texts.iter().filter(|(_, value)| value.starts_with("secret:")).map(|it| it.0) {
        let instead = "the daemon keeps no secrets for agents: remove it";
        refused.add(true, &format!("{field}.{name}"), instead);
    }
}

fn delivered(
    receiver: &DeliveryDestination,
    field: &str,
    (host, mails): (&MachineHost, bool),
    refused: &mut RefusedFields,
) -> Option<AfterJob> {
    let DeliveryDestination { name, condition, transform, email, webhook, rest, sms } = receiver;
    let when = AfterWhen::End(condition.unwrap_or(DeliveryCondition::Always));
    let instead = "no service sends text messages: name one that does under `webhook`";
    refused.add(sms.is_some(), &format!("{field}.sms"), instead);
    let instead = "this daemon makes no machines to run it in: remove it";
    refused.add(
        transform.is_some() && host.bounds.is_none(),
        &format!("{field}.transform"),
        instead,
    );
    let job = |action| AfterJob::new(field, name, when, action);
    let planned = if let Some(email) = email {
        let instead = "the daemon sends no mail: have the operator set `agent.smtp`";
        refused.add(!mails, &format!("{field}.email"), instead);
        let mail = read(email, &format!("{field}.email"), refused)?;
        job(AfterAction::Mail(mail)).tried(None, refused)
    } else {
        let (kind, settings) = match (webhook, rest) {
            (Some(webhook), _) => ("webhook", webhook),
            (None, Some(rest)) => ("rest", rest),
            (None, None) => return None,
        };
        requested(read(settings, &format!("{field}.{kind}"), refused)?, job, refused)
    };
    Some(AfterJob { transform: transform.clone(), ..planned })
}

fn read<T: for<'de> Deserialize<'de>>(
    settings: &JsonObject,
    field: &str,
    refused: &mut RefusedFields,
) -> Option<T> {
    match serde_json::from_value(Value::Object(settings.clone())) {
        Ok(read) => Some(read),
        Err(error) => {
            refused.add(true, field, error.to_string());
            None
        }
    }
}
