//! Webhooks: requests of strangers that begin runs of watched DAGs. The key of a request is kept in the first record of
//! the run that it began, so that both are durable or neither.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use hivekeep_kernel::{
    CredentialId, Layer, RunId, ToolError, codes as kernel_codes, fault_point, lock,
};
use hivekeep_manifest::dag::DagManifest;
use hivekeep_plan::resolve::BROUGHT;
use hivekeep_ports::{WebhookRefusal, WebhookRequest, WebhookTarget, Webhooks};
use hivekeep_runtime::runs::to_its_end;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::{
    DagRuns, RunTrigger, codes,
    folders::{DagFolders, PlacedFile},
    run::DAEMON,
    service::WorkflowService,
};

/// Keys that are looked up fast; beyond it those are forgotten whose runs are gone.
const MOST_KEYS: usize = 16_384;
/// Header fields that no run gets, whatever its DAG asks for.
const WITHHELD: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// Webhook and a key of its requests.
type HookKey = (CredentialId, String);
/// Run that a key began; requests with the key wait while it is being begun.
type KeyedRun = Arc<OnceCell<RunId>>;

/// Runs by the webhook and the key that began them; none before the first look at the runs.
#[derive(Default)]
pub(crate) struct WebhookKeys(Mutex<Option<HashMap<HookKey, KeyedRun>>>);

impl WebhookKeys {
    /// Begins a run by a request, with a key one at a time.
    pub(crate) async fn begin(
        &self,
        folders: &DagFolders,
        request: WebhookRequest,
    ) -> Result<RunId, WebhookRefusal> {
        folders.followed().await;
        let WebhookRequest { hook, target, key, body, headers } = request;
        let file = PlacedFile { place: target.place, file: target.file };
        let dag = folders.files().get(&file).cloned().filter(|dag| dag.name == target.dag);
        let dag = dag.ok_or(WebhookRefusal::NotThere)?;
        let (payload, runs, id) = (payload(body), &folders.runs, RunId::new());
        let trigger = RunTrigger::Webhook { hook, key: key.clone() };
        let given = |dag: &DagManifest| {
            let wanted = dag.webhook.as_ref().and_then(|it| it.get("forward_headers")?.as_array());
            let names = wanted.into_iter().flatten().filter_map(Value::as_str);
            let names = names.map(|name| name.trim().to_ascii_lowercase());
            let named = names.filter(|name| !WITHHELD.contains(&name.as_str()));
            let found = named.filter_map(|name| Some((name.clone(), json!(headers.get(&name)?))));
            let headers = Value::Object(found.collect()).to_string();
            json!({ BROUGHT[0]: payload, BROUGHT[1]: headers })
        };
        let Some(key) = key else {
            let begun = folders.begin((&file, &dag.name, dag.owner), id, trigger, given).await;
            return begun.map(|()| id).map_err(refused);
        };
        let run = self.run_of((hook, key), runs);
        let begin = async || {
            let begun = folders.begin((&file, &dag.name, dag.owner), id, trigger, given).await;
            begun.map(|()| id).map_err(refused)
        };
        let found = *run.get_or_try_init(begin).await?;
        if found == id {
            return Ok(id);
        }
        let told = runs.told(DAEMON, &found.to_string()).await.map_err(WebhookRefusal::Failed)?;
        match told.0.state.begun.given[BROUGHT[0]] == payload {
            true => Ok(found),
            false => Err(WebhookRefusal::KeyReused),
        }
    }

    /// Run of a key, or the place of one that is to be begun.
    fn run_of(&self, key: HookKey, runs: &DagRuns) -> KeyedRun {
        let is_gone = |run: &KeyedRun| {
            run.get().is_some_and(|id| runs.0.get(DAEMON, &id.to_string()).is_err())
        };
        let mut known = lock(&self.0);
        let known = known.get_or_insert_with(|| keys(runs));
        if known.len() >= MOST_KEYS {
            // A key that nobody waits for and that has no run was refused.
            known.retain(|_, run| {
                !is_gone(run) && (run.initialized() || Arc::strong_count(run) > 1)
            });
        }
        let run = known.entry(key).or_default();
        if is_gone(run) {
            *run = KeyedRun::default();
        }
        run.clone()
    }
}

fn keys(runs: &DagRuns) -> HashMap<HookKey, KeyedRun> {
    let (all, _) = runs.0.list(DAEMON, None, usize::MAX);
    let key = |id: RunId, trigger: &RunTrigger| match trigger {
        RunTrigger::Webhook { hook, key } => {
            Some(((*hook, key.clone()?), Arc::new(OnceCell::new_with(Some(id)))))
        }
        _ => None,
    };
    all.into_iter().filter_map(|(id, view)| key(id, &view.state.begun.trigger)).collect()
}

/// JSON that the run gets: the body's `payload` or the whole of it, `{}` without one; a text that is no JSON as it is.
fn payload(body: String) -> String {
    match serde_json::from_str::<Value>(&body) {
        Ok(Value::Object(mut members)) => match members.remove("payload") {
            Some(payload) => payload.to_string(),
            None => Value::Object(members).to_string(),
        },
        Ok(other) => other.to_string(),
        Err(_) if body.trim().is_empty() => "{}".to_owned(),
        Err(_) => body,
    }
}

fn refused(error: ToolError) -> WebhookRefusal {
    match () {
        () if error.is(codes::DAG_INVALID) => WebhookRefusal::Invalid(error),
        () if error.is(kernel_codes::TOO_MANY_RUNS) => WebhookRefusal::Full(error),
        () => WebhookRefusal::Failed(error),
    }
}

#[async_trait]
impl Webhooks for WorkflowService {
    fn target(&self, named: &str) -> Result<WebhookTarget, ToolError> {
        let files = self.folders.files();
        let is_meant = |file: &PlacedFile, name: &str| {
            name == named
                || named.split_once(':') == Some((file.place.as_str(), file.file.as_str()))
        };
        let mut meant = files.iter().filter(|(file, dag)| is_meant(file, &dag.name));
        match (meant.next(), meant.next()) {
            (Some((PlacedFile { place, file }, dag)), None) => {
                let (dag, place, file) = (dag.name.clone(), place.clone(), file.clone());
                Ok(WebhookTarget { dag, place, file })
            }
            (Some(_), Some(_)) => {
                let message = format!("several watched files have a DAG `{named:.80}`");
                Err(ToolError::invalid(message)
                    .next("name one file as PLACE:PATH; `hivekeep dag list` shows them"))
            }
            (None, _) => Err(ToolError::not_found(
                Layer::Resolve,
                kernel_codes::NOT_FOUND,
                "watched DAG",
                named,
            )
            .next("`hivekeep dag list` shows those of the folders of `workflow.folders`")),
        }
    }

    async fn begin(&self, request: WebhookRequest) -> Result<RunId, WebhookRefusal> {
        let (folders, keys) = (self.folders.clone(), self.webhooks.clone());
        let begun = async move {
            let begun = keys.begin(&folders, request).await;
            fault_point!("dag.webhook_begun");
            Ok(begun)
        };
        // Done to its end, whether or not the stranger waits.
        to_its_end(begun).await.unwrap_or_else(|error| Err(WebhookRefusal::Failed(error)))
    }
}
