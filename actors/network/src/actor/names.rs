//! The resolver of the guests, as the worker keeps it.

use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::enforce::Order;
use crate::plan::NetworkPlan;
use crate::resolver::{
    AddressOpener, Permits, Resolver, ResolverControl, ResolverLimits, ResolverSettings,
};
use crate::rules::NAMES_MARK;
use crate::{Error, Options, ResolvedAddresses};

/// Time that a guest's answer waits for its addresses to be opened.
const OPENING: Duration = Duration::from_secs(5);

/// Addresses that a guest's answer waits for.
pub(super) struct Wanted {
    pub(super) openings: Vec<ResolvedAddresses>,
    pub(super) done: oneshot::Sender<Result<(), Error>>,
}

/// Passes openings on to the worker.
struct Opener(mpsc::WeakSender<Order>);

#[async_trait]
impl AddressOpener for Opener {
    async fn open(&self, openings: Vec<ResolvedAddresses>) -> Result<(), Error> {
        let ended = || Error::Missing { what: "the network has stopped".to_owned() };
        let (done, opened) = oneshot::channel();
        let order = Order::Open(Wanted { openings, done });
        let worker = self.0.upgrade().ok_or_else(ended)?;
        let asked = async {
            worker.send(order).await.map_err(|_| ended())?;
            opened.await.map_err(|_| ended())?
        };
        let late = || Error::NftTimeout { after: OPENING };
        tokio::time::timeout(OPENING, asked).await.unwrap_or_else(|_| Err(late()))
    }
}

/// The resolver, while it runs.
pub(super) struct Names {
    options: Options,
    worker: mpsc::WeakSender<Order>,
    /// At most one, which ends with this value.
    running: JoinSet<Result<(), Error>>,
    control: Option<ResolverControl>,
}

impl Names {
    pub(super) fn new(options: &Options, worker: mpsc::WeakSender<Order>) -> Self {
        Self { options: options.clone(), worker, running: JoinSet::new(), control: None }
    }

    pub(super) fn serves(&self) -> bool {
        self.control.is_some()
    }

    /// Listens at the gateway, which must be there.
    pub(super) async fn start(&mut self, network: &NetworkPlan) -> Result<(), Error> {
        let options = self.options.clone();
        let upstreams = tokio::task::spawn_blocking(move || options.upstreams()).await;
        let upstreams = upstreams
            .map_err(|error| Error::io("read resolv.conf")(std::io::Error::other(error)))?;
        let resolver = Resolver::bind(ResolverSettings {
            listen: SocketAddrV4::new(network.subnet().gateway(), 53),
            upstreams,
            limits: ResolverLimits::default(),
            permits: Permits::of(network),
            opens: Arc::new(Opener(self.worker.clone())),
            mark: Some(NAMES_MARK),
        })
        .await?;
        self.control = Some(resolver.control());
        self.running.spawn(resolver.run());
        Ok(())
    }

    /// Queries are judged by this plan from now on.
    pub(super) fn permit(&self, network: &NetworkPlan) {
        if let Some(control) = &self.control {
            control.permit(Permits::of(network));
        }
    }

    /// Waits for the resolver's end, for ever where none runs. Why it ended.
    pub(super) async fn ended(&mut self) -> String {
        match self.running.join_next().await {
            None => std::future::pending().await,
            Some(end) => {
                self.control = None;
                match end {
                    Ok(Ok(())) => "it ended".to_owned(),
                    Ok(Err(error)) => error.to_string(),
                    Err(error) => error.to_string(),
                }
            }
        }
    }
}
