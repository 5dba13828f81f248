//! Plan of apt-get, read from its simulation.

/// A package that is there, and what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) package: String,
    /// The version that is installed.
    pub(super) from: String,
    /// The version that takes its place; `None` when nothing does.
    pub(super) to: Option<String>,
}

/// Changes to the packages that are there; new ones harm nobody.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) changes: Vec<Change>,
}

impl Plan {
    /// Reads `Remv NAME [OLD]` and `Inst NAME [OLD] (NEW ORIGIN [ARCHITECTURE])`.
    pub(super) fn parse(simulation: &str) -> Self {
        let mut changes: Vec<Change> = Vec::new();
        for line in simulation.lines() {
            let mut words = line.split(' ');
            let (Some(verb @ ("Remv" | "Inst")), Some(package)) = (words.next(), words.next())
            else {
                continue;
            };
            let mut next = || words.next().unwrap_or_default();
            let old = next();
            let new = if old.starts_with('(') { old } else { next() };
            let from = old.strip_prefix('[').map(|old| old.trim_end_matches(']'));
            let to = (verb == "Inst").then(|| new.trim_start_matches('(').to_owned());
            // Removed to be unpacked anew: the second line names no version that is there.
            if let (Some(to), Some(known)) =
                (&to, changes.iter_mut().find(|change| change.package == package))
            {
                known.to = Some(to.clone());
            } else if let Some(from) = from {
                let (package, from) = (package.to_owned(), from.to_owned());
                changes.push(Change { package, from, to });
            }
        }
        Self { changes }
    }

    /// The packages that would be gone.
    pub(super) fn removed(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(|change| change.to.is_none())
    }

    /// Packages of `needed` that would be removed.
    pub(super) fn takes_away(&self, needed: &[&str]) -> Vec<&str> {
        let removed = self.removed().map(|change| change.package.as_str());
        removed.filter(|package| needed.contains(package)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a Debian 12 with the `qemu-utils` of no source, asked for what is missing only.
    const TAKEN_AWAY: &str = "\
Reading package lists...
The following packages will be REMOVED:
  qemu-utils
0 upgraded, 154 newly installed, 1 to remove and 0 not upgraded.
Remv qemu-utils [1:10.0.2+ds-2+deb13u1~bpo12+1]
Inst ipxe-qemu (1.0.0+git-20190125.36a4c85-5.1 Debian:12.15/oldstable [all])
Inst qemu-system-x86 (1:7.2+dfsg-7+deb12u18+b3 Debian:12.15/oldstable [amd64])
Conf ipxe-qemu (1.0.0+git-20190125.36a4c85-5.1 Debian:12.15/oldstable [all])
";

    /// Of the same machine, asked for one version of QEMU.
    const DOWNGRADED: &str = "\
Inst util-linux [2.38.1-5+deb12u1] (2.38.1-5+deb12u3 Debian:12.15/oldstable [amd64])
Inst qemu-utils [1:10.0.2+ds-2+deb13u1~bpo12+1] (1:7.2+dfsg-7+deb12u18+b3 Debian:12.15/oldstable [amd64])
Inst qemu-system-common (1:7.2+dfsg-7+deb12u18+b3 Debian:12.15/oldstable [amd64])
";

    const QEMU: [&str; 2] = ["qemu-system-x86", "qemu-utils"];

    #[test]
    fn a_needed_package_that_would_be_removed_is_seen() {
        let plan = Plan::parse(TAKEN_AWAY);
        assert_eq!(plan.takes_away(&QEMU), ["qemu-utils"]);
        assert_eq!(plan.takes_away(&["git"]), [""; 0]);
        assert_eq!(plan.changes[0].from, "1:10.0.2+ds-2+deb13u1~bpo12+1");
        assert_eq!(plan.changes.len(), 1, "new packages change nothing: {plan:?}");
    }

    #[test]
    fn versions_that_change_are_read() {
        let plan = Plan::parse(DOWNGRADED);
        assert_eq!((plan.removed().count(), plan.changes.len()), (0, 2));
        let qemu = &plan.changes[1];
        assert_eq!(qemu.from, "1:10.0.2+ds-2+deb13u1~bpo12+1");
        assert_eq!(qemu.to.as_deref(), Some("1:7.2+dfsg-7+deb12u18+b3"));
    }

    #[test]
    fn what_is_removed_and_unpacked_anew_is_not_gone() {
        let plan =
            Plan::parse("Remv qemu-utils [2] [other:amd64 ]\nInst qemu-utils [2] (1 L [all])");
        assert_eq!(plan.takes_away(&QEMU), [""; 0]);
        assert_eq!(plan.changes[0].to.as_deref(), Some("1"));
        assert_eq!(Plan::parse("E: Unable to correct problems"), Plan::default());
    }
}
