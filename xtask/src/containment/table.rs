//! What was seen within the walls, judged, as a table.

use std::{collections::BTreeMap, fmt};

use anyhow::{Context, Result, bail, ensure};

use super::walls::Wall::{self, Browser, Interpreter, Page, Reader, Sandbox, Source, Vm};

/// Attempts in the order of the table.
const ATTEMPTS: [&str; 19] = [
    "host's files",
    "daemon's socket",
    "abstract socket",
    "host's processes",
    "ptrace",
    "loopback",
    "host's address",
    "metadata address",
    "other guest",
    "vsock",
    "kernel settings",
    "keyrings",
    "set-user-id",
    "devices",
    "mounts",
    "namespaces",
    "kernel calls",
    "memory",
    "processes",
];

/// What is reached and may be, with the reason. Whatever else is reached is a hole.
const KNOWN: [(Wall, &str, &str); 3] = [
    (Browser, "keyrings", "its own; what pages may call Chrome's own filters say"),
    (Browser, "namespaces", "Chrome makes namespaces of its own for each page"),
    (
        Browser,
        "kernel calls",
        "those of an ordinary user; what pages may call Chrome's own filters say",
    ),
];

/// The same where the daemon is an ordinary user.
const KNOWN_OF_USERS: [(Wall, &str, &str); 3] = [
    (Source, "processes", "bounded where the daemon is root"),
    (Sandbox, "memory", "bounded where the daemon may make cgroups"),
    (Interpreter, "memory", "bounded where the daemon may make cgroups"),
];

/// What shows nothing in a wall, with the reason.
const UNTRIED: [(Wall, &str, &str); 3] = [
    (Reader, "memory", "the reader bounds itself, and the probe is in its place"),
    (Browser, "processes", "32,768 for all browsers: more than a trial should take"),
    (Vm, "processes", "as many as its kernel has"),
];

/// What a machine's root does to its own kernel: nothing of the host's.
const OWN_KERNEL: [&str; 7] = [
    "kernel settings",
    "keyrings",
    "set-user-id",
    "devices",
    "mounts",
    "namespaces",
    "kernel calls",
];

const BEGIN: &str = "<!-- containment: written by `cargo xtask containment --write` -->";
const END: &str = "<!-- containment: end -->";

/// An attempt, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) attempt: String,
    pub(super) reached: bool,
    pub(super) what: String,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = if self.reached { "reached" } else { "refused" };
        write!(f, "{:17} {outcome}: {}", self.attempt, self.what)
    }
}

/// What the probe sees where there is no wall.
pub(super) struct Outside(pub(super) Vec<Seen>);

/// Attempts of a probe that came to its end.
pub(super) fn seen(text: &str) -> Result<Vec<Seen>> {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let (end, attempts) = lines.split_last().context("the probe said nothing")?;
    ensure!(*end == "end", "the probe did not come to its end: {text}");
    let attempt = |line: &&str| {
        let mut words = line.splitn(3, '\t').map(str::to_owned);
        let mut word = || words.next().with_context(|| format!("not what a probe says: {line}"));
        let (attempt, outcome, what) = (word()?, word()?, word()?);
        let reached = match outcome.as_str() {
            "reached" => true,
            "refused" => false,
            _ => bail!("neither reached nor refused: {line}"),
        };
        Ok(Seen { attempt, reached, what })
    };
    attempts.iter().map(attempt).collect()
}

/// A cell of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    /// By what.
    Held(&'static str),
    /// Why.
    Untried(String),
    /// Why it may be.
    Known(&'static str),
    /// What was reached.
    Hole(String),
}

/// Judges an attempt; `outside` is the same where there is no wall.
fn judge(wall: Wall, attempt: &str, outside: Option<&Seen>, within: Option<&Seen>) -> Verdict {
    let listed = |list: &[(Wall, &str, &'static str)]| {
        let found = list.iter().find(|(of, named, _)| *of == wall && *named == attempt);
        found.map(|(.., why)| *why)
    };
    let users = !rustix::process::geteuid().is_root();
    let Some(within) = within else { return Verdict::Untried("a script cannot".to_owned()) };
    if let Some(why) = listed(&UNTRIED) {
        return Verdict::Untried(why.to_owned());
    }
    match (within.reached, outside) {
        (true, _) if wall == Vm && OWN_KERNEL.contains(&attempt) => {
            Verdict::Held("a kernel of its own")
        }
        (true, _) => match listed(&KNOWN).or(users.then(|| listed(&KNOWN_OF_USERS)).flatten()) {
            Some(why) => Verdict::Known(why),
            None => Verdict::Hole(within.what.clone()),
        },
        (false, Some(outside)) if outside.reached => Verdict::Held(by(wall, attempt)),
        (false, Some(outside)) => {
            Verdict::Untried(format!("not to be had outside either: {}", outside.what))
        }
        (false, None) => Verdict::Untried("not tried outside".to_owned()),
    }
}

/// What holds an attempt.
fn by(wall: Wall, attempt: &str) -> &'static str {
    match (wall, attempt) {
        (Page, "host's files") => "Chrome's origins",
        (Page, _) => "the daemon's proxy",
        (Vm, "host's address" | "metadata address" | "other guest") => "packet filter",
        (Vm, "memory") => "the machine's memory",
        (Vm, _) => "the virtual machine",
        (_, "host's files" | "daemon's socket") => "mount namespace",
        (
            _,
            "abstract socket" | "loopback" | "host's address" | "metadata address" | "other guest",
        ) => "network namespace",
        (_, "host's processes") | (Browser, "ptrace") => "PID namespace",
        (_, "vsock") => "filter of sockets",
        (_, "kernel settings") => "read-only /proc/sys",
        (Source | Reader | Browser, "set-user-id") => "filter of modes",
        (_, "set-user-id") => "no_new_privs",
        (_, "devices") => "user namespace, /dev of its own",
        (Browser, "mounts") => "user namespace",
        (_, "ptrace" | "keyrings" | "mounts" | "namespaces" | "kernel calls") => "filter of calls",
        (Sandbox | Interpreter, "memory") => "cgroup",
        (_, "memory") => "RLIMIT_DATA",
        _ => "RLIMIT_NPROC",
    }
}

/// The table, attempt by wall.
pub(super) struct ContainmentTable {
    outside: Outside,
    walls: BTreeMap<Wall, Result<Vec<Seen>, String>>,
}

impl ContainmentTable {
    pub(super) fn new(outside: Outside) -> Self {
        println!("== outside of all walls");
        outside.0.iter().for_each(|seen| println!("{seen}"));
        Self { outside, walls: BTreeMap::new() }
    }

    /// What was seen in a wall, or why it was left out.
    pub(super) fn add(&mut self, wall: Wall, tried: Result<Vec<Seen>, String>) {
        self.walls.insert(wall, tried);
    }

    fn verdict(&self, wall: Wall, seen: &[Seen], attempt: &str) -> Verdict {
        let of = |seen: &[Seen]| seen.iter().find(|it| it.attempt == attempt).cloned();
        judge(wall, attempt, of(&self.outside.0).as_ref(), of(seen).as_ref())
    }

    /// What is not held and is not known to be so.
    pub(super) fn red(&self) -> Vec<String> {
        let mut red = Vec::new();
        for (wall, tried) in &self.walls {
            let Ok(seen) = tried else { continue };
            for attempt in ATTEMPTS {
                if let Verdict::Hole(what) = self.verdict(*wall, seen, attempt) {
                    red.push(format!("{attempt} in {}: {what}", wall.name()));
                }
            }
        }
        red
    }

    /// A page with this table between its markers.
    ///
    /// # Errors
    /// When it has none.
    pub(super) fn written_to(&self, page: &str, stamp: &str) -> Result<String> {
        let (before, rest) = page.split_once(BEGIN).with_context(|| format!("no {BEGIN}"))?;
        let (_, after) = rest.split_once(END).with_context(|| format!("no {END}"))?;
        Ok(format!("{before}{BEGIN}\n\n{stamp}\n\n{self}\n{END}{after}"))
    }
}

impl fmt::Display for ContainmentTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut notes: Vec<String> = Vec::new();
        let tried: Vec<_> =
            self.walls.iter().filter_map(|(wall, it)| Some((*wall, it.as_ref().ok()?))).collect();
        let names: Vec<_> = tried.iter().map(|(wall, _)| format!(" {} |", wall.name())).collect();
        writeln!(f, "| attempt |{}\n|---|{}", names.concat(), "---|".repeat(names.len()))?;
        for attempt in ATTEMPTS {
            let cell = |(wall, seen): &(Wall, &Vec<Seen>)| {
                let (word, why) = match self.verdict(*wall, seen, attempt) {
                    Verdict::Held(by) => return format!(" held: {by} |"),
                    Verdict::Untried(why) => ("untried", why),
                    Verdict::Known(why) => ("not held", why.to_owned()),
                    Verdict::Hole(what) => ("NOT HELD", what),
                };
                let why = why.replace('|', " ");
                let at = notes.iter().position(|note| *note == why).unwrap_or_else(|| {
                    notes.push(why);
                    notes.len() - 1
                });
                format!(" {word} ({}) |", at + 1)
            };
            let cells: String = tried.iter().map(cell).collect();
            writeln!(f, "| {attempt} |{cells}")?;
        }
        writeln!(f)?;
        for (number, note) in (1..).zip(&notes) {
            writeln!(f, "{number}. {note}")?;
        }
        for (wall, tried) in &self.walls {
            if let Err(why) = tried {
                writeln!(f, "\n**Left out: {}.** {why}.", wall.name())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(attempt: &str, reached: bool) -> Seen {
        Seen { attempt: attempt.to_owned(), reached, what: "why".to_owned() }
    }

    #[test]
    fn what_is_reached_is_red_and_what_nobody_reaches_is_untried() {
        let (yes, no) = (at("loopback", true), at("loopback", false));
        let judged = |outside, within| judge(Source, "loopback", outside, within);
        assert_eq!(judged(Some(&yes), Some(&no)), Verdict::Held("network namespace"));
        assert_eq!(judged(Some(&yes), Some(&yes)), Verdict::Hole("why".to_owned()));
        assert_eq!(judged(None, Some(&yes)), Verdict::Hole("why".to_owned()));
        let untried = [(Some(&no), Some(&no)), (None, Some(&no)), (Some(&yes), None)];
        for (outside, within) in untried {
            assert!(matches!(judged(outside, within), Verdict::Untried(_)));
        }
        let mut table = ContainmentTable::new(Outside(vec![yes.clone()]));
        table.add(Source, Ok(vec![yes]));
        table.add(Vm, Err("no QEMU".to_owned()));
        assert_eq!(table.red(), ["loopback in source: why"]);
        let page = table.written_to(&format!("a\n{BEGIN}\nold\n{END}\nb\n"), "Tried.").unwrap();
        assert!(page.starts_with("a\n") && page.ends_with("\nb\n") && !page.contains("old"));
        assert!(page.contains("NOT HELD (") && page.contains("**Left out: vm.** no QEMU."));
    }

    #[test]
    fn a_probe_that_ends_early_is_no_answer() {
        let whole = "ptrace\trefused\tEPERM\nend\n";
        assert_eq!(
            seen(whole).unwrap(),
            [Seen { what: "EPERM".to_owned(), ..at("ptrace", false) }]
        );
        assert!(seen("ptrace\trefused\tEPERM\n").is_err() && seen("").is_err());
    }
}
