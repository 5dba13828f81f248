//! Linux distribution, read from os-release(5), and its command to install a package.
//!
//! xtask has the same file as a module: what is missing is called by one name in both.

/// Distributions whose package names were looked up. Each package has the same name on all three,
/// but for [`Distribution::package`].
const KNOWN: [(&str, &str); 3] = [("debian", "12"), ("debian", "13"), ("ubuntu", "24.04")];

/// Packages that Ubuntu keeps in a component that an installation may have left out.
const UNIVERSE: [&str; 4] = ["debian-archive-keyring", "mmdebstrap", "python3-venv", "ripgrep"];

/// A distribution.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Distribution {
    /// Such as `debian`.
    id: String,
    /// Such as `12`; a rolling one has none.
    version: String,
    /// The distributions that this one is derived from.
    like: Vec<String>,
    /// For people.
    name: String,
}

impl Distribution {
    /// This machine's.
    pub(crate) fn here() -> Self {
        let files = ["/etc/os-release", "/usr/lib/os-release"];
        let text = files.iter().find_map(|file| std::fs::read_to_string(file).ok());
        Self::parse(&text.unwrap_or_default())
    }

    fn parse(os_release: &str) -> Self {
        let value = |key: &str| {
            let mut pairs = os_release.lines().filter_map(|line| line.split_once('='));
            let found = pairs.find(|(name, _)| *name == key);
            found.map_or("", |(_, value)| value.trim_matches(['"', '\''])).to_owned()
        };
        let name = match value("PRETTY_NAME") {
            name if name.is_empty() => "an unnamed distribution".to_owned(),
            name => name,
        };
        let like = value("ID_LIKE").split(' ').map(str::to_owned).collect();
        Self { id: value("ID"), version: value("VERSION_ID"), like, name }
    }

    fn known(&self) -> bool {
        KNOWN.contains(&(&self.id, &self.version))
    }

    fn has_apt(&self) -> bool {
        let families = ["debian", "ubuntu"];
        families.iter().any(|family| self.id == *family || self.like.iter().any(|id| id == family))
    }

    /// The package that has what Debian 13 has in this one.
    pub(crate) fn package<'p>(&self, package: &'p str) -> &'p str {
        match (&*self.id, &*self.version, package) {
            ("debian", "12", "virtiofsd") => "qemu-system-common",
            _ => package,
        }
    }

    /// Whether its archive has a package. Ubuntu's Chromium is a snap, which runs in no sandbox but its own.
    pub(crate) fn has(&self, package: &str) -> bool {
        self.id != "ubuntu" || package != "chromium"
    }

    /// The command that installs a package, named as Debian names it.
    pub(crate) fn install(&self, package: &str) -> String {
        if !self.has(package) {
            return format!("install the package of {package}'s makers: {} has none", self.name);
        }
        let package = self.package(package);
        let line = format!("apt-get install {package}");
        match (self.known(), self.has_apt()) {
            (true, _) if self.id == "ubuntu" && UNIVERSE.contains(&package) => {
                format!("{line} (in universe: add-apt-repository universe)")
            }
            (true, _) => line,
            (false, true) => format!("{line} (its name on Debian; not tried on {})", self.name),
            (false, false) => format!("install what Debian packages as {package}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOKWORM: &str = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n\
        NAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nVERSION=\"12 (bookworm)\"\n\
        VERSION_CODENAME=bookworm\nID=debian\n";
    const TRIXIE: &str = "PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\n\
        NAME=\"Debian GNU/Linux\"\nVERSION_ID=\"13\"\nVERSION=\"13 (trixie)\"\n\
        VERSION_CODENAME=trixie\nDEBIAN_VERSION_FULL=13.5\nID=debian\n";
    const NOBLE: &str = "PRETTY_NAME=\"Ubuntu 24.04.2 LTS\"\nNAME=\"Ubuntu\"\n\
        VERSION_ID=\"24.04\"\nVERSION=\"24.04.2 LTS (Noble Numbat)\"\n\
        VERSION_CODENAME=noble\nID=ubuntu\nID_LIKE=debian\nUBUNTU_CODENAME=noble\n";
    const MINT: &str = "NAME=\"Linux Mint\"\nVERSION=\"22.1 (Xia)\"\nID=linuxmint\n\
        ID_LIKE=\"ubuntu debian\"\nPRETTY_NAME=\"Linux Mint 22.1\"\nVERSION_ID=\"22.1\"\n";
    const SID: &str = "PRETTY_NAME=\"Debian GNU/Linux forky/sid\"\nID=debian\n";
    const FEDORA: &str = "NAME=\"Fedora Linux\"\nID=fedora\nVERSION_ID=42\n\
        PRETTY_NAME=\"Fedora Linux 42 (Server Edition)\"\n";

    fn on(os_release: &str, package: &str) -> String {
        Distribution::parse(os_release).install(package)
    }

    #[test]
    fn the_three_that_are_known_are_told_the_plain_line() {
        for os_release in [BOOKWORM, TRIXIE, NOBLE] {
            assert_eq!(on(os_release, "qemu-utils"), "apt-get install qemu-utils");
        }
        assert_eq!(on(TRIXIE, "mmdebstrap"), "apt-get install mmdebstrap");
        assert_eq!(on(TRIXIE, "virtiofsd"), "apt-get install virtiofsd");
        assert_eq!(on(BOOKWORM, "virtiofsd"), "apt-get install qemu-system-common");
        assert!(on(NOBLE, "mmdebstrap").ends_with("(in universe: add-apt-repository universe)"));
    }

    #[test]
    fn what_was_not_tried_is_said() {
        assert!(on(MINT, "qemu-utils").contains("not tried on Linux Mint 22.1"));
        assert!(on(SID, "qemu-utils").contains("not tried on Debian GNU/Linux forky/sid"));
        for strange in [FEDORA, ""] {
            assert_eq!(on(strange, "qemu-utils"), "install what Debian packages as qemu-utils");
        }
    }

    #[test]
    fn this_machine_is_read() {
        assert!(!Distribution::here().name.is_empty());
    }
}
