//! A real daemon with real machines, driven from outside and killed on purpose.
//!
//! `sandbox` runs everywhere bubblewrap does and is quick; `vm` boots virtual
//! machines and runs one test at a time. What a host cannot run prints
//! `SKIPPED:` and why.
#![allow(clippy::print_stdout)]

#[path = "../it/knowledge/counter.rs"]
mod counter;
mod door;
mod house;
mod https;
mod leaks;
mod loopback;
mod names;
mod owners;
mod scenes;

/// Configuration of daemons whose embeddings a counter makes.
fn knowledge_config(counter: &counter::Counter) -> String {
    format!("{}[ingest]\npoll_secs = 1\n", counter.config())
}

fn ingested_from(kind: house::Kind) {
    let counter = counter::Counter::start();
    if let Some(house) = house::House::open_with(kind, &knowledge_config(&counter)) {
        scenes::knowledge::every_workspace_of_a_session_is_ingested(house, &counter);
    }
}

/// Tests on namespaces: hundreds of crashes in the time of a few boots.
mod sandbox {
    use crate::house::{House, Kind::Sandbox};
    crate::scenes::scenes!(Sandbox);
    crate::scenes::scenes!(@ Sandbox walls: a_sandbox_is_walled_in_and_says_how);
    crate::scenes::scenes!(@ Sandbox disks: a_sandboxs_disk_is_left_out_by_name);
    crate::scenes::scenes!(@ Sandbox merge_git: clones_come_together, a_daemon_may_die_in_a_merge);
    crate::scenes::scenes!(@ Sandbox processes: a_process_is_written_to_after_the_daemon_was_killed,
        who_does_not_listen_is_killed_with_its_children, a_program_runs_in_the_place);
    crate::scenes::scenes!(@ Sandbox image: a_container_image_is_pulled_and_worked_in,
        an_entry_point_runs_where_there_is_no_shell, every_point_of_a_pull_and_a_removal);
    crate::scenes::scenes!(@ Sandbox trees: a_tree_of_any_depth_goes_and_the_daemon_lives);
    crate::scenes::scenes!(@ Sandbox resources: a_workspace_is_read_by_uri_by_its_owner);
    crate::scenes::scenes!(@ Sandbox tasks: a_command_outlives_its_client_and_is_told_by_the_next_daemon);
    crate::scenes::scenes!(@ Sandbox escapes: no_path_leads_out_of_a_sandbox);
    crate::scenes::scenes!(@ Sandbox lifetimes: every_point_of_an_end);
    crate::scenes::scenes!(@ Sandbox parking: a_sandbox_says_that_it_cannot_sleep);

    #[test]
    fn every_workspace_of_a_session_is_ingested() {
        crate::ingested_from(Sandbox);
    }

    #[test]
    fn a_volume_is_ingested() {
        let counter = crate::counter::Counter::start();
        let config = crate::knowledge_config(&counter);
        if let Some(house) = volumes_and(&config) {
            crate::scenes::knowledge::a_volume_is_ingested(house, &counter);
        }
    }

    #[test]
    fn volumes_outlive_workspaces_and_daemons() {
        if let Some(house) = volumes() {
            crate::scenes::volumes::bytes_outlive_workspaces_and_daemons(house);
        }
    }

    #[test]
    fn what_cannot_be_mounted_is_refused() {
        if let Some(house) = volumes() {
            crate::scenes::volumes::what_cannot_be_mounted_is_refused_and_leaves_nothing(house);
        }
    }

    #[test]
    fn no_path_of_the_host_leads_out_of_where_it_begins() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root maps the owner of a folder");
        } else if let Some(house) = House::open(Sandbox) {
            crate::scenes::escapes::no_path_of_the_host_leads_out_of_where_it_begins(house);
        }
    }

    #[test]
    fn no_mount_leads_out_of_a_sandbox() {
        if let Some(house) = volumes() {
            crate::scenes::escapes::no_mount_leads_out_of_a_sandbox(house);
        }
    }

    #[test]
    fn no_path_leads_out_of_a_repository() {
        if let Some(house) = volumes() {
            crate::scenes::escapes::no_path_leads_out_of_a_repository(house);
        }
    }

    #[test]
    fn every_point_of_a_volume() {
        if let Some(house) = volumes() {
            crate::scenes::volumes::every_point_of_a_volume(house);
        }
    }

    #[test]
    fn a_repository_goes_there_and_back() {
        if let Some(house) = volumes() {
            crate::scenes::repositories::a_repository_goes_there_and_back(house);
        }
    }

    #[test]
    fn every_point_of_a_repository() {
        if let Some(house) = volumes() {
            crate::scenes::repositories::every_point_of_a_repository(house);
        }
    }

    #[test]
    fn python_and_node_work_and_what_npm_installs_outlives_the_workspace() {
        if let Some(house) = volumes() {
            crate::scenes::image::python_and_node_work_and_what_npm_installs_outlives_the_workspace(
                house,
            );
        }
    }

    #[test]
    fn commands_run_as_the_user_of_the_image() {
        if let Some(house) = volumes() {
            crate::scenes::image::commands_of_a_sandbox_run_as_the_user_of_the_image(house);
        }
    }

    fn volumes() -> Option<House> {
        volumes_and("")
    }

    fn volumes_and(config: &str) -> Option<House> {
        if !rustix::process::geteuid().is_root()
            || !std::path::Path::new("/dev/loop-control").exists()
        {
            println!("SKIPPED: volumes need root and loop devices");
            return None;
        }
        House::open_with(Sandbox, &format!("{}\n{config}", crate::scenes::volumes::CONFIG))
    }

    #[test]
    fn files_and_processes_are_a_users() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only a daemon of root's gives a sandbox several users");
        } else if let Some(house) = House::open(Sandbox) {
            crate::scenes::users::files_and_processes_are_a_users(house);
        }
    }

    #[test]
    fn commands_run_beside_a_folder_of_the_host() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root maps the owner of a folder");
        } else if let Some(house) = House::open(Sandbox) {
            crate::scenes::places::commands_run_beside_a_folder_of_the_host(house);
        }
    }

    #[test]
    fn a_workspace_is_its_owners_and_its_secrets_are_written_nowhere() {
        use crate::scenes::http_api;
        if let Some(house) = House::open_with(Sandbox, http_api::CONFIG) {
            http_api::a_workspace_is_its_owners_and_its_secrets_are_written_nowhere(house);
        }
    }

    #[test]
    fn a_port_has_a_url_and_its_owner_says_who_gets_in() {
        use crate::scenes::port_urls;
        if let Some(house) = House::open_with(Sandbox, port_urls::CONFIG) {
            port_urls::a_port_has_a_url_and_its_owner_says_who_gets_in(house);
        }
    }

    #[test]
    fn a_process_is_followed_while_it_lives() {
        use crate::scenes::hub;
        if let Some(house) = House::open_with(Sandbox, hub::CONFIG) {
            hub::a_process_is_followed_while_it_lives(house);
        }
    }

    #[test]
    fn a_team_is_followed_by_the_session_that_operates_it() {
        use crate::scenes::hub;
        if let Some(house) = House::open_with(Sandbox, hub::CONFIG) {
            hub::a_team_is_followed_by_the_session_that_operates_it(house);
        }
    }

    #[test]
    fn a_browser_downloads_into_a_workspace_and_a_volume() {
        use crate::scenes::browser;
        if let Some(house) = volumes_and(browser::CONFIG) {
            browser::a_browser_downloads_into_a_workspace_and_a_volume(house);
        }
    }

    #[test]
    fn a_crashed_machine_restarts_by_policy() {
        if let Some(house) = House::open_with(Sandbox, "restart_crashed = true") {
            crate::scenes::life::a_crashed_machine_restarts_by_policy(house);
        }
    }

    #[test]
    fn a_sandbox_refuses_snapshots() {
        if let Some(house) = House::open(Sandbox) {
            crate::scenes::snapshots::a_sandbox_refuses_snapshots(house);
        }
    }

    #[test]
    fn a_team_talks_and_outlives_the_daemon() {
        if let Some(house) = House::open(Sandbox) {
            crate::scenes::team::a_team_talks_and_outlives_the_daemon(house);
        }
    }

    #[test]
    fn every_point_of_a_team() {
        if let Some(house) = House::open(Sandbox) {
            crate::scenes::team::every_point_of_a_team(house);
        }
    }

    crate::scenes::scenes!(@ Sandbox waiting: a_trace_goes_through_to_commands);

    #[test]
    fn waiting_messages_are_told_beside_any_answer() {
        if let Some(house) = House::open_with(Sandbox, crate::scenes::waiting::CONFIG) {
            crate::scenes::waiting::waiting_messages_are_told_beside_any_answer(house);
        }
    }

    crate::scenes::scenes!(@ Sandbox team_tasks: thirty_tasks_are_each_run_once,
        a_stopped_workspace_keeps_its_tasks, every_point_of_a_task);

    #[test]
    fn a_team_in_a_storm() {
        use crate::scenes::team_storm::{self, FULL};
        if let Some(house) = House::open(Sandbox) {
            team_storm::nothing_is_lost_or_doubled(house, &FULL);
        }
    }

    #[test]
    fn a_team_is_watched_on_a_terminal() {
        if let Some(house) = House::open(Sandbox) {
            crate::scenes::team_watch::a_team_is_watched_on_a_terminal(house);
        }
    }

    #[test]
    fn cards_follow_their_team() {
        if let Some(house) = House::open(Sandbox) {
            crate::scenes::team_cards::cards_follow_their_team(house);
        }
    }

    #[test]
    fn the_example_team_shares_work() {
        if let Some(house) = House::open(Sandbox) {
            crate::scenes::examples::a_team_shares_work(house);
        }
    }

    #[test]
    fn a_recorded_state_is_taken_over() {
        crate::scenes::upgrade::a_recorded_state_is_taken_over();
    }

    #[test]
    fn a_sandbox_is_not_prepared() {
        if let Some(house) = House::open(Sandbox) {
            crate::scenes::prepare::a_sandbox_is_not_prepared(house);
        }
    }
}

/// The same on virtual machines, and what only they can show.
mod vm {
    use crate::house::{House, Kind::Vm};
    crate::scenes::scenes!(Vm);
    crate::scenes::snapshot_scenes!();

    #[test]
    fn every_workspace_of_a_session_is_ingested() {
        crate::ingested_from(Vm);
    }

    #[test]
    fn volumes_are_shared_and_outlive_machines() {
        if !rustix::process::geteuid().is_root()
            || !std::path::Path::new("/dev/loop-control").exists()
        {
            println!("SKIPPED: volumes need root and loop devices");
            return;
        }
        if let Some(house) = House::open_with(Vm, crate::scenes::volumes::CONFIG) {
            crate::scenes::volumes_vm::a_volume_is_shared_and_outlives_machines(house);
        }
    }

    crate::scenes::scenes!(@ Vm team_tasks: a_stopped_workspace_keeps_its_tasks);
    crate::scenes::scenes!(@ Vm host: a_slow_machine_is_no_dead_one);
    crate::scenes::scenes!(@ Vm image: commands_run_as_the_user_of_the_image);
    crate::scenes::scenes!(@ Vm users: files_and_processes_are_a_users);

    #[test]
    fn an_older_daemon_is_replaced_while_its_machines_run() {
        crate::scenes::upgrade::an_older_daemon_is_replaced_while_its_machines_run();
    }

    #[test]
    fn a_full_disk_stops_machines_until_there_is_room() {
        use crate::scenes::host;
        if let Some(house) = House::open_on_disk(Vm, host::DISK) {
            host::a_full_disk_stops_machines_until_there_is_room(house);
        }
    }

    #[test]
    fn a_machine_is_there_before_it_is_asked_for() {
        if let Some(house) = House::open_with(Vm, crate::scenes::pool::CONFIG) {
            crate::scenes::pool::a_machine_is_there_before_it_is_asked_for(house);
        }
    }

    #[test]
    fn every_point_of_a_claim_and_a_replenishment() {
        if let Some(house) = House::open_with(Vm, crate::scenes::pool::CONFIG) {
            crate::scenes::pool::every_point_of_a_claim_and_a_replenishment(house);
        }
    }

    #[test]
    fn every_point_of_a_template() {
        if let Some(house) = House::open(Vm) {
            crate::scenes::pool::every_point_of_a_template(house);
        }
    }

    #[test]
    fn a_team_in_a_storm() {
        use crate::scenes::team_storm::{self, SMALL};
        if let Some(house) = House::open(Vm) {
            team_storm::nothing_is_lost_or_doubled(house, &SMALL);
        }
    }

    #[test]
    fn the_example_swarm_changes_this_repository() {
        if let Some(house) = House::open(Vm) {
            crate::scenes::examples::a_swarm_changes_this_repository(house);
        }
    }

    /// With a network of the daemon's own, in namespaces of the test's own.
    mod network {
        crate::scenes::network_scenes! {
            "bridge": walls_doors_and_windows, forwards_outlive_everything_but_their_workspace,
                every_point_leaves_nothing, a_repository_is_cloned_from_afar,
                a_team_is_a_group_of_its_own, a_connection_wakes_a_parked_machine;
            "user": alone_with_its_forwards, alone_it_is_woken_too;
        }

        #[test]
        fn a_claimed_machine_is_connected() {
            use crate::{
                house::{House, Kind::Vm},
                scenes::{network, pool},
            };
            let config = format!("{}{}", network::CONFIG, pool::CONFIG);
            if let Some(house) = House::open_networked("bridge", Vm, &config) {
                network::a_claimed_machine_is_connected(house);
            }
        }

        #[test]
        fn git_works_over_https() {
            use crate::{
                house::{House, Kind::Vm},
                https::Authority,
                scenes::network,
            };
            let ours = Authority::new("an operator's own");
            let config = network::https_config(&ours);
            if let Some(house) = House::open_networked("bridge", Vm, &config) {
                network::git_works_over_https(house, &ours);
            }
        }
    }

    /// The guest's real AF_VSOCK listener, reached through a device process on the host.
    #[test]
    fn vsock_carries_the_link() {
        let Some(program) = crate::house::needed("TEST_HIVEKEEP_VHOST_DEVICE_VSOCK") else {
            return;
        };
        let config = format!(
            "[workspace.driver]\ncarrier = \"vhost-user-vsock\"\nvhost_device_vsock_path = {program:?}"
        );
        let Some(house) = House::open_with(Vm, &config) else { return };
        house.create("w");
        let info = house.call("workspace_info", serde_json::json!({ "workspace_id": "w" }));
        assert_eq!(info["machine"]["carrier"], "vhost-user-vsock", "{info}");
        assert_eq!(house.exec("w", "head -c 300000 /dev/zero | wc -c").trim(), "300000");
        crate::scenes::files::transfers_both_ways_in(&house);
    }

    /// The host's real AF_VSOCK dialler, against a listener in the same kernel.
    #[test]
    fn the_hosts_vsock_carrier_inside_a_guest() {
        crate::loopback::the_hosts_vsock_carrier_inside_a_guest();
    }
}
