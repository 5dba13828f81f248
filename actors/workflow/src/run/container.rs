//! Containers: sandboxes of an image over the folder or the volume that a run works in. A step has one for each of its
//! tries, or its DAG one for all steps without one of their own. A container is found by its name whatever died
//! meanwhile; one that was used and is gone is not made again.

use std::time::Duration;

use chrono::Utc;
use hivekeep_kernel::{SessionId, ToolError, WorkspaceId, codes};
use hivekeep_manifest::{
    common::JsonObject,
    dag::{DagContainer, DagEnv, DagManifest},
};
use hivekeep_plan::{
    lower::StepWork,
    progress::NodeKey,
    resolve::{TextField, resolve_env, resolve_value, value_text},
};
use hivekeep_ports::{MOUNTED_PLACE, MountSource, own_workspace_name};
use hivekeep_runtime::OnBehalfOf;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    MAKING, RunFold, RunPlace, RunRecord, RunSaga, RunWorkspace,
    command::LONGEST_SECS,
    failure::failed,
    node_try::{NodeTry, try_name},
    obeyed::steps,
    scope::{RunScopes, too_long},
    state::RunWork,
};
use crate::secrets::RunSecrets;

/// Actions that are a container with a command.
const ACTIONS: [&str; 2] = ["container.run", "docker.run"];
/// Actions that a container of the step is for.
pub(super) const WITHIN: [&str; 3] = ["run", "exec", "harness.run"];
/// Keys of a container that are obeyed. `command` is one of the actions alone.
const OBEYED: [&str; 7] = ["image", "env", "volumes", "user", "working_dir", "shell", "shell_args"];
/// Keys that are not, with the value that says nothing and what to do instead.
const INSTEAD: [(&str, &str, &str); 18] = [
    ("exec", "", "a container that runs is not entered: name an `image`"),
    ("name", "", OWN),
    ("container_name", "", OWN),
    ("pull_policy", "missing", PULLED),
    ("pull", "missing", PULLED),
    ("network", "none", "a sandbox has no network: have a step such as `http.request` fetch it"),
    ("ports", "", "nothing reaches a container from outside: remove it"),
    ("platform", "linux/amd64", "images are for `linux/amd64`"),
    ("startup", "keepalive", "only the commands of steps run in it: remove it"),
    ("command", "", "only the commands of steps run in it: write a step with `run`"),
    ("wait_for", "running", "it is ready when its steps begin: remove it"),
    ("log_pattern", "", "it is ready when its steps begin: remove it"),
    ("healthcheck", "", "it is ready when its steps begin: remove it"),
    ("restart_policy", "no", "write `retry_policy` at the step"),
    ("keep_container", "false", OWN),
    ("auto_remove", "true", OWN),
    ("container", "", "write `env`, `user` and `working_dir` beside `image`"),
    ("host", "", "a container has no rights and no folders of the host: write `volumes`"),
];
const OWN: &str = "a container is the run's own and gone with its step: remove it";
const PULLED: &str =
    "an image is pulled when it is missing: pull another one by `hivekeep image pull`";
/// Folder of the place for what steps leave for one another, in a run whose steps are in several workspaces.
pub(super) const SHARED_SCRATCH: &str = ".hivekeep-runs";
/// Size of a volume that is made for a run, and hours that it is kept when no workspace has it.
const VOLUME_BYTES: u64 = 1024 * 1024 * 1024;
const VOLUME_HOURS: u64 = 1;
/// Time limit of making a volume, and of a look at a workspace.
const MAKING_VOLUME: Duration = Duration::from_secs(120);
/// Time limit of removing what was made for a run.
const CLEARING: Duration = Duration::from_secs(50);
/// Seconds that a container's workspace is kept behind its longest run, should nobody remove it.
const KEPT_SECS: u64 = 60 * 60;
/// Longest life that a workspace may be given.
const LONGEST_LIFE_SECS: u64 = 366 * 24 * 60 * 60;

/// Seconds that a container may live in which a command runs for at most so many.
pub(crate) fn life_secs(timeout_secs: u64) -> u64 {
    timeout_secs.saturating_add(KEPT_SECS).min(LONGEST_LIFE_SECS)
}

/// Name of a container as a place, and whose it is.
pub(crate) struct ContainerPlace<'c> {
    pub(crate) place: &'c str,
    /// Name of its state, or of its step.
    pub(crate) state: &'c str,
    /// Name in the records of the run.
    pub(crate) step: &'c str,
}

/// Container of a step with its texts resolved.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StepContainer {
    image: String,
    volumes: Vec<String>,
    pub(super) user: Option<String>,
    pub(super) working_dir: Option<String>,
    pub(super) shell: Option<Value>,
}

impl StepContainer {
    /// Container of the step itself, with its environment put beside that of the scopes.
    ///
    /// # Errors
    /// `step_failed` where a text becomes too long.
    pub(super) fn of_step(
        step: &StepWork,
        work: &RunWork,
        scopes: &mut RunScopes,
    ) -> Result<Option<Self>, ToolError> {
        own(step).map(|settings| Self::resolved(settings, work, scopes)).transpose()
    }

    /// The same of the container of all steps of the DAG.
    ///
    /// # Errors
    /// As [`Self::of_step`].
    pub(super) fn of_dag(
        dag: &DagManifest,
        work: &RunWork,
        scopes: &mut RunScopes,
    ) -> Result<Option<Self>, ToolError> {
        let settings = dag.container.as_ref().map(settings);
        settings.map(|settings| Self::resolved(settings, work, scopes)).transpose()
    }

    fn resolved(
        mut settings: JsonObject,
        work: &RunWork,
        scopes: &mut RunScopes,
    ) -> Result<Self, ToolError> {
        let env = settings.remove("env").and_then(|env| serde_json::from_value(env).ok());
        let mut all = scopes.env.clone();
        let pairs = env.as_ref().map(DagEnv::pairs).unwrap_or_default();
        let entries = resolve_env(pairs, TextField::StepText, &scopes.texts(work), &mut all);
        entries.map_err(|name| too_long(&format!("env.{name}")))?;
        scopes.env = all;
        let settings = Value::Object(settings);
        let settings = resolve_value(&settings, TextField::StepText, &scopes.texts(work));
        Ok(Self::written(&settings.map_err(|_| too_long("container"))?))
    }

    fn written(settings: &Value) -> Self {
        let text = |key: &str| settings.get(key).map(|it| value_text(it).into_owned());
        let volumes = settings.get("volumes").and_then(Value::as_array).into_iter().flatten();
        Self {
            image: text("image").unwrap_or_default(),
            volumes: volumes.map(|it| value_text(it).into_owned()).collect(),
            user: text("user"),
            working_dir: text("working_dir"),
            shell: settings.get("shell").cloned(),
        }
    }

    /// Input of `workspace_create`. Without a time limit it lives as long as the run.
    fn request(
        &self,
        run: &RunFold,
        name: &str,
        timeout_secs: Option<u64>,
    ) -> Result<Value, ToolError> {
        let place = source(&run.begun.place);
        if self.user.is_some()
            && place.as_ref().is_some_and(|it| it.starts_with(MountSource::PLACE))
        {
            return Err(failed(format!(
                "`user`: a sandbox beside a folder of the host has root alone, whose files there are the folder's \
                 owner's: remove it, or begin the run in a volume (`--place {VOLUME}LABEL`)"
            )));
        }
        let mount = |volume: &str| json!({ "volume": volume, "path": MOUNTED_PLACE });
        let mut mounts: Vec<Value> = place.iter().map(|place| mount(place)).collect();
        for volume in &self.volumes {
            let mut parts = volume.splitn(3, ':');
            let [from, path, mode] = [(); 3].map(|()| parts.next().unwrap_or_default());
            let volume = match (is_place(from), &place) {
                (true, Some(_)) if path == MOUNTED_PLACE => continue,
                (true, Some(place)) => place.clone(),
                (true, None) => {
                    return Err(failed(format!("`volumes`: the run has no folder for `{from}`")));
                }
                (false, _) => from.to_owned(),
            };
            mounts.push(json!({ "volume": volume, "path": path, "read_only": mode == "ro" }));
        }
        let mut request = json!({
            "name": name, "base_image": self.image, "isolation": "sandbox",
            "allow_internet": false, "volumes": mounts,
        });
        if let Some(secs) = timeout_secs {
            request["lifetime_secs"] = json!(life_secs(secs));
            request["at_end"] = json!("destroy");
        }
        Ok(request)
    }
}

/// Beginning of the places that are volumes.
const VOLUME: &str = "volume:";

/// Source of the mount that a container has of the run's place; none where it has none.
fn source(place: &RunPlace) -> Option<String> {
    let (RunPlace::Folder(place) | RunPlace::Made(place)) = place else { return None };
    let volume = place.strip_prefix(VOLUME).map(str::to_owned);
    Some(volume.unwrap_or_else(|| MountSource::Place(place.clone()).to_string()))
}

fn is_place(from: &str) -> bool {
    [".", "./", MOUNTED_PLACE].contains(&from)
}

/// Settings of a container as an object without nulls.
fn settings(container: &DagContainer) -> JsonObject {
    let written = match container {
        DagContainer::Running(name) => json!({ "exec": name }),
        DagContainer::Spec(spec) => serde_json::to_value(spec).unwrap_or_default(),
    };
    let Value::Object(mut written) = written else { return JsonObject::new() };
    written.retain(|_, value| !value.is_null());
    written
}

/// Settings of the container of a step itself.
fn own(step: &StepWork) -> Option<JsonObject> {
    match ACTIONS.contains(&step.action.as_str()) {
        true => Some(step.with.clone()),
        false => step.step.container.as_ref().map(settings),
    }
}

/// True if steps of any of the DAGs have containers of their own.
pub(super) fn several<'d>(dags: impl IntoIterator<Item = &'d DagManifest>) -> bool {
    let of_type = |name: Option<&str>| matches!(name, Some("docker" | "container"));
    let has = |step: &hivekeep_manifest::dag::DagStep| {
        let acts = step.action.as_deref().is_some_and(|action| ACTIONS.contains(&action));
        acts || step.container.is_some() || of_type(step.step_type.as_deref())
    };
    dags.into_iter().any(|dag| steps(dag).into_iter().any(has))
}

/// Reason why a run cannot have the container of its DAG, or of one of its steps.
pub(super) fn refused<'s>(
    dag: &DagManifest,
    steps: impl Iterator<Item = &'s StepWork>,
    place: &RunPlace,
) -> Option<String> {
    let of_dag = dag.container.as_ref().map(|it| ("of the DAG".to_owned(), settings(it), None));
    let of_steps = steps.filter_map(|step| {
        let name = step.step.name().or(step.step.id()).unwrap_or("without a name");
        Some((format!("of the step `{name:.80}`"), own(step)?, Some(step)))
    });
    of_dag.into_iter().chain(of_steps).find_map(|(whose, settings, step)| {
        let fault = match place {
            RunPlace::Workspace(_) => Some(
                "is not for a run in a workspace, whose files no other one has: make the workspace of the image \
                 (`base_image`), or begin the run in a folder or a volume"
                    .to_owned(),
            ),
            _ => fault(&settings, step),
        };
        Some(format!("the container {whose} {}", fault?))
    })
}

fn fault(settings: &JsonObject, step: Option<&StepWork>) -> Option<String> {
    let acts = step.is_some_and(|step| ACTIONS.contains(&step.action.as_str()));
    if let Some(step) = step.filter(|step| !acts && !WITHIN.contains(&step.action.as_str())) {
        let action = &step.action;
        return Some(format!("is for a command, and `{action:.80}` is none: remove it"));
    }
    for (key, value) in settings {
        let is_obeyed = OBEYED.contains(&key.as_str()) || acts && key == "command";
        let row = INSTEAD.iter().find(|(name, ..)| name == key).filter(|_| !is_obeyed);
        if let Some((_, nothing, instead)) = row
            && value_text(value) != *nothing
        {
            let inner = value.as_object().and_then(|it| it.keys().next());
            let inner = inner.map(|inner| format!(".{inner:.80}")).unwrap_or_default();
            return Some(format!("cannot have `{key}{inner}`: {instead}"));
        }
    }
    let StepContainer { image, volumes, .. } =
        StepContainer::written(&Value::Object(settings.clone()));
    if image.trim().is_empty() {
        return Some("has no `image`: name one".to_owned());
    }
    if acts && settings.get("command").is_none_or(|it| value_text(it).trim().is_empty()) {
        return Some("has no `command`, and an image's own is not run: write it".to_owned());
    }
    let is_of_host = |from: &str| from.starts_with(['/', '.', '~']) && !is_place(from);
    let of_host = volumes.iter().find(|it| it.split(':').next().is_some_and(is_of_host))?;
    Some(format!(
        "cannot have the volume `{of_host:.80}`: the run's own folder is at `{MOUNTED_PLACE}`, and may be mounted \
         elsewhere as `.`, and a volume by its label"
    ))
}

impl RunSaga {
    /// Workspace of a container, with the user that its image names. One that was made before a crash is found by its
    /// name.
    ///
    /// # Errors
    /// Those of making a workspace, and of one that is gone.
    pub(crate) async fn contained(
        &self,
        run: &RunFold,
        container: ContainerPlace<'_>,
        request: Value,
        cancel: &CancellationToken,
    ) -> Result<RunWorkspace, ToolError> {
        let id = run.begun.id;
        let caller =
            OnBehalfOf { cancel: cancel.clone(), ..OnBehalfOf::own(Self::session(run)?, MAKING) };
        let is_used = run.contained.contains_key(container.step);
        if !is_used {
            let made: Result<IgnoredAny, _> =
                self.shared.tools.call(id, &caller, "workspace_create", request).await;
            if let Err(error) = made
                && !error.is(codes::NAME_TAKEN)
            {
                return Err(error);
            }
        }
        let mut found = self.ready(run, container.place, cancel).await?;
        let workspace = found.workspace;
        let told = self.shared.tools.look(id, &caller, &workspace.to_string()).await?;
        found.user = told.user.filter(|user| user != "root");
        if !is_used {
            let (state, step) = (container.state.to_owned(), container.step.to_owned());
            let contained = RunRecord::Contained { state, step, workspace, at: Utc::now() };
            self.handle.record(contained).await?;
        }
        Ok(found)
    }

    /// Makes a volume for a run, unless it is there.
    ///
    /// # Errors
    /// Those of `aegis.volume.create`.
    pub(crate) async fn make_volume(
        &self,
        run: &RunFold,
        label: &str,
        size_bytes: u64,
        ttl_hours: Option<u64>,
    ) -> Result<(), ToolError> {
        let caller = OnBehalfOf::own(Self::session(run)?, MAKING_VOLUME);
        let mut args = json!({ "label": label, "size_limit_bytes": size_bytes });
        if let Some(hours) = ttl_hours {
            args["ttl_hours"] = json!(hours);
        }
        let (tools, id) = (&self.shared.tools, run.begun.id);
        let made: Result<IgnoredAny, _> =
            tools.call(id, &caller, "aegis.volume.create", args).await;
        made.map(drop).or_else(|error| match error.is(codes::NAME_TAKEN) {
            true => Ok(()),
            false => Err(error),
        })
    }

    /// Makes the volume that the run works in, if it has one of its own.
    pub(super) async fn make_place(&self, run: &RunFold) -> Result<(), ToolError> {
        let RunPlace::Made(place) = &run.begun.place else { return Ok(()) };
        let label = place.strip_prefix(VOLUME).unwrap_or(place);
        let making = || self.make_volume(run, label, VOLUME_BYTES, Some(VOLUME_HOURS));
        let made = self.volume.get_or_try_init(making).await;
        made.map(drop).map_err(|error| error.next(
            "begin the run in a folder that the configuration opens (`[session.places]`), which containers mount, too",
        ))
    }

    /// Workspace of the steps without a container of their own.
    pub(super) async fn main_workspace(
        &self,
        run: &RunFold,
        cancel: &CancellationToken,
    ) -> Result<RunWorkspace, ToolError> {
        self.make_place(run).await?;
        let place = main_place(run);
        let dag = &run.begun.dag;
        let container = match run.work() {
            Some(work) => {
                // Its making is recorded.
                let mut scopes = RunScopes::of_root(run, work, RunSecrets::default());
                StepContainer::of_dag(dag, work, &mut scopes)?
            }
            None => {
                let settings = dag.container.as_ref().map(settings);
                settings.map(|it| StepContainer::written(&Value::Object(it)))
            }
        };
        let Some(container) = container else { return self.ready(run, &place, cancel).await };
        let name = place.split(':').next().unwrap_or(&place);
        let request = container.request(run, name, None)?;
        let whose = ContainerPlace { place: &place, state: &run.begun.name, step: "container" };
        let found = self.contained(run, whose, request, cancel).await?;
        Ok(RunWorkspace { user: container.user.or(found.user), ..found })
    }

    /// Workspace of the commands of a step, behind the name of its place.
    ///
    /// # Errors
    /// Those of making it; `step_failed` for a container that cannot be.
    pub(super) async fn environment(
        &self,
        of: &NodeTry<'_>,
    ) -> Result<(String, RunWorkspace), ToolError> {
        let (run, cancel) = (of.state, self.cancel_of(of.state, of.key));
        let Some(container) = &of.container else {
            return self.machine_of(of, main_place(run)).await;
        };
        self.make_place(run).await?;
        let name = container_name(run, of.key);
        let secs = of.node.step.timeout_sec.filter(|secs| *secs > 0).unwrap_or(LONGEST_SECS);
        let request = container.request(run, &name, Some(secs))?;
        of.keeps_secrets(&request)?;
        let place = format!("{name}:{MOUNTED_PLACE}");
        let state = of.node.step.name().or(of.node.step.id()).unwrap_or_default();
        let whose = ContainerPlace { place: &place, state, step: &of.name };
        let found = self.contained(run, whose, request, cancel).await?;
        Ok((place, RunWorkspace { user: container.user.clone().or(found.user), ..found }))
    }

    /// Removes the container of a try whose end is recorded, as far as it can: one that stays ends by itself.
    pub(super) async fn remove_container(&self, run: &RunFold, key: NodeKey) {
        let Ok(session) = Self::session(run) else { return };
        let is_fork = |step: &StepWork| step.step.fork == Some(true);
        let plan = run.work().map(|work| work.progress.plan());
        let forked =
            plan.and_then(|plan| plan.node(key.node)).is_some_and(|it| is_fork(&it.action));
        if forked || !self.handle.state().contained.contains_key(&try_name(key)) {
            return;
        }
        let (id, name) = (run.begun.id, container_name(run, key));
        let caller = OnBehalfOf::own(session, MAKING);
        if let Err(error) = self.shared.tools.remove(id, &caller, &name).await {
            tracing::warn!(run = %id, name, %error, "its container is not removed");
        }
    }
}

impl RunSaga {
    /// Removes the workspaces that were made for a run, and what its steps left for one another.
    ///
    /// # Errors
    /// The first that could not be removed.
    pub(super) async fn clear(&self, run: &RunFold, session: SessionId) -> Result<(), ToolError> {
        let (id, tools) = (run.begun.id, &self.shared.tools);
        let caller = OnBehalfOf::own(session, CLEARING);
        let kept = self.retire(run, session, CLEARING).await?;
        let names = [own_workspace_name(session), workspace_names(run)];
        for row in tools.workspaces(id, &caller).await? {
            let is_named = names.iter().any(|name| row.name.starts_with(name));
            let is_made = is_named || own_workspace(run) == Some(row.workspace_id);
            if row.owned && is_made && !kept.contains(&row.workspace_id) {
                tools.remove(id, &caller, &row.workspace_id.to_string()).await?;
            }
        }
        if run.begun.place == RunPlace::made(id) {
            let label = run.begun.place.name().strip_prefix(VOLUME);
            let args = json!({ "volume_id": label });
            let gone: Result<IgnoredAny, _> =
                tools.call_idempotent(id, &caller, "aegis.volume.delete", args).await;
            // A run that used none has none.
            return match gone {
                Err(error) if !error.is(codes::VOLUME_NOT_FOUND) => Err(error),
                _ => Ok(()),
            };
        }
        let shared = format!("{MOUNTED_PLACE}/{SHARED_SCRATCH}/{id}");
        let RunPlace::Folder(place) = &run.begun.place else { return Ok(()) };
        if run.begun.folder != shared {
            return Ok(());
        }
        for (path, recursive) in
            [(format!("{SHARED_SCRATCH}/{id}"), true), (SHARED_SCRATCH.into(), false)]
        {
            let args = json!({ "place": place, "path": path, "recursive": recursive });
            let gone: Result<IgnoredAny, _> = tools.call(id, &caller, "fs.delete", args).await;
            if let Err(error) = gone
                && recursive
                && !error.is(codes::NOT_FOUND)
            {
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Workspace of a run's own that its steps worked in, without containers.
pub(super) fn own_workspace(run: &RunFold) -> Option<WorkspaceId> {
    let is_own = run.begun.place == RunPlace::Own && run.begun.dag.container.is_none();
    run.workspace.as_ref().filter(|_| is_own).map(|it| it.workspace)
}

/// Beginning of the names of a run's workspaces.
pub(super) fn workspace_names(run: &RunFold) -> String {
    format!("run-{}-", run.begun.id.uuid().simple())
}

/// Name of the workspace of a try.
pub(super) fn container_name(run: &RunFold, key: NodeKey) -> String {
    format!("{}{}-{}", workspace_names(run), key.node.0, key.tries)
}

/// Place of the steps without a container of their own.
pub(super) fn main_place(run: &RunFold) -> String {
    if run.begun.dag.container.is_none() {
        let inherited = run.inherited.as_ref().map(|it| it.workspace.to_string());
        return inherited.unwrap_or_else(|| run.begun.place.name().to_owned());
    }
    let folder = source(&run.begun.place).map(|_| format!(":{MOUNTED_PLACE}"));
    format!("{}all-{}{}", workspace_names(run), run.attempt, folder.unwrap_or_default())
}
