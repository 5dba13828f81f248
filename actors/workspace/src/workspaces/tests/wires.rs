//! The one fake network: it keeps places, policies and forwards, and moves no packet.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::Ipv4Addr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use hivekeep_kernel::{Layer, ToolError, WorkspaceId};
use hivekeep_ports::{
    ForwardedPort, InterfaceSettings, Netdev, Network, NetworkMode, NetworkRequest, NetworkView,
    ReachPolicy, Transport,
};

/// Places, policies and forwards; outlives a daemon as the journal does.
pub struct Wires {
    state: Mutex<State>,
    mode: NetworkMode,
}

#[derive(Default)]
struct State {
    calls: Vec<String>,
    members: BTreeMap<WorkspaceId, NetworkView>,
    parked: BTreeSet<WorkspaceId>,
    places: u8,
    failures: HashMap<&'static str, ToolError>,
}

impl Wires {
    pub fn new(mode: NetworkMode) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), mode })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every call so far, such as `join`, in their order.
    pub fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    /// The next call of this kind fails.
    pub fn fail_next(&self, call: &'static str) {
        self.fail_next_with(call, "scripted");
    }

    /// The same with this code.
    pub fn fail_next_with(&self, call: &'static str, code: &'static str) {
        let error = ToolError::foreign(Layer::Machine, code, format!("{call} fails by script"));
        self.state().failures.insert(call, error);
    }

    /// Who has a place.
    pub fn members(&self) -> Vec<WorkspaceId> {
        self.state().members.keys().copied().collect()
    }

    fn begin(&self, call: &'static str) -> Result<MutexGuard<'_, State>, ToolError> {
        let mut state = self.state();
        state.calls.push(call.to_owned());
        match state.failures.remove(call) {
            Some(error) => Err(error),
            None => Ok(state),
        }
    }

    fn allows(&self, request: &NetworkRequest) -> Result<(), ToolError> {
        let internet = request.allow_internet == Some(true);
        if internet && matches!(self.mode, NetworkMode::User { .. }) {
            let message = "allow_internet needs a bridge";
            return Err(ToolError::foreign(Layer::Machine, "policy_unavailable", message));
        }
        Ok(())
    }
}

fn apply(policy: &mut ReachPolicy, request: NetworkRequest) {
    let NetworkRequest { allow_internet, allow_inter_vm, allowed_ports, egress_allow, group } =
        request;
    policy.allow_internet = allow_internet.unwrap_or(policy.allow_internet);
    policy.allow_inter_vm = allow_inter_vm.unwrap_or(policy.allow_inter_vm);
    policy.allowed_ports = allowed_ports.unwrap_or(std::mem::take(&mut policy.allowed_ports));
    policy.egress_allow = egress_allow.unwrap_or(std::mem::take(&mut policy.egress_allow));
    if let Some(change) = group {
        policy.group = change.group();
    }
}

fn no_place() -> ToolError {
    ToolError::internal("no place")
}

#[async_trait]
impl Network for Wires {
    async fn mode(&self) -> Result<NetworkMode, ToolError> {
        Ok(self.mode.clone())
    }

    async fn join(
        &self,
        id: WorkspaceId,
        request: NetworkRequest,
    ) -> Result<InterfaceSettings, ToolError> {
        let mut state = self.begin("join")?;
        self.allows(&request)?;
        if !state.members.contains_key(&id) {
            state.places += 1;
            let host = 10 + state.places;
            let attachment = InterfaceSettings {
                mac: [2, 0x68, 10, 213, 0, host],
                address: Ipv4Addr::new(10, 213, 0, host),
                prefix_len: 16,
                gateway: Ipv4Addr::new(10, 213, 0, 1),
                dns: Some(Ipv4Addr::new(10, 213, 0, 1)),
            };
            let view = NetworkView { attachment, policy: Default::default(), forwards: Vec::new() };
            state.members.insert(id, view);
        }
        let member = state.members.get_mut(&id).ok_or_else(no_place)?;
        apply(&mut member.policy, request);
        Ok(member.attachment)
    }

    async fn cable(&self, id: WorkspaceId) -> Result<Netdev, ToolError> {
        let state = self.begin("cable")?;
        let member = state.members.get(&id).ok_or_else(no_place)?;
        if let NetworkMode::User { .. } = self.mode {
            return Ok(Netdev::User(member.forwards.clone()));
        }
        let end =
            std::fs::File::open("/dev/null").map_err(|e| ToolError::internal(e.to_string()))?;
        Ok(Netdev::Tap(Arc::new(end.into())))
    }

    async fn settled(&self, _: WorkspaceId) -> Result<(), ToolError> {
        self.begin("settled").map(drop)
    }

    async fn set_policy(
        &self,
        id: WorkspaceId,
        request: NetworkRequest,
    ) -> Result<ReachPolicy, ToolError> {
        let mut state = self.begin("set_policy")?;
        self.allows(&request)?;
        let member = state.members.get_mut(&id).ok_or_else(no_place)?;
        apply(&mut member.policy, request);
        Ok(member.policy.clone())
    }

    async fn add_forward(
        &self,
        id: WorkspaceId,
        transport: Transport,
        guest_port: u16,
        host_port: Option<u16>,
    ) -> Result<ForwardedPort, ToolError> {
        let mut state = self.begin("add_forward")?;
        let host_port = host_port.unwrap_or(20_000);
        let forwards = |view: &NetworkView| view.forwards.clone();
        let mut all = state.members.iter().map(|(id, view)| (*id, forwards(view)));
        let holder = all.find(|(_, forwards)| forwards.iter().any(|f| f.host_port == host_port));
        if let Some((by, _)) = holder {
            let error =
                ToolError::foreign(Layer::Actor, "port_taken", format!("{host_port} is {by}'s"));
            return Err(error.detail("by", by.to_string()));
        }
        let forward =
            ForwardedPort { transport, host_ip: Ipv4Addr::LOCALHOST, host_port, guest_port };
        state.members.get_mut(&id).ok_or_else(no_place)?.forwards.push(forward);
        Ok(forward)
    }

    async fn remove_forward(
        &self,
        id: WorkspaceId,
        transport: Transport,
        guest_port: u16,
        host_port: Option<u16>,
    ) -> Result<Vec<ForwardedPort>, ToolError> {
        let mut state = self.begin("remove_forward")?;
        let member = state.members.get_mut(&id).ok_or_else(no_place)?;
        let asked = |f: &ForwardedPort| {
            f.transport == transport
                && f.guest_port == guest_port
                && host_port.is_none_or(|port| port == f.host_port)
        };
        let removed: Vec<_> = member.forwards.iter().copied().filter(asked).collect();
        member.forwards.retain(|f| !asked(f));
        match removed.is_empty() {
            true => Err(ToolError::foreign(Layer::Actor, "forward_not_found", "no such forward")),
            false => Ok(removed),
        }
    }

    async fn set_parked(&self, id: WorkspaceId, parked: bool) -> Result<(), ToolError> {
        if self.state().parked.contains(&id) == parked {
            return Ok(());
        }
        let mut state = self.begin(if parked { "parked" } else { "awake" })?;
        match parked {
            true => state.parked.insert(id),
            false => state.parked.remove(&id),
        };
        Ok(())
    }

    fn view(&self, id: WorkspaceId) -> Option<NetworkView> {
        self.state().members.get(&id).cloned()
    }

    async fn leave(&self, id: WorkspaceId) -> Result<(), ToolError> {
        self.begin("leave")?.members.remove(&id);
        Ok(())
    }

    async fn retain(&self, ids: Vec<WorkspaceId>) -> Result<(), ToolError> {
        self.begin("retain")?.members.retain(|id, _| ids.contains(id));
        Ok(())
    }
}
