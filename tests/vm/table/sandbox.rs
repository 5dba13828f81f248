//! Scenes on namespaces: hundreds of crashes in the time of a few boots.

use super::{LIFE_AND_CRASH, ON_W, ON_W_AT_LAST, OnHouse, Open, Scene, Table};
use crate::{
    counter::Counter,
    house::{House, Kind::Sandbox},
    ingested, knowledge_config,
    needs::Need::{self, Example, Image, LoopDevices, Mounts, Named, Namespaces, Program, Root},
    scenes::{
        acp, agent_commands, browser, dags, e2b, e2b_crash, escapes, examples,
        guides::{self, Where},
        http_api, hub, image, knowledge, life, places, port_urls, prepare, programs, repositories,
        rows, snapshots, team, team_cards, team_storm, team_watch, two_users, upgrade, volumes,
        waiting,
    },
    share::When::{Each, Night, Share, Step},
};

const WITH_VOLUMES: Open = |kind| House::open_with(kind, volumes::CONFIG);
const WITH_E2B: Open = |kind| House::open_with(kind, e2b::CONFIG);
const WITH_HUB: Open = |kind| House::open_with(kind, hub::CONFIG);

pub fn scenes() -> Vec<Scene> {
    let mut table = Table::of(Sandbox);
    of_machines_too(&mut table);
    of_sandboxes_alone(&mut table);
    of_roots_daemon(&mut table);
    of_volumes(&mut table);
    of_doors(&mut table);
    of_guides(&mut table);
    of_teams(&mut table);
    killed_in_turns(&mut table);
    table.scenes
}

/// A daemon killed at each point of one operation; at those of a workspace's life it is in each run. Those of
/// E2B are in another run than with machines. Shares take about the same time.
fn killed_in_turns(table: &mut Table) {
    let ends: [(&str, OnHouse); 1] = rows!(lifetimes: every_point_of_an_end);
    table.on_houses(Share(1), &[], House::open, &ends);
    let pulls: [(&str, OnHouse); 1] = rows!(image: every_point_of_a_pull_and_a_removal);
    table.on_houses(Share(1), &image::REGISTRY, House::open, &pulls);
    let with_disks: [Need; 2] = [Root, LoopDevices];
    table.on_house(
        Share(2),
        &with_disks,
        WITH_VOLUMES,
        "every_point_of_a_volume",
        volumes::every_point_of_a_volume,
    );
    table.on_house(
        Share(2),
        &[],
        House::open,
        "every_point_of_a_team",
        team::every_point_of_a_team,
    );
    table.on_house(
        Share(3),
        &with_disks,
        WITH_VOLUMES,
        "every_point_of_a_repository",
        repositories::every_point_of_a_repository,
    );
    table.on_house(
        Share(3),
        &[],
        WITH_E2B,
        "a_daemon_dies_over_each_operation_of_e2b",
        e2b_crash::a_daemon_dies_over_each_operation,
    );
}

/// Scenes that virtual machines play too.
fn of_machines_too(table: &mut Table) {
    let [secret, of_users, logs] = ON_W_AT_LAST;
    for rows in [&ON_W[..], &[secret, logs], &LIFE_AND_CRASH[1..]] {
        table.on_w(Each, &[], House::open, rows);
    }
    table.on_w(Each, &[Root], House::open, &[of_users]);
    let rows: [(&str, OnHouse); 11] = rows! {
        life: create_run_stop_start_destroy, names_and_sizes_are_checked;
        run: in_parallel_over_workspaces, one_session_leaves_places_to_others;
        places: a_session_has_one_workspace_of_its_own;
        attack: an_attacked_daemon_lives_stays_small_serves_others_and_starts_again;
        kept: a_restored_state_leaves_the_first_daemons_machines_alone;
        crash: every_point_of_create, every_point_of_destroy, every_point_of_stop_and_start,
            jobs_and_transfers
    };
    table.on_houses(Each, &[], House::open, &rows);
    let rows = rows!(files: full_disks_are_told_and_lose_nothing);
    table.on_houses(Each, &[Mounts], House::open, &rows);
    table.add(Each, &[], "every_workspace_of_a_session_is_ingested", || ingested(Sandbox));
}

fn of_sandboxes_alone(table: &mut Table) {
    let rows: [(&str, OnHouse); 13] = rows! {
        owners: a_workspace_outlives_its_session_and_can_be_adopted;
        walls: a_sandbox_is_walled_in_and_says_how;
        disks: a_sandboxs_disk_is_left_out_by_name;
        merge_git: clones_come_together, a_daemon_may_die_in_a_merge;
        processes: a_process_is_written_to_after_the_daemon_was_killed,
            who_does_not_listen_is_killed_with_its_children, a_program_runs_in_the_place;
        trees: a_tree_of_any_depth_goes_and_the_daemon_lives;
        resources: a_workspace_is_read_by_uri_by_its_owner;
        tasks: a_command_outlives_its_client_and_is_told_by_the_next_daemon;
        escapes: no_path_leads_out_of_a_sandbox;
        parking: a_sandbox_says_that_it_cannot_sleep
    };
    table.on_houses(Each, &[], House::open, &rows);
    let rows = rows!(interpreter: code_runs_where_it_ran_before);
    table.on_houses(Each, &[Image("code-interpreter")], House::open, &rows);
    let rows = rows!(image: a_container_image_is_pulled_and_worked_in);
    table.on_houses(Each, &image::REGISTRY, House::open, &rows);
    let rows = rows!(image: an_entry_point_runs_where_there_is_no_shell);
    table.on_houses(Each, &[Program("umoci"), Program("busybox")], House::open, &rows);
    let rows: [(&str, OnHouse); 2] = [
        ("a_sandbox_refuses_snapshots", snapshots::a_sandbox_refuses_snapshots),
        ("a_sandbox_is_not_prepared", prepare::a_sandbox_is_not_prepared),
    ];
    table.on_houses(Each, &[], House::open, &rows);
    table.on_house(
        Each,
        &[],
        |kind| House::open_with(kind, "restart_crashed = true"),
        "a_crashed_machine_restarts_by_policy",
        life::a_crashed_machine_restarts_by_policy,
    );
    table.add(
        Each,
        &[Root],
        "a_recorded_state_is_taken_over",
        upgrade::a_recorded_state_is_taken_over,
    );
}

/// What takes several users, or the owner of a folder.
fn of_roots_daemon(table: &mut Table) {
    let rows: [(&str, OnHouse); 2] = [
        (
            "no_path_of_the_host_leads_out_of_where_it_begins",
            escapes::no_path_of_the_host_leads_out_of_where_it_begins,
        ),
        (
            "commands_run_beside_a_folder_of_the_host",
            places::commands_run_beside_a_folder_of_the_host,
        ),
    ];
    table.on_houses(Each, &[Root], House::open, &rows);
}

fn of_volumes(table: &mut Table) {
    let rows: [(&str, OnHouse); 5] = [
        ("volumes_outlive_workspaces_and_daemons", volumes::bytes_outlive_workspaces_and_daemons),
        (
            "what_cannot_be_mounted_is_refused",
            volumes::what_cannot_be_mounted_is_refused_and_leaves_nothing,
        ),
        ("no_mount_leads_out_of_a_sandbox", escapes::no_mount_leads_out_of_a_sandbox),
        ("no_path_leads_out_of_a_repository", escapes::no_path_leads_out_of_a_repository),
        ("a_repository_goes_there_and_back", repositories::a_repository_goes_there_and_back),
    ];
    table.on_houses(Each, &[Root, LoopDevices], WITH_VOLUMES, &rows);
    table.on_house(
        Each,
        &[Root, LoopDevices, Program("umoci"), Program("busybox"), Program("tar"), Program("git")],
        WITH_VOLUMES,
        "commands_run_as_the_user_of_the_image",
        image::commands_of_a_sandbox_run_as_the_user_of_the_image,
    );
    table.on_house(
        Each,
        &[Root, LoopDevices, Program("umoci"), Program("busybox"), Program("tar"), Program("git")],
        WITH_VOLUMES,
        "steps_run_in_containers_over_one_folder",
        dags::steps_run_in_containers_over_one_folder,
    );
    // Fetches 100 MB of Debian's packages.
    table.on_house(
        Night,
        &[Root, LoopDevices, Program("umoci"), Program("mmdebstrap")],
        WITH_VOLUMES,
        "python_and_node_work_and_what_npm_installs_outlives_the_workspace",
        image::python_and_node_work_and_what_npm_installs_outlives_the_workspace,
    );
    table.add(Each, &[Root, LoopDevices], "a_volume_is_ingested", || {
        let counter = Counter::start();
        let config = format!("{}\n{}", volumes::CONFIG, knowledge_config(&counter));
        knowledge::a_volume_is_ingested(House::open_with(Sandbox, &config), &counter);
    });
    table.add(Each, &[Root, LoopDevices], "nobody_reaches_what_is_anothers", || {
        let counter = Counter::start();
        let knowledge = knowledge_config(&counter);
        let config = [volumes::CONFIG, http_api::CONFIG, &knowledge, two_users::CONFIG].join("\n");
        two_users::nobody_reaches_what_is_anothers(House::open_with(Sandbox, &config));
    });
    table.on_house(
        Each,
        &[Root, LoopDevices],
        |kind| House::open_with(kind, &format!("{}\n{}", volumes::CONFIG, browser::CONFIG)),
        "a_browser_downloads_into_a_workspace_and_a_volume",
        browser::a_browser_downloads_into_a_workspace_and_a_volume,
    );
}

/// The pages for users, each followed by one who pastes what it shows.
fn of_guides(table: &mut Table) {
    for page in guides::pages(Where::Sandboxes) {
        let needs = [Namespaces, Program("curl"), Program("jq"), Image("code-interpreter")];
        table.add(Each, &needs, &guides::name(&page), move || {
            guides::follow(&page, Where::Sandboxes);
        });
    }
    for page in guides::pages(Where::Model) {
        let needs = [Namespaces, Named(guides::MODEL, "cargo xtask test --only embeddings")];
        let name = format!("{}_with_a_model", guides::name(&page));
        table.add(Step("embeddings"), &needs, &name, move || guides::follow(&page, Where::Model));
    }
}

fn of_doors(table: &mut Table) {
    table.on_house(
        Each,
        &[],
        |kind| House::open_with(kind, http_api::CONFIG),
        "a_workspace_is_its_owners_and_its_secrets_are_written_nowhere",
        http_api::a_workspace_is_its_owners_and_its_secrets_are_written_nowhere,
    );
    table.on_house(
        Each,
        &[],
        |kind| House::open_with(kind, port_urls::CONFIG),
        "a_port_has_a_url_and_its_owner_says_who_gets_in",
        port_urls::a_port_has_a_url_and_its_owner_says_who_gets_in,
    );
    table.on_house(
        Each,
        &[],
        House::open,
        "a_program_without_a_network_asks_through_the_daemon_and_outlives_it",
        programs::a_program_without_a_network_asks_through_the_daemon_and_outlives_it,
    );
    table.on_house(
        Each,
        &[],
        House::open,
        "a_command_of_an_agent_is_run_once_whatever_kills_the_daemon",
        agent_commands::a_command_of_an_agent_is_run_once_whatever_kills_the_daemon,
    );
    table.on_house(
        Each,
        &[],
        House::open,
        "a_program_by_acp_asks_a_person_and_outlives_the_daemon",
        acp::a_program_by_acp_asks_a_person_and_outlives_the_daemon,
    );
    table.on_house(
        Each,
        &[],
        WITH_E2B,
        "a_sandbox_of_e2b_tells_what_it_takes_and_says",
        e2b::a_sandbox_tells_what_it_takes_and_says,
    );
    table.on_house(
        Each,
        &[],
        WITH_E2B,
        "what_is_shown_opens_one_sandbox_of_e2b_and_nothing_is_lost",
        e2b::what_is_shown_opens_one_sandbox_and_nothing_is_lost,
    );
    let rows: [(&str, OnHouse); 2] = [
        ("a_process_is_followed_while_it_lives", hub::a_process_is_followed_while_it_lives),
        (
            "a_team_is_followed_by_the_session_that_operates_it",
            hub::a_team_is_followed_by_the_session_that_operates_it,
        ),
    ];
    table.on_houses(Each, &[], WITH_HUB, &rows);
}

fn of_teams(table: &mut Table) {
    let rows: [(&str, OnHouse); 4] = rows! {
        team_tasks: thirty_tasks_are_each_run_once, a_stopped_workspace_keeps_its_tasks,
            every_point_of_a_task;
        waiting: a_trace_goes_through_to_commands
    };
    table.on_houses(Each, &[], House::open, &rows);
    let rows: [(&str, OnHouse); 3] = [
        ("a_team_talks_and_outlives_the_daemon", team::a_team_talks_and_outlives_the_daemon),
        ("cards_follow_their_team", team_cards::cards_follow_their_team),
        ("a_team_in_a_storm", team_storm::nothing_is_lost_or_doubled),
    ];
    table.on_houses(Each, &[], House::open, &rows);
    table.on_house(
        Each,
        &[],
        |kind| House::open_with(kind, waiting::CONFIG),
        "waiting_messages_are_told_beside_any_answer",
        waiting::waiting_messages_are_told_beside_any_answer,
    );
    table.on_house(
        Each,
        &[Program("setsid")],
        House::open,
        "a_team_is_watched_on_a_terminal",
        team_watch::a_team_is_watched_on_a_terminal,
    );
    table.on_house(
        Each,
        &[Example("team")],
        House::open,
        "the_example_team_shares_work",
        examples::a_team_shares_work,
    );
}
