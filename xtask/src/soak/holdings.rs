//! What a daemon holds and can be counted: descriptors, threads, processes, files, and what it counts itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::bench::house::BenchDaemon;

/// Threads for blocking work that may be more: each stays for ten seconds after its last piece, and work that comes
/// again and again goes to any of them. Less than the rounds of any worker: a thread that each leaves is more.
const THREADS: usize = 16;
/// Folders of files that come and go at rest. The journal's database keeps large values in files until it is compacted,
/// and has a bound of its own, in bytes.
const CHANGING: [&str; 1] = ["state/journal"];
/// Names that a line has of what there is more of.
const NAMED: usize = 5;

/// Names of what is held, by quantity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Holdings(BTreeMap<String, BTreeSet<String>>);

impl Holdings {
    pub(super) fn of(house: &BenchDaemon) -> Result<Self> {
        let mut holdings = Self::default();
        let process = format!("/proc/{}", house.pid());
        for entry in fs::read_dir(format!("{process}/fd"))?.flatten() {
            // One that was closed meanwhile is none.
            if let Ok(leads) = fs::read_link(entry.path()) {
                let name = format!("{} {}", entry.file_name().display(), leads.display());
                holdings.add("descriptors", name);
            }
        }
        for entry in fs::read_dir(format!("{process}/task"))?.flatten() {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            holdings.add("threads", format!("{} {}", entry.file_name().display(), name.trim()));
        }
        for name in processes(house.pid(), house.path())? {
            holdings.add("processes", name);
        }
        holdings.files(house.path(), house.path());
        for (quantity, count) in counted(house)? {
            (0..count).for_each(|number| holdings.add(quantity, format!("number {number}")));
        }
        Ok(holdings)
    }

    fn add(&mut self, quantity: &str, name: String) {
        self.0.entry(quantity.to_owned()).or_default().insert(name);
    }

    /// Adds files and folders, by the folder of the home that they are below: `state/disks`. What is gone meanwhile is
    /// nothing.
    fn files(&mut self, home: &Path, folder: &Path) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, is_folder) = (entry.path(), entry.file_type().is_ok_and(|it| it.is_dir()));
            let below = path.strip_prefix(home).unwrap_or(&path).display().to_string();
            if CHANGING.contains(&&*below) {
                continue;
            }
            let mut parts = below.split('/').collect::<Vec<_>>();
            // Its own name says what it is, and not where.
            parts.pop();
            parts.truncate(2);
            let place = if parts.is_empty() { "the home".to_owned() } else { parts.join("/") };
            self.add(&format!("files in {place}"), below);
            if is_folder {
                self.files(home, &path);
            }
        }
    }

    /// Takes those quantities of which another look found less.
    pub(super) fn lower_to(&mut self, other: Self) {
        let (quantities, mut other) = (&mut self.0, other.0);
        for (quantity, names) in quantities {
            let found = other.remove(quantity).unwrap_or_default();
            if found.len() < names.len() {
                *names = found;
            }
        }
    }

    /// A line for each quantity of which there is more than before.
    pub(super) fn more_than(&self, before: &Self) -> Vec<String> {
        let none = BTreeSet::new();
        let line = |(quantity, names): (&String, &BTreeSet<String>)| {
            let known = before.0.get(quantity).unwrap_or(&none);
            let chance = if quantity == "threads" { THREADS } else { 0 };
            if names.len() <= known.len() + chance {
                return None;
            }
            let new: Vec<_> = names.difference(known).take(NAMED).map(String::as_str).collect();
            let (is, was) = (names.len(), known.len());
            Some(format!("{quantity}: {is}, before {was}; new is {}", new.join(", ")))
        };
        self.0.iter().filter_map(line).collect()
    }
}

impl fmt::Display for Holdings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.0.iter().map(|(quantity, names)| format!("{} {quantity}", names.len()));
        f.write_str(&counts.collect::<Vec<_>>().join(", "))
    }
}

/// What the daemon counts itself. A session that has ended is kept for a while, and has a stream as long.
fn counted(house: &BenchDaemon) -> Result<[(&'static str, usize); 2]> {
    let asked =
        |what| Ok::<Value, anyhow::Error>(serde_json::from_str(&house.output(&[what, "--json"])?)?);
    let (status, sessions) = (asked("status")?, asked("sessions")?);
    let streams = status.pointer("/journal/streams").and_then(Value::as_u64);
    let streams = usize::try_from(streams.context("the status counts no streams")?)?;
    let actors = status["actors"].as_u64().context("the status counts no actors")?;
    let kept = sessions.as_array().context("no list of sessions")?.len();
    Ok([
        ("streams beside sessions'", streams.saturating_sub(kept)),
        ("actors", usize::try_from(actors)?),
    ])
}

/// Processes that a daemon and its machines started. A machine is nobody's child: its command names the home.
fn processes(daemon: u32, home: &Path) -> Result<Vec<String>> {
    let home = home.display().to_string();
    let mut processes = BTreeMap::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(id) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let text = |name| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        // `1234 (a name) S 1 ...`: a name may have any signs.
        let parent = text("stat")
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)?.parse::<u32>().ok());
        let command = text("cmdline").replace('\0', " ");
        processes.extend(parent.map(|parent| (id, (parent, command))));
    }
    let is_of = |&(id, (_, command)): &(&u32, &(u32, String))| {
        let mut at = *id;
        // As many steps as there can be.
        command.contains(&home)
            || processes.iter().any(|_| {
                at = processes.get(&at).map_or(0, |(parent, _)| *parent);
                at == daemon || processes.get(&at).is_some_and(|(_, it)| it.contains(&home))
            })
    };
    let found = processes.iter().filter(is_of).map(|(id, (_, command))| {
        let short: String = command.chars().take(80).collect();
        format!("{id} {}", short.trim())
    });
    Ok(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(quantity: &str, names: &[&str]) -> Holdings {
        let mut holdings = Holdings::default();
        names.iter().for_each(|name| holdings.add(quantity, (*name).to_owned()));
        holdings
    }

    #[test]
    fn one_more_is_named_and_others_in_their_place_are_not() {
        let before = of("descriptors", &["3 socket", "4 pipe"]);
        assert_eq!(of("descriptors", &["3 socket", "9 socket"]).more_than(&before), [""; 0]);
        let more = of("descriptors", &["3 socket", "4 pipe", "9 socket"]).more_than(&before);
        assert_eq!(more, ["descriptors: 3, before 2; new is 9 socket"]);
        let fresh = of("files in state/lost", &["state/lost/a"]).more_than(&before);
        assert_eq!(fresh.len(), 1, "a folder that nobody had before: {fresh:?}");
    }

    #[test]
    fn some_threads_are_allowed_and_one_for_each_round_is_not() {
        let names: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let threads = |count: usize| {
            of("threads", &names.iter().take(count).map(String::as_str).collect::<Vec<_>>())
        };
        assert_eq!(threads(10 + THREADS).more_than(&threads(10)), [""; 0]);
        assert_eq!(threads(11 + THREADS).more_than(&threads(10)).len(), 1);
    }

    #[test]
    fn the_least_is_kept_and_what_comes_later_is_not_added() {
        let mut least = of("files in run", &["a", "b"]);
        least.lower_to(of("files in run", &["a"]));
        least.lower_to(of("files in run", &["a", "b", "c"]));
        assert_eq!(least, of("files in run", &["a"]));
        least.lower_to(Holdings::default());
        assert_eq!(least.to_string(), "0 files in run");
    }

    #[test]
    fn files_count_where_they_are_and_the_journals_do_not() {
        let home = tempfile::tempdir().expect("a folder");
        for file in ["state/HEAD", "state/journal/db", "state/disks/w/root/etc/x", "config.toml"] {
            let path = home.path().join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, "").expect("written");
        }
        let mut holdings = Holdings::default();
        holdings.files(home.path(), home.path());
        let told = holdings.to_string();
        assert_eq!(told, "2 files in state, 4 files in state/disks, 2 files in the home");
    }

    #[test]
    fn children_of_a_process_are_its_own() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("runs");
        let found = processes(std::process::id(), Path::new("/a/home/that/nobody/has"));
        let found = found.expect("they are listed");
        child.kill().expect("killed");
        child.wait().expect("reaped");
        let name = format!("{} sleep 60", child.id());
        assert!(found.contains(&name), "{found:?}");
    }
}
