//! Workspace of one operation: made with the repository's volume, and removed behind it. It is the daemon's own,
//! and no session uses, forks or takes it over.

use hivekeep_kernel::{Layer, RepositoryId, ToolError};
use hivekeep_runtime::OnBehalfOf;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use crate::{
    binding::RepositoryOperation,
    codes,
    operation::RepositoryJob,
    remote::{REMOTE_FOLDER, Remote},
    repositories::RepositoryResult,
};

/// Where the volume is mounted; the tree is the folder in it that has the repository's label.
const MOUNTED: &str = "/workspace";
/// Removes leftovers of an interrupted operation. While another workspace has the volume, git's locks
/// may be that workspace's and stay.
const TIDY: &str = "rm -rf \".$LABEL.new\"\n\
    if [ -n \"$SOLE\" ] && [ -d \"$LABEL/.git\" ]; then \
    find \"$LABEL/.git\" -path \"$LABEL/.git/objects\" -prune -o -type f -name '*.lock' -exec rm -f {} +; fi";

/// Access that git needs beside the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Neither the network nor a volume of the remote.
    Nothing,
    /// The remote, to read from.
    Reads,
    /// The remote, to write to.
    Writes,
}

/// Workspace of one operation.
pub(crate) struct GitMachine<'j> {
    pub(crate) job: &'j RepositoryJob,
    name: String,
}

/// Name of the workspace of a repository.
pub(crate) fn name_of(id: RepositoryId) -> String {
    format!("git-{}", id.uuid().simple())
}

/// End of a command.
#[derive(Debug, Deserialize)]
pub(crate) struct CommandEnded {
    pub(crate) exit_code: i32,
    pub(crate) stderr: String,
}

/// State of a work tree, as `git_status` answers it.
#[derive(Debug, Deserialize)]
pub(crate) struct WorkTree {
    pub(crate) branch: Option<String>,
    pub(crate) detached: bool,
    pub(crate) commit_sha: Option<String>,
    pub(crate) ahead: Option<u64>,
    pub(crate) dirty: bool,
}

impl<'j> GitMachine<'j> {
    /// Makes the workspace, and tidies the volume.
    ///
    /// # Errors
    /// Those of making a workspace; nothing of it is left then.
    pub(crate) async fn open(job: &'j RepositoryJob, reach: Reach) -> RepositoryResult<Self> {
        job.step("starting a workspace");
        let machine = Self { job, name: name_of(job.id) };
        let mut ready = machine.make(reach).await;
        if ready.is_ok() && machine.changes() {
            ready = machine.tidy().await;
        }
        match ready {
            Ok(()) => Ok(machine),
            Err(error) => {
                machine.close().await;
                Err(error)
            }
        }
    }

    fn changes(&self) -> bool {
        self.job.binding.begun.is_none_or(|begun| begun.operation != RepositoryOperation::Diff)
    }

    async fn make(&self, reach: Reach) -> RepositoryResult<()> {
        let request = self.request(reach)?;
        let made: Result<Value, _> = self.job.call("workspace_create", request.clone()).await;
        match made {
            // The workspace of an earlier operation, which could not be removed before.
            Err(error) if error.is(codes::NAME_TAKEN) => {
                self.remove().await?;
                self.job.call::<Value>("workspace_create", request).await.map(drop)
            }
            made => made.map(drop),
        }
    }

    fn request(&self, reach: Reach) -> RepositoryResult<Value> {
        let options = &self.job.service.options.machine;
        let mut volumes = vec![json!({ "volume": self.job.volume()?, "path": MOUNTED })];
        let networked = match &self.job.remote {
            Remote::Server(_) => reach != Reach::Nothing,
            Remote::Volume { label, .. } if reach != Reach::Nothing => {
                let read_only = reach == Reach::Reads;
                volumes.push(
                    json!({ "volume": label, "path": REMOTE_FOLDER, "read_only": read_only }),
                );
                false
            }
            Remote::Volume { .. } => false,
        };
        let isolation = if networked { options.isolation } else { options.local_isolation };
        Ok(json!({
            "name": self.name, "isolation": isolation, "base_image": options.image,
            "vcpus": options.vcpus, "memory_mb": options.memory_mb, "disk_gb": options.disk_gb,
            "volumes": volumes, "allow_internet": networked.then_some(true),
        }))
    }

    async fn tidy(&self) -> RepositoryResult<()> {
        let sole = self.job.users().await?.len() <= 1;
        let env = json!({ "SOLE": if sole { "1" } else { "" } });
        let tidied = self.sh(TIDY, env).await?;
        if tidied.exit_code == 0 {
            return Ok(());
        }
        Err(failed("the volume could not be tidied", &tidied))
    }

    /// Runs a script in the volume, which finds the repository's label in `$LABEL`.
    ///
    /// # Errors
    /// As `exec`; a script that fails is none.
    pub(crate) async fn sh(&self, script: &str, env: Value) -> RepositoryResult<CommandEnded> {
        let mut env = object(env);
        env.insert("LABEL".to_owned(), json!(self.job.binding.terms.label));
        let args = json!({
            "workspace_id": self.name, "command": script, "workdir": MOUNTED, "env": env,
            "timeout_secs": self.job.service.options.timeout_secs, "max_output_bytes": 16_384,
        });
        self.job.call("exec", args).await
    }

    /// Calls a git tool on a folder of the volume.
    ///
    /// # Errors
    /// As the tool.
    pub(crate) async fn git<T: DeserializeOwned>(
        &self,
        tool: &'static str,
        folder: &str,
        args: Value,
    ) -> RepositoryResult<T> {
        let mut args = object(args);
        args.insert("workspace_id".to_owned(), json!(self.name));
        args.insert("path".to_owned(), json!(format!("{MOUNTED}/{folder}")));
        self.job.call(tool, Value::Object(args)).await
    }

    /// Like [`Self::git`], for a tool that asks the remote's server, with the call's credential.
    ///
    /// # Errors
    /// As the tool.
    pub(crate) async fn git_remote<T: DeserializeOwned>(
        &self,
        tool: &'static str,
        folder: &str,
        args: Value,
    ) -> RepositoryResult<T> {
        let mut args = object(args);
        args.insert("timeout_secs".to_owned(), json!(self.job.service.options.timeout_secs));
        if let Some(credential) = &self.job.credential {
            args.insert(
                "credential".to_owned(),
                credential.for_git(self.job.remote.origin().as_deref()),
            );
        }
        self.git(tool, folder, Value::Object(args)).await
    }

    /// Removes the workspace. What stays is removed before the repository's next operation.
    pub(crate) async fn close(self) {
        if let Err(error) = self.remove().await {
            tracing::error!(repository = %self.job.id, %error, "a repository's workspace stays");
        }
    }

    async fn remove(&self) -> RepositoryResult<()> {
        let RepositoryJob { service, id, caller, .. } = self.job;
        match service.tools.remove(*id, caller, &self.name).await {
            // A daemon before this version made it as the session itself, and was stopped.
            Err(error) if error.is(codes::NOT_OWNER) => {
                let session = caller.session.principal();
                let caller = OnBehalfOf { session, ..caller.clone() };
                service.tools.remove(*id, &caller, &self.name).await
            }
            removed => removed,
        }
    }
}

/// Error for a script that ended with another code than 0.
pub(crate) fn failed(what: &str, ended: &CommandEnded) -> ToolError {
    ToolError::new(Layer::Guest, codes::REPOSITORY_FAILED, what)
        .detail("exit_code", ended.exit_code)
        .detail("output", ended.stderr.clone())
        .next("the output says why")
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
