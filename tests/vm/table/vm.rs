//! Scenes on virtual machines: what only they can show, and what sandboxes show too.

use super::{LIFE_AND_CRASH, ON_W, ON_W_AT_LAST, OnHouse, Open, Scene, Table};
use crate::{
    house::{House, Kind::Vm},
    https::Authority,
    ingested,
    needs::Need::{
        Example, Image, LoopDevices, Mounts, Named, Namespaces, Program, Root, WholeClone,
    },
    scenes::{
        dags, e2b, e2b_crash, examples, forks,
        guides::{self, Where},
        host, image, loopback, network, pool, rows, team_storm, upgrade, volumes, volumes_vm,
        vsock,
    },
    share::When::{self, Bundled, Each, Night, Share},
};

const WITH_E2B: Open = |kind| House::open_with(kind, e2b::CONFIG);
const WITH_POOL: Open = |kind| House::open_with(kind, pool::CONFIG);

pub fn scenes() -> Vec<Scene> {
    let mut table = Table::of(Vm);
    in_each_run(&mut table);
    in_turns(&mut table);
    of_doors_and_programs_in_turns(&mut table);
    at_night(&mut table);
    networks(&mut table);
    table.scenes
}

fn in_each_run(table: &mut Table) {
    let rows: [(&str, OnHouse); 9] = rows! {
        bundle: one_workspace, life_and_crash;
        crash: one_point_of_each;
        snapshots: memory_and_disk_go_back_to_any_node, forks_of_one_memory_are_themselves,
            a_paused_workspace_stands_still;
        parking: a_fork_sleeps_as_a_difference;
        prepare: a_golden_workspace_is_forked;
        swarm: tasks_run_in_forks_and_come_together
    };
    table.on_houses(Each, &[], House::open, &rows);
    let rows = rows!(files: full_disks_are_told_and_lose_nothing);
    table.on_houses(Each, &[Mounts], House::open, &rows);
    table.on_house(
        Each,
        &[Root, LoopDevices, Program("bwrap")],
        |kind| House::open_with(kind, volumes::CONFIG),
        "volumes_are_shared_and_outlive_machines",
        volumes_vm::a_volume_is_shared_and_outlives_machines,
    );
    table.on_house(
        Each,
        &[],
        WITH_E2B,
        "a_sandbox_of_e2b_tells_what_it_takes_and_says",
        e2b::a_sandbox_tells_what_it_takes_and_says,
    );
}

/// What has a sandbox or a simpler machine beside it in each run. Shares take about the same time.
fn in_turns(table: &mut Table) {
    let first: [(&str, OnHouse); 6] = rows! {
        crash: every_point_of_create;
        parking: a_machine_sleeps_and_wakes_at_every_point;
        swarm: every_point_of_a_swarm;
        merge_git: forks_come_together;
        programs: a_program_in_a_machine_goes_on_in_each_fork_with_its_words;
        kept: a_restored_state_leaves_the_first_daemons_machines_alone
    };
    let second: [(&str, OnHouse); 7] = rows! {
        prepare: every_point_of_a_preparation;
        crash: every_point_of_stop_and_start;
        snapshots: every_point_of_a_snapshot_and_a_restore, forks_of_forks_and_of_disks;
        attack: an_attacked_daemon_lives_stays_small_serves_others_and_starts_again;
        swarm: an_ordered_stop_cancels_no_swarm;
        host: a_slow_machine_is_no_dead_one
    };
    let third: [(&str, OnHouse); 10] = rows! {
        forks: a_thought_goes_on_in_the_machine_of_its_turn;
        disks: disks_come_back_as_they_were_frozen;
        merge: what_deletions_leave_is_merged_and_lost_nowhere;
        parking: every_sleeper_has_its_own_answer;
        places: a_session_has_one_workspace_of_its_own;
        snapshots: every_point_of_ten_forks;
        prepare: what_fails_leaves_nothing;
        crash: every_point_of_destroy, jobs_and_transfers;
        team_tasks: a_stopped_workspace_keeps_its_tasks
    };
    for (number, rows) in [(1, &first[..]), (2, &second[..]), (3, &third[..])] {
        table.on_houses(Share(number), &[], House::open, rows);
    }
    table.on_house(
        Share(1),
        &[],
        WITH_POOL,
        "a_machine_is_there_before_it_is_asked_for",
        pool::a_machine_is_there_before_it_is_asked_for,
    );
    table.on_house(
        Share(2),
        &[],
        WITH_POOL,
        "every_point_of_a_claim_and_a_replenishment",
        pool::every_point_of_a_claim_and_a_replenishment,
    );
    table.on_house(
        Share(3),
        &[],
        House::open,
        "every_point_of_a_template",
        pool::every_point_of_a_template,
    );
    table.on_house(
        Share(2),
        &[],
        House::open,
        "a_failed_step_is_looked_into_and_retried_in_forks",
        dags::a_failed_step_is_looked_into_and_retried_in_forks,
    );
    table.on_house(
        Share(3),
        &[Image("code-interpreter")],
        |kind| House::open_with(kind, forks::CONFIG),
        "the_best_of_eight_forks_is_merged",
        forks::the_best_of_eight_forks_is_merged,
    );
}

fn of_doors_and_programs_in_turns(table: &mut Table) {
    table.on_house(
        Share(1),
        &[],
        House::open,
        "a_team_in_a_storm",
        team_storm::nothing_is_lost_or_doubled,
    );
    table.add(Share(1), &[], "every_workspace_of_a_session_is_ingested", || ingested(Vm));
    table.on_house(
        Share(1),
        &[Mounts],
        |kind| House::open_on_disk(kind, host::DISK),
        "a_full_disk_stops_machines_until_there_is_room",
        host::a_full_disk_stops_machines_until_there_is_room,
    );
    table.on_houses(
        Share(2),
        &[Program("bwrap"), Program("ldd")],
        House::open,
        &rows!(cgroups: a_source_takes_no_more_than_its_group_has),
    );
    table.on_house(
        Share(2),
        &[],
        WITH_E2B,
        "a_daemon_dies_over_each_operation_of_e2b",
        e2b_crash::a_daemon_dies_over_each_operation,
    );
    table.on_house(
        Share(3),
        &[],
        WITH_E2B,
        "a_fork_of_e2b_that_was_killed_leaves_no_snapshot",
        e2b::a_fork_that_was_killed_leaves_no_snapshot,
    );
    table.on_house(
        Share(3),
        &[Example("swarm"), WholeClone],
        House::open,
        "the_example_swarm_changes_this_repository",
        examples::a_swarm_changes_this_repository,
    );
    for page in guides::pages(Where::Machines) {
        let name = guides::name(&page);
        table.add(Share(1), &[Namespaces], &name, move || guides::follow(&page, Where::Machines));
    }
    let rows = rows!(image: commands_run_as_the_user_of_the_image);
    table.on_houses(Share(3), &image::REGISTRY, House::open, &rows);
    table.on_w(
        Share(2),
        &[Named(loopback::PROBE, "cargo xtask t vm::the_hosts_vsock_carrier_inside_a_guest")],
        House::open,
        &[(
            "the_hosts_vsock_carrier_inside_a_guest",
            loopback::the_hosts_vsock_carrier_inside_a_guest,
        )],
    );
    table.on_w(
        Share(3),
        &[Named(vsock::DEVICE, "cargo xtask t vm::vsock_carries_the_link")],
        |kind| House::open_with(kind, &vsock::config()),
        &[("vsock_carries_the_link", vsock::carries_the_link)],
    );
}

/// What is the daemon's own and shown with sandboxes in each run, and alone what the bundles have.
fn at_night(table: &mut Table) {
    let rows: [(&str, OnHouse); 3] = rows! {
        life: names_and_sizes_are_checked;
        run: in_parallel_over_workspaces, one_session_leaves_places_to_others
    };
    table.on_houses(Night, &[], House::open, &rows);
    table.on_houses(Bundled, &[], House::open, &rows!(life: create_run_stop_start_destroy));
    for rows in [&ON_W[..], &ON_W_AT_LAST, &LIFE_AND_CRASH] {
        table.on_w(Bundled, &[], House::open, rows);
    }
    table.add(
        Night,
        &[Named(upgrade::OLD, "cargo xtask upgrade")],
        "an_older_daemon_is_replaced_while_its_machines_run",
        upgrade::an_older_daemon_is_replaced_while_its_machines_run,
    );
}

/// With a network of the daemon's own, in namespaces of the test's own.
fn networks(table: &mut Table) {
    let mut add = |when, open: Open, name: &str, scene: OnHouse| {
        table.on_house(when, &[Namespaces], open, &format!("network::{name}"), scene);
    };
    let bridge: Open = |kind| House::open_networked("bridge", kind, network::CONFIG);
    let rows: [(When, &str, OnHouse); 6] = [
        (Each, "walls_doors_and_windows", network::walls_doors_and_windows),
        (
            Each,
            "forwards_outlive_everything_but_their_workspace",
            network::forwards_outlive_everything_but_their_workspace,
        ),
        (Share(1), "a_team_is_a_group_of_its_own", network::a_team_is_a_group_of_its_own),
        (Share(2), "every_point_leaves_nothing", network::every_point_leaves_nothing),
        (
            Share(2),
            "a_connection_wakes_a_parked_machine",
            network::a_connection_wakes_a_parked_machine,
        ),
        (Share(3), "a_repository_is_cloned_from_afar", network::a_repository_is_cloned_from_afar),
    ];
    for (when, name, scene) in rows {
        add(when, bridge, name, scene);
    }
    let user: Open = |kind| House::open_networked("user", kind, network::CONFIG);
    add(Share(3), user, "alone_with_its_forwards", network::alone_with_its_forwards);
    add(Share(3), user, "alone_it_is_woken_too", network::alone_it_is_woken_too);
    let pooled: Open = |kind| {
        let config = format!("{}{}", network::CONFIG, pool::CONFIG);
        House::open_networked("bridge", kind, &config)
    };
    add(
        Share(3),
        pooled,
        "a_claimed_machine_is_connected",
        network::a_claimed_machine_is_connected,
    );
    table.add(Each, &[Namespaces, LoopDevices], "network::git_works_over_https", || {
        let ours = Authority::new("an operator's own");
        let config = network::https_config(&ours);
        network::git_works_over_https(House::open_networked("bridge", Vm, &config), &ours);
    });
}
