//! A network and a vault in memory, beside the fake of the daemon's tools.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use hivekeep_kernel::{Layer, ToolError, WorkspaceId};
use hivekeep_ports::{
    ForwardedPort, GroupChange, InterfaceSettings, Netdev, Network, NetworkMode, NetworkRequest,
    NetworkView, ReachPolicy, Transport, Vault,
};

use super::fake::Fake;

fn view(policy: ReachPolicy) -> NetworkView {
    let attachment = InterfaceSettings {
        mac: [2; 6],
        address: Ipv4Addr::new(10, 0, 0, 9),
        prefix_len: 16,
        gateway: Ipv4Addr::new(10, 0, 0, 1),
        dns: None,
    };
    NetworkView { attachment, policy, forwards: Vec::new() }
}

/// Every workspace that there is has a place in it, unless `placeless`.
#[async_trait]
impl Network for Fake {
    async fn mode(&self) -> Result<NetworkMode, ToolError> {
        Ok(self.with(|world| match &world.alone {
            Some(reason) => NetworkMode::User { reason: (*reason).to_owned() },
            None => NetworkMode::Bridge,
        }))
    }

    async fn set_policy(
        &self,
        id: WorkspaceId,
        request: NetworkRequest,
    ) -> Result<ReachPolicy, ToolError> {
        self.with(|world| {
            let known = world.workspaces.iter().find(|(_, one)| one.id == id);
            let (name, _) = known.expect("only what is there is put into a group");
            if world.unruly.is_some_and(|part| name.contains(part)) {
                return Err(ToolError::foreign(Layer::Machine, "network_failed", "nft said no"));
            }
            assert_eq!(request.allow_inter_vm, Some(false));
            let policy = world.policies.entry(id).or_default();
            policy.group = request.group.and_then(GroupChange::group);
            Ok(policy.clone())
        })
    }

    fn view(&self, id: WorkspaceId) -> Option<NetworkView> {
        self.with(|world| {
            let there = world.workspaces.values().any(|one| one.id == id) && !world.placeless;
            there.then(|| view(world.policies.get(&id).cloned().unwrap_or_default()))
        })
    }

    async fn join(
        &self,
        _: WorkspaceId,
        _: NetworkRequest,
    ) -> Result<InterfaceSettings, ToolError> {
        unreachable!("teams do not give places")
    }
    async fn cable(&self, _: WorkspaceId) -> Result<Netdev, ToolError> {
        unreachable!("teams do not launch machines")
    }
    async fn settled(&self, _: WorkspaceId) -> Result<(), ToolError> {
        unreachable!("a policy that is set is in force")
    }
    async fn add_forward(
        &self,
        _: WorkspaceId,
        _: Transport,
        _: u16,
        _: Option<u16>,
    ) -> Result<ForwardedPort, ToolError> {
        unreachable!("teams forward no ports")
    }
    async fn remove_forward(
        &self,
        _: WorkspaceId,
        _: Transport,
        _: u16,
        _: Option<u16>,
    ) -> Result<Vec<ForwardedPort>, ToolError> {
        unreachable!("teams forward no ports")
    }
    async fn set_parked(&self, _: WorkspaceId, _: bool) -> Result<(), ToolError> {
        unreachable!("teams do not park machines")
    }
    async fn leave(&self, _: WorkspaceId) -> Result<(), ToolError> {
        unreachable!("whoever removes a workspace takes it out")
    }
    async fn retain(&self, _: Vec<WorkspaceId>) -> Result<(), ToolError> {
        unreachable!("that is the workspaces' to say")
    }
}

/// Files by path, and how often one was written.
#[derive(Clone, Default)]
pub(crate) struct Shelf(Arc<Mutex<Inside>>);

#[derive(Default)]
pub(super) struct Inside {
    pub(super) files: BTreeMap<String, Vec<u8>>,
    pub(super) writes: usize,
    /// What every call is told.
    pub(super) broken: Option<&'static str>,
}

impl Shelf {
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut Inside) -> T) -> T {
        change(&mut self.0.lock().expect("no test panics in here"))
    }

    fn ask<T>(&self, question: impl FnOnce(&mut Inside) -> T) -> Result<T, ToolError> {
        self.with(|inside| match inside.broken {
            Some(code) => Err(ToolError::foreign(Layer::Actor, code, "no vault")),
            None => Ok(question(inside)),
        })
    }

    pub(super) fn paths(&self) -> Vec<String> {
        self.with(|inside| inside.files.keys().cloned().collect())
    }

    pub(super) fn card(&self, path: &str) -> serde_json::Value {
        let bytes = self.with(|inside| inside.files.get(path).cloned());
        serde_json::from_slice(&bytes.unwrap_or_default()).unwrap_or_default()
    }
}

#[async_trait]
impl Vault for Shelf {
    async fn write(&self, path: &str, content: Vec<u8>) -> Result<(), ToolError> {
        self.ask(|inside| {
            inside.writes += 1;
            inside.files.insert(path.to_owned(), content);
        })
    }
    async fn remove(&self, path: &str) -> Result<bool, ToolError> {
        self.ask(|inside| inside.files.remove(path).is_some())
    }
    async fn read(&self, path: &str) -> Result<Option<Vec<u8>>, ToolError> {
        self.ask(|inside| inside.files.get(path).cloned())
    }
    async fn list(&self, folder: &str) -> Result<Vec<String>, ToolError> {
        let prefix = format!("{folder}/");
        self.ask(|inside| {
            let below = inside.files.keys().filter(|path| path.starts_with(&prefix));
            below.cloned().collect()
        })
    }
}
