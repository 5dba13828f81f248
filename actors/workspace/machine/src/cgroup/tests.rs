use super::programs::ProgramGroups;
use super::{members, *};

const LIMITS: CgroupLimits = CgroupLimits { memory_bytes: Some(256 << 20), vcpus: 2, pids: 50 };

fn fake_v2(root: bool) -> (tempfile::TempDir, CgroupMounts) {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path();
    fs::create_dir_all(top.join("a.service/daemon")).unwrap();
    fs::write(top.join("cgroup.controllers"), "cpuset cpu memory pids\n").unwrap();
    let mountinfo = format!("30 25 0:26 / {} rw - cgroup2 cgroup2 rw\n", top.display());
    let host = CgroupMounts { mountinfo, own: "0::/a.service/daemon\n".into(), root };
    (dir, host)
}

#[test]
fn the_unified_hierarchy_gets_its_own_files() {
    let (dir, host) = fake_v2(true);
    let cgroups = Cgroups::on(&host, "t1");
    assert_eq!(cgroups.missing(), None);
    let group = cgroups.create("ws_a", &LIMITS);
    let made = dir.path().join("hivekeep-t1/ws_a");
    assert_eq!(group.dirs, std::slice::from_ref(&made));
    assert_eq!(fs::read_to_string(made.join("memory.max")).unwrap(), "268435456");
    assert_eq!(fs::read_to_string(made.join("cpu.max")).unwrap(), "200000 100000");
    assert_eq!(fs::read_to_string(made.join("pids.max")).unwrap(), "50");
    let control = fs::read_to_string(dir.path().join("cgroup.subtree_control")).unwrap();
    assert_eq!(control, "+pids");
    group.require().unwrap();
}

#[test]
fn groups_that_do_not_come_to_a_standstill_go_on_and_those_without_a_freezer_say_so() {
    let (dir, host) = fake_v2(true);
    fs::write(dir.path().join("cgroup.controllers"), "").unwrap();
    let cgroups = Cgroups::on(&host, "t1");
    let group = cgroups.create("ws_a", &LIMITS);
    let made = dir.path().join("hivekeep-t1/ws_a");
    assert_eq!(group.dirs, std::slice::from_ref(&made), "freezing is not a controller");
    assert!(matches!(freeze(&group.dirs, true), Err(Error::CannotPause { .. })));
    fs::write(made.join("cgroup.freeze"), "0").unwrap();
    fs::write(made.join("cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
    freeze(&group.dirs, true).unwrap();
    assert!(is_frozen(&group.dirs));
    fs::write(made.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
    assert!(matches!(freeze(&group.dirs, true), Err(Error::CannotPause { .. })));
    assert!(!is_frozen(&group.dirs), "none is left half frozen");
}

#[test]
fn a_delegated_daemon_makes_its_groups_beside_its_leaf() {
    let (dir, host) = fake_v2(false);
    let group = Cgroups::on(&host, "t1").create("ws_a", &LIMITS);
    assert_eq!(group.dirs, [dir.path().join("a.service/hivekeep-t1/ws_a")]);
}

#[test]
fn a_missing_controller_is_reported_and_can_be_required() {
    let (dir, host) = fake_v2(true);
    fs::write(dir.path().join("cgroup.controllers"), "cpu pids\n").unwrap();
    let cgroups = Cgroups::on(&host, "t1");
    assert_eq!(cgroups.missing().unwrap().0, "memory");
    let group = cgroups.create("ws_a", &LIMITS);
    let refusal = group.require().unwrap_err();
    assert!(matches!(refusal, Error::LimitsUnavailable { what: "memory", .. }), "{refusal}");
    assert!(matches!(
        group.applied(Enforcement::No { why: String::new() }).cpu,
        Enforcement::Yes { .. }
    ));
}

#[test]
fn v1_groups_lie_below_our_own_also_in_a_container() {
    let dir = tempfile::tempdir().unwrap();
    let point = |name: &str| dir.path().join(name);
    fs::create_dir_all(point("memory/x")).unwrap();
    fs::create_dir_all(point("cpu")).unwrap();
    let mountinfo = format!(
        "31 25 0:27 /docker/c1 {} rw shared:1 - cgroup cgroup rw,memory\n\
         32 25 0:28 / {} rw - cgroup cgroup rw,cpu,cpuacct\n",
        point("memory").display(),
        point("cpu").display()
    );
    let own = "5:memory:/docker/c1/x\n4:cpu,cpuacct:/elsewhere/../..\n".into();
    let cgroups = Cgroups::on(&CgroupMounts { mountinfo, own, root: true }, "t");
    let bases: Vec<_> =
        cgroups.places.iter().map(|(_, place)| place.clone().map(|place| place.base)).collect();
    assert_eq!(bases[0], Ok(point("memory/x/hivekeep-t")));
    assert!(bases[2].as_ref().unwrap_err().contains("pids"));
}

#[test]
fn a_program_has_a_group_of_its_own_whose_limits_hold_before_it_can_be_joined() {
    let (dir, host) = fake_v2(true);
    let cgroups = Cgroups::on(&host, "t1");
    let groups = ProgramGroups::of(&cgroups).unwrap();
    let group = groups.make(Some(64 << 20), 7).unwrap();
    let made = dir.path().join("hivekeep-t1/program-0");
    for (file, value) in [
        ("memory.max", "67108864"),
        ("memory.swap.max", "0"),
        ("memory.oom.group", "1"),
        ("pids.max", "7"),
    ] {
        assert_eq!(fs::read_to_string(made.join(file)).unwrap(), value, "{file}");
    }
    assert!(!made.join("cpu.max").exists());
    // The kernel has made it; a file that it has not is not one to join by.
    assert_eq!(group.procs().unwrap_err().kind(), io::ErrorKind::NotFound);
    fs::write(made.join("cgroup.procs"), "").unwrap();
    group.procs().unwrap();
    let unbounded = groups.make(None, 7).unwrap();
    let second = dir.path().join("hivekeep-t1/program-1");
    assert_eq!(fs::read_to_string(second.join("memory.max")).unwrap(), "max");
    assert!(!unbounded.ran_out());
    fs::write(second.join("memory.events"), "max 3\noom 1\noom_kill 2\n").unwrap();
    assert!(unbounded.ran_out());
    drop(group);
    assert_eq!(fs::read_to_string(made.join("cgroup.kill")).unwrap(), "1");
    // The kernel removes a group's files with its folder. The group removes itself beside this, and writes
    // `cgroup.kill` once more.
    while made.exists() {
        let _written_meanwhile = fs::remove_dir_all(&made);
    }
}

#[test]
fn programs_have_no_groups_in_v1() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().display();
    let mountinfo = format!("31 25 0:27 / {top} rw - cgroup cgroup rw,memory,cpu,pids\n");
    let host = CgroupMounts { mountinfo, own: String::new(), root: true };
    let why = ProgramGroups::of(&Cgroups::on(&host, "t")).unwrap_err();
    assert_eq!(why, "memory is in cgroup v1");
}

/// Exercises the controllers that this host has: groups are made, joined, limited, emptied and
/// removed.
#[test]
fn the_real_hierarchy_holds_and_kills_a_process() {
    let tag = format!("test{}", std::process::id());
    let cgroups = Cgroups::detect(&tag);
    if let Some((name, why)) = cgroups.missing() {
        return hivekeep_skip::skip(format_args!("no {name} controller: {why}"));
    }
    let group = cgroups.create("ws_real", &LIMITS);
    group.require().unwrap();
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    for dir in &group.dirs {
        fs::write(dir.join("cgroup.procs"), child.id().to_string()).unwrap();
        assert!(members(dir).contains(&(child.id() as i32)));
    }
    assert!(cgroups.machines().contains("ws_real"));
    let reaper = std::thread::spawn(move || child.wait().unwrap());
    let can = group.dirs.iter().any(|dir| dir.join(FREEZE).exists());
    for still in [true, false, true] {
        assert_eq!(freeze(&group.dirs, still).is_ok(), can);
        assert_eq!(is_frozen(&group.dirs), can && still);
    }
    // What stands still can be ended.
    cgroups.remove("ws_real").unwrap();
    assert!(!reaper.join().unwrap().success());
    assert!(cgroups.dirs("ws_real").is_empty());
    cgroups.leave();
}
