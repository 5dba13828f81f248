//! What has to hold, whatever the isolation.

pub mod attack;
pub mod browser;
pub mod crash;
pub mod disks;
pub mod e2b;
pub mod e2b_crash;
pub mod escapes;
pub mod examples;
pub mod files;
pub mod git;
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
pub mod merge;
pub mod merge_git;
pub mod network;
pub mod parking;
pub mod places;
pub mod pool;
pub mod port_urls;
pub mod prepare;
pub mod processes;
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
pub mod upgrade;
pub mod users;
pub mod volumes;
pub mod volumes_vm;
pub mod waiting;
pub mod walls;

/// Each scene as a test of the surrounding module's kind.
macro_rules! scenes {
    ($kind:ident) => {
        crate::scenes::scenes!(@ $kind life: create_run_stop_start_destroy, names_and_sizes_are_checked,
            logs_stay_after_a_stop, a_killed_machine_is_a_crash,
            a_killed_guest_daemon_comes_back, a_hung_guest_is_reported_and_can_be_stopped, a_graceful_daemon_stop_leaves_machines, env_is_the_workspaces_own);
        crate::scenes::scenes!(@ $kind run: output_of_any_size, timeouts_end_the_tree, stragglers_do_not_stall,
            many_at_once, in_parallel_over_workspaces, one_session_leaves_places_to_others);
        crate::scenes::scenes!(@ $kind jobs: a_job_is_followed_to_its_end, a_job_is_killed);
        crate::scenes::scenes!(@ $kind files: text_files, transfers_both_ways, large_files_in_bounded_memory,
            full_disks_are_told_and_lose_nothing);
        crate::scenes::scenes!(@ $kind places: every_file_tool_works_in_a_workspace, a_session_has_one_workspace_of_its_own);
        crate::scenes::scenes!(@ $kind git: a_repository_goes_round, a_secret_is_asked_for_over_the_link);
        crate::scenes::scenes!(@ $kind attack: an_attacked_daemon_lives_stays_small_serves_others_and_starts_again);
        crate::scenes::scenes!(@ $kind kept: a_restored_state_leaves_the_first_daemons_machines_alone);
        crate::scenes::scenes!(@ $kind crash: idle_with_two_workspaces_and_a_job, every_point_of_create,
            every_point_of_destroy, every_point_of_stop_and_start, jobs_and_transfers);
    };
    (@ $kind:ident $module:ident: $($scene:ident),+) => {
        mod $module {
            $(#[test]
            fn $scene() {
                if let Some(house) = crate::house::House::open(super::$kind) {
                    crate::scenes::$module::$scene(house);
                }
            })+
        }
    };
}

/// What only virtual machines have.
macro_rules! snapshot_scenes {
    () => {
        crate::scenes::scenes!(@ Vm snapshots: memory_and_disk_go_back_to_any_node,
            forks_of_one_memory_are_themselves, forks_of_forks_and_of_disks,
            a_paused_workspace_stands_still, every_point_of_a_snapshot_and_a_restore,
            every_point_of_ten_forks);
        crate::scenes::scenes!(@ Vm parking: a_machine_sleeps_and_wakes_at_every_point,
            a_fork_sleeps_as_a_difference, every_sleeper_has_its_own_answer);
        crate::scenes::scenes!(@ Vm disks: disks_come_back_as_they_were_frozen);
        crate::scenes::scenes!(@ Vm merge: what_deletions_leave_is_merged_and_lost_nowhere);
        crate::scenes::scenes!(@ Vm merge_git: forks_come_together);
        crate::scenes::scenes!(@ Vm prepare: a_golden_workspace_is_forked, what_fails_leaves_nothing,
            every_point_of_a_preparation);
        crate::scenes::scenes!(@ Vm swarm: tasks_run_in_forks_and_come_together,
            every_point_of_a_swarm, an_ordered_stop_cancels_no_swarm);
    };
}

/// What a network takes to be shown, by its mode.
macro_rules! network_scenes {
    ($($mode:literal: $($scene:ident),+;)+) => {
        $($(#[test]
        fn $scene() {
            use crate::{house::{House, Kind::Vm}, scenes::network};
            if let Some(house) = House::open_networked($mode, Vm, network::CONFIG) {
                network::$scene(house);
            }
        })+)+
    };
}
pub(crate) use {network_scenes, scenes, snapshot_scenes};
