//! Scripted daemon: volumes are folders, workspaces are names, and git knows one remote of one file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    sync::{Mutex, MutexGuard},
};

use async_trait::async_trait;
use chrono::Utc;
use hivekeep_kernel::{ErrorCode, Layer, ToolError, VolumeId, WorkspaceId};
use hivekeep_kernel::{SessionId, codes};
use hivekeep_ports::{
    AttachedVolume, GitCredentials, InternalCall, MountedFolder, Tools, VolumeRequest, Volumes,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// What the remote has, what local git would say, and what was called.
pub(super) struct Script {
    pub(super) remote: &'static str,
    pub(super) ahead: u64,
    pub(super) in_the_way: bool,
    pub(super) knows_who_commits: bool,
    /// A tool that fails once with this code.
    pub(super) failing: Option<(&'static str, &'static str)>,
    /// A tool that waits for ever, once.
    pub(super) hanging: Option<&'static str>,
    pub(super) calls: Vec<(&'static str, Value)>,
    /// Sessions that the calls were made for.
    pub(super) callers: BTreeSet<SessionId>,
    volumes: BTreeMap<VolumeId, Value>,
    pub(super) machines: BTreeMap<String, (WorkspaceId, Value)>,
}

pub(super) struct ScriptedDaemon {
    folder: PathBuf,
    script: Mutex<Script>,
    /// Told when a tool hangs.
    pub(super) hangs: Notify,
}

impl ScriptedDaemon {
    pub(super) fn at(folder: PathBuf) -> Self {
        let script = Script {
            remote: "one",
            ahead: 0,
            in_the_way: false,
            knows_who_commits: true,
            failing: None,
            hanging: None,
            calls: Vec::new(),
            callers: BTreeSet::new(),
            volumes: BTreeMap::new(),
            machines: BTreeMap::new(),
        };
        Self { folder, script: Mutex::new(script), hangs: Notify::new() }
    }

    pub(super) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().expect("no panic")
    }

    pub(super) fn volume_folders(&self) -> Vec<PathBuf> {
        let volumes = self.script().volumes.keys().copied().collect::<Vec<_>>();
        volumes.into_iter().map(|id| self.folder.join(id.to_string())).collect()
    }

    /// Gives the volume with this label to a workspace of the user's.
    pub(super) fn give_to_a_workspace(&self, id: &Value) {
        let machine = (WorkspaceId::new(), json!([{ "volume": id }]));
        self.script().machines.insert("w".to_owned(), machine);
    }

    fn users(script: &Script, id: VolumeId) -> Vec<WorkspaceId> {
        let has = |volumes: &Value| {
            volumes.as_array().expect("a list").iter().any(|row| row["volume"] == json!(id))
        };
        let machines = script.machines.values().filter(|(_, volumes)| has(volumes));
        machines.map(|(id, _)| *id).collect()
    }

    /// Folder of the only volume of a workspace that is mounted at /workspace.
    fn mounted(&self, args: &Value) -> PathBuf {
        let name = args["workspace_id"].as_str().expect("a name");
        let volumes = self.script().machines.get(name).expect("it is there").1.clone();
        self.folder.join(volumes[0]["volume"].as_str().expect("an id"))
    }

    fn volume_tool(&self, tool: &str, args: &Value) -> Result<Value, ToolError> {
        let mut script = self.script();
        match tool {
            "aegis.volume.list" => {
                let rows = script.volumes.iter().map(|(id, row)| {
                    let mut row = row.clone();
                    row["workspaces"] = json!(Self::users(&script, *id));
                    row
                });
                Ok(json!({ "volumes": rows.collect::<Vec<_>>() }))
            }
            "aegis.volume.create" => {
                let id = VolumeId::new();
                let label = &args["label"];
                if script.volumes.values().any(|row| row["label"] == *label) {
                    return Err(error(codes::NAME_TAKEN));
                }
                fs::create_dir(self.folder.join(id.to_string())).expect("made");
                let row = json!({ "volume_id": id, "label": label, "created_at": Utc::now() });
                script.volumes.insert(id, row.clone());
                Ok(row)
            }
            _ => {
                let id: VolumeId = args["volume_id"].as_str().expect("an id").parse().expect("one");
                if !Self::users(&script, id).is_empty() {
                    return Err(ToolError::foreign(Layer::Actor, "volume_in_use", "as told"));
                }
                script.volumes.remove(&id);
                fs::remove_dir_all(self.folder.join(id.to_string())).expect("removed");
                Ok(json!({}))
            }
        }
    }

    fn machine_tool(&self, tool: &str, args: &Value) -> Result<Value, ToolError> {
        let mut script = self.script();
        let name = |field: &str| args[field].as_str().expect("a name").to_owned();
        match tool {
            "workspace_create" if script.machines.contains_key(&name("name")) => {
                Err(error(codes::NAME_TAKEN))
            }
            "workspace_create" => {
                let machine = (WorkspaceId::new(), args["volumes"].clone());
                script.machines.insert(name("name"), machine);
                Ok(json!({}))
            }
            "workspace_list" => {
                let rows = script.machines.iter().map(
                    |(name, (id, _))| json!({ "workspace_id": id, "name": name, "owned": true }),
                );
                Ok(json!({ "workspaces": rows.collect::<Vec<_>>() }))
            }
            _ => match script.machines.remove(&name("workspace_id")) {
                Some(_) => Ok(json!({})),
                None => Err(error(codes::WORKSPACE_NOT_FOUND)),
            },
        }
    }

    fn git(&self, tool: &str, args: &Value) -> Result<Value, ToolError> {
        let volume = self.mounted(args);
        let path = args["path"].as_str().unwrap_or("/workspace/").strip_prefix("/workspace/");
        let tree = volume.join(path.expect("below the volume"));
        let head = || fs::read_to_string(tree.join("told")).expect("a tree");
        let script = self.script();
        let answer = match tool {
            "git_clone" => {
                fs::create_dir(&tree).expect("nothing is there");
                fs::write(tree.join("told"), script.remote).expect("written");
                json!({ "commit_sha": script.remote })
            }
            "git_fetch" => json!({ "commit_sha": script.remote }),
            "git_status" => json!({
                "branch": "main", "detached": false, "commit_sha": head(), "ahead": script.ahead,
                "dirty": script.in_the_way,
            }),
            "git_commit" if args["message"] == "nothing" => {
                json!({ "status": "nothing_to_commit" })
            }
            "git_commit" => {
                fs::write(tree.join("told"), "mine").expect("written");
                json!({ "status": "committed", "commit_sha": "mine", "summary": args["author_name"] })
            }
            "git_push" => json!({
                "success": true, "remote": args["remote"], "branch": "main", "status": "pushed",
                "output": "",
            }),
            "git_diff" => json!({
                "diff": head(), "truncated": false, "total_bytes": 1, "redacted": 0,
            }),
            other => panic!("{other} is called"),
        };
        Ok(answer)
    }

    /// The scripts that tidy, look who commits, and check out.
    fn exec(&self, args: &Value) -> Value {
        if args["command"].as_str().is_some_and(|text| text.contains("GIT_COMMITTER_IDENT")) {
            return json!({ "exit_code": i32::from(!self.script().knows_who_commits), "stderr": "" });
        }
        let env = |name: &str| args["env"][name].as_str().expect("a variable").to_owned();
        let volume = self.mounted(args);
        let new = volume.join(format!(".{}.new", env("LABEL")));
        let _there_or_not = fs::remove_dir_all(&new);
        let checks_out = args["command"].as_str().is_some_and(|text| text.contains("checkout"));
        if checks_out && self.script().in_the_way && env("FORCE").is_empty() {
            return json!({ "exit_code": 1, "stderr": "in the way" });
        }
        if checks_out {
            fs::create_dir(&new).expect("made");
            fs::write(new.join("told"), env("SHA")).expect("written");
        }
        json!({ "exit_code": 0, "stderr": "" })
    }
}

fn error(code: &'static ErrorCode) -> ToolError {
    ToolError::new(Layer::Actor, code, "as told")
}

#[async_trait]
impl Tools for ScriptedDaemon {
    async fn call(
        &self,
        call: InternalCall,
        tool: &'static str,
        args: Value,
    ) -> Result<Value, ToolError> {
        let (fails, hangs) = {
            let mut script = self.script();
            script.calls.push((tool, args.clone()));
            script.callers.insert(call.session);
            (
                script.failing.take_if(|(of, _)| *of == tool),
                script.hanging.take_if(|of| *of == tool).is_some(),
            )
        };
        if hangs {
            self.hangs.notify_one();
            call.cancel.cancelled().await;
            return Err(ToolError::cancelled());
        }
        if let Some((_, code)) = fails {
            return Err(ToolError::foreign(Layer::Guest, code, "as told"));
        }
        match tool {
            _ if tool.starts_with("aegis.volume.") => self.volume_tool(tool, &args),
            _ if tool.starts_with("workspace_") => self.machine_tool(tool, &args),
            "exec" => Ok(self.exec(&args)),
            _ => self.git(tool, &args),
        }
    }
}

#[async_trait]
impl Volumes for ScriptedDaemon {
    fn attach(
        &self,
        _: SessionId,
        _: WorkspaceId,
        _: &[VolumeRequest],
    ) -> Result<Vec<AttachedVolume>, ToolError> {
        Ok(Vec::new())
    }
    fn set(&self, _: WorkspaceId, _: &[AttachedVolume]) {}
    fn all_set(&self) {}
    async fn mount(&self, attached: &[AttachedVolume]) -> Result<Vec<MountedFolder>, ToolError> {
        let folder = |volume: &AttachedVolume| MountedFolder {
            folder: self.folder.join(volume.volume.to_string()),
            read_only: false,
            owner: None,
        };
        Ok(attached.iter().map(folder).collect())
    }
}

impl GitCredentials for ScriptedDaemon {
    fn used_for(&self, url: &str) -> Option<String> {
        url.contains("example.org").then(|| "example.org".to_owned())
    }
}
