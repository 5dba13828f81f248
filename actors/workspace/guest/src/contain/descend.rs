//! Finding descendants where no cgroup does it.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;

use crate::sys::fs_ids;

/// Deepest tree that is climbed.
const MAX_DEPTH: usize = 1024;

/// Every living descendant of `ancestor`, found by one walk over /proc. Complete
/// only if `ancestor` is a child-subreaper (orphans stay below it) and nothing
/// forks meanwhile; who wants them all dead repeats until none is left.
pub fn descendants(ancestor: i32) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    let mut zombies = HashSet::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Some((state, parent)) = stat_of(pid) else { continue };
        children.entry(parent).or_default().push(pid);
        if matches!(state, 'Z' | 'X') {
            zombies.insert(pid);
        }
    }
    let (mut found, mut next) = (Vec::new(), vec![ancestor]);
    while let Some(parent) = next.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            next.push(child);
            if !zombies.contains(&child) {
                found.push(child);
            }
        }
    }
    found
}

/// Every living process that was started with this environment variable, `NAME=value`: what is left
/// of a command whose ancestor has gone. One that hides its environment is not found.
pub fn bearing(variable: &[u8]) -> Vec<i32> {
    let bears = |pid: &i32| {
        environ(*pid).is_some_and(|all| all.split(|byte| *byte == 0).any(|one| one == variable))
    };
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(bears).collect()
}

/// Environment that a process was started with. In a sandbox root may not look into processes of other
/// users, which takes a capability; they themselves may.
fn environ(pid: i32) -> Option<Vec<u8>> {
    let path = format!("/proc/{pid}/environ");
    match std::fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let owner = std::fs::metadata(format!("/proc/{pid}")).ok()?;
            fs_ids::as_user(owner.uid(), owner.gid(), || std::fs::read(&path)).ok()
        }
        read => read.ok(),
    }
}

/// Whether a living process descends from `ancestor`, which is a child-subreaper.
pub fn is_below(pid: i32, ancestor: i32) -> bool {
    let parent_of = |pid: &i32| stat_of(*pid).map(|(_, parent)| parent);
    // A parent that ends meanwhile leaves its children to the ancestor itself.
    let mut line = std::iter::successors(Some(pid), parent_of).take(MAX_DEPTH);
    line.any(|pid| pid == ancestor) && pid != ancestor
}

/// State and parent. The name in parentheses may itself hold spaces and brackets.
fn stat_of(pid: i32) -> Option<(char, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_bears_a_variable_is_found_as_long_as_it_lives() {
        let mut sleep = std::process::Command::new("sleep");
        let mut child = sleep.arg("60").env("HIVEKEEP_TEST_BEARER", "1").spawn().expect("sleep");
        let pid = i32::try_from(child.id()).expect("pid");
        let found = || bearing(b"HIVEKEEP_TEST_BEARER=1");
        // Until it has executed it has the environment of this process.
        while !found().contains(&pid) {
            assert!(child.try_wait().expect("a child").is_none(), "it sleeps");
        }
        assert!(!bearing(b"HIVEKEEP_TEST_BEARER=").contains(&pid));
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert!(found().is_empty());
    }

    #[test]
    fn a_child_is_found_and_a_dead_one_is_not() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let me = i32::try_from(std::process::id()).expect("pid");
        let pid = i32::try_from(child.id()).expect("pid");
        assert!(descendants(me).contains(&pid));
        assert!(is_below(pid, me) && !is_below(me, pid) && !is_below(me, me));
        child.kill().expect("kill");
        child.wait().expect("wait");
        assert!(!descendants(me).contains(&pid));
    }
}
