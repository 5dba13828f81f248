//! What has to hold, whatever the isolation.

pub mod acp;
pub mod agent_commands;
pub mod attack;
pub mod browser;
pub mod bundle;
pub mod cgroups;
pub mod crash;
pub mod dags;
pub mod disks;
pub mod e2b;
pub mod e2b_crash;
pub mod escapes;
pub mod examples;
pub mod files;
pub mod forks;
pub mod git;
pub mod guides;
pub mod host;
pub mod http_api;
pub mod hub;
pub mod image;
pub mod interpreter;
pub mod jobs;
pub mod kept;
pub mod knowledge;
pub mod life;
pub mod lifetimes;
pub mod loopback;
pub mod merge;
pub mod merge_git;
pub mod network;
pub mod owners;
pub mod parking;
pub mod places;
pub mod pool;
pub mod port_urls;
pub mod prepare;
pub mod processes;
pub mod programs;
pub mod repositories;
pub mod resources;
pub mod run;
pub mod snapshots;
pub mod swarm;
pub mod tasks;
pub mod team;
pub mod team_cards;
pub mod team_storm;
pub mod team_tasks;
pub mod team_watch;
pub mod trees;
pub mod two_users;
pub mod upgrade;
pub mod users;
pub mod volumes;
pub mod volumes_vm;
pub mod vsock;
pub mod waiting;
pub mod walls;

/// Scenes behind their names, which are those of their functions.
macro_rules! rows {
    ($($module:ident: $($scene:ident),+);+) => {
        [$($((
            concat!(stringify!($module), "::", stringify!($scene)),
            crate::scenes::$module::$scene as _,
        )),+),+]
    };
}
pub(crate) use rows;
