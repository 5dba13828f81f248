//! Containers as a DAG writes them: what is obeyed, what is refused, and the workspace that is asked for.

use hivekeep_kernel::ToolError;
use hivekeep_manifest::{
    common::JsonObject,
    dag::{DagContainer, DagEnv, DagManifest},
};
use hivekeep_plan::{
    lower::StepWork,
    resolve::{TextField, resolve_env, resolve_value, value_text},
};
use hivekeep_ports::{MOUNTED_PLACE, MountSource};
use serde_json::{Value, json};

use super::{
    RunFold, RunPlace,
    failure::failed,
    obeyed::steps,
    scope::{RunScopes, too_long},
    state::RunWork,
};

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
/// Seconds that a container's workspace is kept behind its longest run, should nobody remove it.
const KEPT_SECS: u64 = 60 * 60;
/// Longest life that a workspace may be given.
const LONGEST_LIFE_SECS: u64 = 366 * 24 * 60 * 60;

/// Seconds that a container may live in which a command runs for at most so many.
pub(crate) fn life_secs(timeout_secs: u64) -> u64 {
    timeout_secs.saturating_add(KEPT_SECS).min(LONGEST_LIFE_SECS)
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

    pub(super) fn written(settings: &Value) -> Self {
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
    pub(super) fn request(
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
pub(super) const VOLUME: &str = "volume:";

/// Source of the mount that a container has of the run's place; none where it has none.
pub(super) fn source(place: &RunPlace) -> Option<String> {
    let (RunPlace::Folder(place) | RunPlace::Made(place)) = place else { return None };
    let volume = place.strip_prefix(VOLUME).map(str::to_owned);
    Some(volume.unwrap_or_else(|| MountSource::Place(place.clone()).to_string()))
}

fn is_place(from: &str) -> bool {
    [".", "./", MOUNTED_PLACE].contains(&from)
}

/// Settings of a container as an object without nulls.
pub(super) fn settings(container: &DagContainer) -> JsonObject {
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
