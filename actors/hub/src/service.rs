//! Service of the hub's tools.

use std::sync::Arc;

use hivekeep_kernel::{
    CallCx, Layer, Service, ServiceActor, Tier, ToolError, ToolGroup, ports::HubDoor,
};
use hivekeep_runtime::Ports;

use crate::{
    Options, address, codes,
    tools::{self, HubInfo, HubStarted, LookAtHub, StartHub},
};

/// The hub, as sessions have it.
pub(crate) struct HubTools {
    pub(crate) options: Options,
    pub(crate) ports: Ports,
}

impl Service for HubTools {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = &[&tools::FAMILY];
}

impl HubTools {
    /// The door, which opens after the families are mounted.
    fn door(&self) -> Result<Arc<dyn HubDoor>, ToolError> {
        self.ports.find::<dyn HubDoor>().ok_or_else(|| {
            ToolError::new(Layer::Actor, codes::ACTOR_UNAVAILABLE, "the daemon is still starting")
                .retryable()
        })
    }

    pub(crate) async fn start(
        self: Arc<Self>,
        cx: CallCx,
        input: StartHub,
    ) -> Result<HubStarted, ToolError> {
        let operator = cx.view.reaches(Tier::Operator);
        let address = address::wanted(&self.options.listener, Some(&input.addr), operator)?;
        let hub = self.door()?.start(address).await?;
        let (url, same) = (&hub.url, address.port() == 0 || hub.address == address);
        let message = match hub.started {
            true => format!("it listens at {url} until the daemon stops"),
            false if same => format!("it listened already, at {url}"),
            false => format!("it listened already, at {url}; {address} was not opened"),
        };
        Ok(HubStarted { success: true, addr: hub.address.to_string(), message })
    }

    pub(crate) async fn info(
        self: Arc<Self>,
        _: CallCx,
        _: LookAtHub,
    ) -> Result<HubInfo, ToolError> {
        let counts = self.door()?.counts();
        Ok(HubInfo { clients: counts.clients, channels: counts.channels })
    }
}
