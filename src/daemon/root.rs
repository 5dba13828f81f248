//! The root of the supervision tree, and the policies of its children.

use hivekeep_kernel::{
    Address, Backoff, Census, ChildNews, Entity, Fault, GiveUp, Me, Nursery, Policy, Restart,
};
use hivekeep_network::Keeper as Network;
use hivekeep_registry::{Registry, RegistrySeed, Sessions, SessionsSeed};
use hivekeep_store::Journal;
use hivekeep_team::{Swarms, Teams};
use hivekeep_vault::Keeper as Vault;
use hivekeep_workspace::Workspaces;

use super::journal::Keeper;

/// A journal that stopped ends the daemon; its next start recovers.
const JOURNAL: Policy = Policy {
    restart: Restart::Always,
    max_restarts: 0,
    window_secs: 1,
    backoff: Backoff { initial_ms: 0, max_ms: 0 },
    give_up: GiveUp::Escalate,
};
const REGISTRY: Policy = Policy::ESSENTIAL;
const SESSIONS: Policy = Policy::ESSENTIAL;
const NETWORK: Policy = Policy::ESSENTIAL;
const WORKSPACES: Policy = Policy::ESSENTIAL;
const TEAMS: Policy = Policy::ESSENTIAL;
const SWARMS: Policy = Policy::ESSENTIAL;
/// Notes can wait; workspaces cannot. Given up, the vault stays down and its tool says so.
const VAULT: Policy = Policy::ENTITY;
/// Nobody restarts the root but the service manager.
const ROOT: Policy = Policy::TEMPORARY;

/// Names of the places, as `hivekeep ps` shows them.
const PATH: &str = "root";

/// Addresses of the root and its children. Made before the actors, so that all
/// can be wired to each other whatever starts first.
#[derive(Clone)]
pub(super) struct Places {
    pub(super) root: Address<()>,
    pub(super) journal: Address<<Keeper as Entity>::Msg>,
    pub(super) registry: Address<<Registry as Entity>::Msg>,
    pub(super) sessions: Address<<Sessions as Entity>::Msg>,
    pub(super) network: Address<<Network as Entity>::Msg>,
    pub(super) workspaces: Address<<Workspaces as Entity>::Msg>,
    pub(super) teams: Address<<Teams as Entity>::Msg>,
    pub(super) swarms: Address<<Swarms as Entity>::Msg>,
    pub(super) vault: Address<<Vault as Entity>::Msg>,
}

impl Places {
    pub(super) fn new(census: &Census) -> Self {
        let place = |name: &str| format!("{PATH}/{name}");
        Self {
            root: Address::vacant(census.probe(PATH, "root", ROOT)),
            journal: Address::vacant(census.probe(&place("journal"), "journal", JOURNAL)),
            registry: Address::vacant(census.probe(&place("registry"), "registry", REGISTRY)),
            sessions: Address::vacant(census.probe(&place("sessions"), "sessions", SESSIONS)),
            network: Address::vacant(census.probe(&place("network"), "network", NETWORK)),
            workspaces: Address::vacant(census.probe(
                &place("workspaces"),
                "workspaces",
                WORKSPACES,
            )),
            teams: Address::vacant(census.probe(&place("teams"), "teams", TEAMS)),
            swarms: Address::vacant(census.probe(&place("swarms"), "swarms", SWARMS)),
            vault: Address::vacant(census.probe(&place("vault"), "vault", VAULT)),
        }
    }
}

impl Places {
    /// Whether a path is the root or one of its children.
    pub(super) fn first_rank(&self, path: &str) -> bool {
        path.split('/').count() <= 2
    }
}

/// What the children are made from.
#[derive(Clone)]
pub(super) struct Seed {
    pub(super) places: Places,
    pub(super) census: Census,
    pub(super) journal: Journal,
    pub(super) registry: RegistrySeed,
    pub(super) sessions: SessionsSeed,
    pub(super) network: <Network as Entity>::Seed,
    pub(super) workspaces: <Workspaces as Entity>::Seed,
    /// What teams and swarms share.
    pub(super) teams: <Teams as Entity>::Seed,
    pub(super) vault: <Vault as Entity>::Seed,
}

/// The root supervisor.
pub(super) struct Root(Nursery);

impl Entity for Root {
    type Msg = ();
    type Seed = Seed;

    async fn start(seed: Seed, me: Me<()>) -> Result<Self, Fault> {
        let Seed { places, census, journal, registry, sessions, network, workspaces, teams, vault } =
            seed;
        let mut nursery = Nursery::new(PATH, census, me.cell);
        nursery.start::<Keeper>("journal", JOURNAL, &places.journal, journal)?;
        nursery.start::<Registry>("registry", REGISTRY, &places.registry, registry)?;
        nursery.start::<Sessions>("sessions", SESSIONS, &places.sessions, sessions)?;
        nursery.start::<Network>("network", NETWORK, &places.network, network)?;
        nursery.start::<Workspaces>("workspaces", WORKSPACES, &places.workspaces, workspaces)?;
        nursery.start::<Teams>("teams", TEAMS, &places.teams, teams.clone())?;
        nursery.start::<Swarms>("swarms", SWARMS, &places.swarms, teams)?;
        nursery.start::<Vault>("vault", VAULT, &places.vault, vault)?;
        Ok(Self(nursery))
    }

    fn handle(&mut self, (): ()) -> Result<(), Fault> {
        Ok(())
    }

    fn child(&mut self, news: ChildNews) -> Result<(), Fault> {
        self.0.hear(news).map(drop)
    }
}
