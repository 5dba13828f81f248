//! Becoming somebody's: the way of a machine of the pool into a session's hands.

use std::time::Duration;

use hivekeep_kernel::{
    Layer, ToolError, fault_point,
    ports::{NetworkPolicy, NetworkWish},
};
use serde_json::json;
use tokio::sync::oneshot;

use super::{Line, Msg, Workspace, identity};
use crate::{
    link::Link,
    phase::Phase,
    records::{Planned, Record},
    shared::Desk,
    workspaces::Claims,
};

/// Time for the guest to take its new name and for the network to keep its new policy. One that
/// needs longer is no quick machine.
const PATIENCE: Duration = Duration::from_secs(3);

/// A wish to have a machine of the pool.
pub struct Claim {
    /// What it shall be, with name and quota.
    pub(crate) claims: Claims,
    /// The claims come back with what was wrong with the machine.
    pub(crate) reply: oneshot::Sender<Result<(), Box<(Claims, ToolError)>>>,
}

impl Workspace {
    pub(super) fn claim(&mut self, wish: Claim) {
        let Claim { claims, reply } = wish;
        let link = match self.claimable() {
            Ok(link) => link,
            Err(error) => return drop(reply.send(Err(Box::new((claims, error))))),
        };
        self.claiming = true;
        let (desk, plan) = (self.desk.clone(), self.ledger.plan.clone());
        // To its end, whether or not the caller waits: it is somebody's then.
        let _detached = self.ops.spawn(async move {
            let outcome = hand_over(&desk, &plan, &link, claims).await;
            let _actor_gone = desk.actor.send(Msg::ClaimOver);
            let _caller_gone = reply.send(outcome);
        });
    }

    fn claimable(&self) -> Result<Link, ToolError> {
        let refused = |why: String| ToolError::new(Layer::Actor, "not_claimable", why);
        if self.ledger.plan.pool.is_none() || self.claiming {
            return Err(refused("it is somebody's already".to_owned()));
        }
        if self.phase != Phase::Running {
            return Err(refused(format!("it is {}", self.phase.word())));
        }
        match &*self.line.borrow() {
            Line::Up(link) => Ok(link.clone()),
            other => Err(refused(format!("its link is {}", other.word()))),
        }
    }

    /// Removes a machine of the pool, unless it is somebody's by now.
    pub(super) fn discard(&mut self, done: oneshot::Sender<Result<(), ToolError>>) {
        let refusal = match () {
            () if self.ledger.plan.pool.is_none() || self.claiming => {
                Some(ToolError::new(Layer::Actor, "not_owner", "it is somebody's"))
            }
            () if self.phase == Phase::Destroying => Some(self.phase.busy()),
            () => self.idle().err(),
        };
        if let Some(error) = refusal {
            return drop(done.send(Err(error)));
        }
        self.set_phase(Phase::Destroying);
        let work = self.destruction("pool.discarded");
        let _detached = self.ops.spawn(async move { drop(done.send(work.await)) });
    }
}

/// One round to the guest and one commit. The guest first: one that does not answer has lost
/// nothing and is nobody's still.
async fn hand_over(
    desk: &Desk,
    plan: &Planned,
    link: &Link,
    mut claims: Claims,
) -> Result<(), Box<(Claims, ToolError)>> {
    let wish = claims.plan().clone();
    let named = Planned { name: wish.name.clone(), ..plan.clone() };
    let becoming = async {
        let named = identity::configure(link, &named, false);
        tokio::try_join!(named, apply_wish(desk, &wish.network)).map(drop)
    };
    let error = match tokio::time::timeout(PATIENCE, becoming).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error),
        Err(_) => Some(ToolError::deadline(Layer::Guest, 0)),
    };
    if let Some(error) = error {
        return Err(Box::new((claims, error)));
    }
    fault_point!("claim.after_guest");
    let (directory, name) = (&desk.shared.directory, &wish.name);
    directory.hand_over(name, wish.id, desk.id);
    // Whatever comes of the commit, a machine that may be somebody's counts as such.
    claims.keep();
    let record = Record::Claimed { owner: wish.owner, name: name.clone(), at: wish.at };
    let event = ("workspace.created", json!({ "name": name, "from_pool": true }));
    if let Err(error) = desk.commit(vec![record], Some(event)).await {
        directory.hand_over(name, desk.id, wish.id);
        claims.unkeep();
        return Err(Box::new((claims, error)));
    }
    fault_point!("claim.after_claimed");
    desk.tell("pool.claimed", json!({ "name": name, "by": wish.owner }));
    Ok(())
}

/// Gives it the policy that its new owner asked for; most ask for what it has.
async fn apply_wish(desk: &Desk, wish: &NetworkWish) -> Result<(), ToolError> {
    let network = &desk.shared.network;
    match network.view(desk.id) {
        Some(view) if *wish != NetworkWish::default() && !keeps(&view.policy, wish) => {
            network.set_policy(desk.id, wish.clone()).await.map(drop)
        }
        _ => Ok(()),
    }
}

fn keeps(policy: &NetworkPolicy, wish: &NetworkWish) -> bool {
    let NetworkWish { allow_internet, allow_inter_vm, allowed_ports, egress_allow } = wish;
    allow_internet.is_none_or(|wish| wish == policy.allow_internet)
        && allow_inter_vm.is_none_or(|wish| wish == policy.allow_inter_vm)
        && allowed_ports.as_ref().is_none_or(|wish| *wish == policy.allowed_ports)
        && egress_allow.as_ref().is_none_or(|wish| *wish == policy.egress_allow)
}
