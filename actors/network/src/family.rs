//! The network as a family: no tools of its own, one actor, a port for the others.

use std::sync::Arc;

use hivekeep_kernel::{ErrorCode, Layer, RestartPolicy, ToolError, ports};
use hivekeep_runtime::{Daemon, Family, Finding, Host, Mounted};

use crate::{Error, NetworkActor, NetworkModeChoice, Options, codes, doctor, open};

/// Offers [`ports::Network`].
pub struct NetworkFamily;

impl Family for NetworkFamily {
    type Options = Options;

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        let address = daemon.address("network", RestartPolicy::ESSENTIAL);
        let (state, journal) = (daemon.folders.state.clone(), daemon.journal.clone());
        let opened = open(options, state, journal, address.clone(), daemon.ports.clone()).await;
        let (network, seed) = opened.map_err(|error| impossible(&error))?;
        daemon.ports.offer::<dyn ports::Network>(Arc::new(network.clone()));
        daemon.ports.offer::<dyn ports::ReachRules>(Arc::new(network.clone()));
        // Machines that did not stop hold their cables, and keep it.
        Ok(Mounted::default()
            .child::<NetworkActor>(&address, seed)
            .tear_down(|| async move { network.take_down().await }))
    }

    async fn check(options: &Options, host: &Host) -> Vec<Finding> {
        let needed = options.mode == NetworkModeChoice::Bridge;
        let found = doctor::doctor(options, &host.folders.state).await;
        found.into_iter().map(|finding| finding.needed(needed)).collect()
    }
}

fn impossible(error: &Error) -> ToolError {
    let message = format!("network.mode is \"bridge\": {error}");
    ToolError::new(Layer::Machine, codes::NETWORK_UNAVAILABLE, message)
        .next("`hivekeep check` looks at what is missing")
}
