//! The scenes: under which name each is played, what it needs and in which runs it has its turn.

mod sandbox;
mod vm;

use crate::{
    house::{House, Kind},
    needs::{GUEST, IMAGES, Need},
    scenes::{guides, rows, team_storm},
    share::{self, When},
};

/// Plays on a house of its own.
type OnHouse = fn(House);
/// Plays on a running workspace `w`, which it leaves usable.
pub type OnW = fn(&mut House);
/// Opens a house.
type Open = fn(Kind) -> House;

/// Scenes of `w`. The first looks at what the daemon's memory was at most.
pub const ON_W: [(&str, OnW); 12] = rows! {
    files: large_files_in_bounded_memory, text_files, transfers_both_ways;
    life: env_is_the_workspaces_own;
    run: output_of_any_size, timeouts_end_the_tree, stragglers_do_not_stall, many_at_once;
    jobs: a_job_is_followed_to_its_end, a_job_is_killed;
    places: every_file_tool_works_in_a_workspace;
    git: a_repository_goes_round
};

/// Those that come last on a machine: they change its git and its users, and stop it.
pub const ON_W_AT_LAST: [(&str, OnW); 3] = rows! {
    git: a_secret_is_asked_for_over_the_link;
    users: files_and_processes_are_a_users;
    life: logs_stay_after_a_stop
};

/// Scenes of `w` that end its processes and the daemon's. The first is of machines alone; the last leaves
/// it running.
pub const LIFE_AND_CRASH: [(&str, OnW); 8] = rows! {
    life: a_hung_guest_is_reported_and_can_be_stopped, a_killed_guest_daemon_comes_back;
    dags: a_run_goes_on_after_kill_9_and_is_retried_where_it_failed,
        a_daemon_that_dies_at_a_point_of_a_step_runs_it_once, a_dag_that_starts_itself_comes_to_an_end;
    crash: idle_with_two_workspaces_and_a_job;
    life: a_graceful_daemon_stop_leaves_machines, a_killed_machine_is_a_crash
};

/// A scene as it can be played.
pub struct Scene {
    pub name: String,
    pub needs: Vec<Need>,
    pub when: When,
    pub play: Box<dyn FnOnce() + Send>,
}

pub fn scenes() -> Vec<Scene> {
    let mut all = sandbox::scenes();
    all.extend(vm::scenes());
    all.extend(pure());
    all
}

/// What looks at results, on results that are known.
fn pure() -> Vec<Scene> {
    let rows: [(&str, fn()); 5] = [
        ("guides::what_is_shown_is_compared", guides::what_is_shown_is_compared),
        ("share::each_scene_has_its_turn", share::each_scene_has_its_turn),
        ("team_storm::a_seed_says_all_of_it", team_storm::a_seed_says_all_of_it),
        (
            "team_storm::losses_doubles_and_disorder_are_seen",
            team_storm::losses_doubles_and_disorder_are_seen,
        ),
        (
            "team_storm::what_ran_twice_and_lost_and_strange_results_are_seen",
            team_storm::what_ran_twice_and_lost_and_strange_results_are_seen,
        ),
    ];
    let scene = |(name, play): (&str, fn())| Scene {
        name: name.to_owned(),
        needs: Vec::new(),
        when: When::Each,
        play: Box::new(play),
    };
    rows.map(scene).into()
}

/// Scenes of one kind of workspaces.
struct Table {
    kind: Kind,
    scenes: Vec<Scene>,
}

impl Table {
    fn of(kind: Kind) -> Self {
        Self { kind, scenes: Vec::new() }
    }

    fn add(
        &mut self,
        when: When,
        needs: &[Need],
        name: &str,
        play: impl FnOnce() + Send + 'static,
    ) {
        let (folder, program) = match self.kind {
            Kind::Sandbox => ("sandbox", "bwrap"),
            Kind::Vm => ("vm", "qemu-system-x86_64"),
        };
        let built = [GUEST, IMAGES].map(|variable| Need::Named(variable, "cargo xtask t vm"));
        let needs = [&built[..], &[Need::Program(program)], needs].concat();
        let name = format!("{folder}::{name}");
        self.scenes.push(Scene { name, needs, when, play: Box::new(play) });
    }

    fn on_house(&mut self, when: When, needs: &[Need], open: Open, name: &str, scene: OnHouse) {
        let kind = self.kind;
        self.add(when, needs, name, move || scene(open(kind)));
    }

    fn on_houses(&mut self, when: When, needs: &[Need], open: Open, rows: &[(&str, OnHouse)]) {
        rows.iter().for_each(|(name, scene)| self.on_house(when, needs, open, name, *scene));
    }

    fn on_w(&mut self, when: When, needs: &[Need], open: Open, rows: &[(&str, OnW)]) {
        let kind = self.kind;
        for (name, scene) in rows.iter().copied() {
            self.add(when, needs, name, move || {
                let mut house = open(kind);
                house.create("w");
                scene(&mut house);
            });
        }
    }
}
