//! The ways to ask apt-get for packages, the plainest first.
//!
//! QEMU's packages are built from one source and fit each other in one version
//! only. A machine may have one of them from elsewhere (backports, a source that
//! is gone): then the plain names cannot be had together, and apt takes neither
//! side unless it is told the version. Going back to it is a downgrade, which has
//! to be allowed.

use std::collections::BTreeMap;

/// QEMU's packages, which are asked for by need.
pub(super) const QEMU: [&str; 3] = ["qemu-system-x86", "qemu-utils", "qemu-system-common"];

/// Arguments after `install`, in the order in which they are to be tried.
///
/// `installed` are the packages of QEMU's source on this machine, `madison` is what
/// apt-cache says of the versions to be had of these and of [`QEMU`].
pub(super) fn variants(packages: &[&str], installed: &[&str], madison: &str) -> Vec<Vec<String>> {
    let plain = packages.iter().map(|&package| package.to_owned()).collect();
    let wanted: Vec<&str> = QEMU.into_iter().filter(|name| packages.contains(name)).collect();
    let mut all = vec![plain];
    for versions in common(&wanted, madison) {
        let named = |package: &str| match versions.get(package) {
            Some(version) => format!("{package}={version}"),
            None => package.to_owned(),
        };
        let beside = installed
            .iter()
            .filter(|name| versions.contains_key(*name) && !packages.contains(name));
        let mut arguments = vec!["--allow-downgrades".to_owned()];
        arguments.extend(packages.iter().chain(beside).map(|package| named(package)));
        all.push(arguments);
    }
    all
}

/// For each version in which all of `wanted` can be had, the newest first, what each
/// package calls it.
fn common<'a>(wanted: &[&str], madison: &'a str) -> Vec<BTreeMap<&'a str, &'a str>> {
    let Some(first) = wanted.first() else { return Vec::new() };
    let mut order = Vec::new();
    let mut found: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
    for line in madison.lines() {
        let mut fields = line.split('|').map(str::trim);
        let (Some(package), Some(version)) = (fields.next(), fields.next()) else { continue };
        let source = of_source(version);
        if package == *first && !order.contains(&source) {
            order.push(source);
        }
        found.entry(source).or_default().entry(package).or_insert(version);
    }
    order
        .into_iter()
        .filter_map(|source| found.remove(source))
        .filter(|versions| wanted.iter().all(|package| versions.contains_key(package)))
        .collect()
}

/// A version without the number of a rebuild, which packages for all machines lack.
fn of_source(version: &str) -> &str {
    match version.rsplit_once("+b") {
        Some((source, rebuild)) if rebuild.bytes().all(|byte| byte.is_ascii_digit()) => source,
        _ => version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a Debian 12 whose `qemu-utils` is of a repository beside, that is still known.
    const BESIDE: &str = "\
qemu-system-x86 | 1:7.2+dfsg-7+deb12u18+b3 | mirror://debian bookworm/main amd64 Packages
qemu-system-x86 | 1:7.2+dfsg-7+deb12u15 | mirror://security bookworm-security/main amd64 Packages
qemu-utils | 1:10.0.2+ds-2+deb13u1~bpo12+1 | file:/srv/beside ./ Packages
qemu-utils | 1:7.2+dfsg-7+deb12u18+b3 | mirror://debian bookworm/main amd64 Packages
qemu-utils | 1:7.2+dfsg-7+deb12u15 | mirror://security bookworm-security/main amd64 Packages
";

    const DATA: &str = "\
qemu-system-data | 1:7.2+dfsg-7+deb12u18 | mirror://debian bookworm/main amd64 Packages
";

    #[test]
    fn the_names_come_first_and_then_each_version_that_all_have() {
        let tried = variants(&["bubblewrap", "qemu-system-x86", "qemu-utils"], &[], BESIDE);
        let lines: Vec<String> = tried.iter().map(|arguments| arguments.join(" ")).collect();
        let pinned = |version: &str| {
            format!("--allow-downgrades bubblewrap qemu-system-x86={version} qemu-utils={version}")
        };
        assert_eq!(
            lines,
            [
                "bubblewrap qemu-system-x86 qemu-utils".to_owned(),
                pinned("1:7.2+dfsg-7+deb12u18+b3"),
                pinned("1:7.2+dfsg-7+deb12u15"),
            ]
        );
    }

    #[test]
    fn what_else_is_there_of_qemu_goes_along() {
        let installed = ["qemu-system-data", "qemu-utils", "qemu-of-nowhere"];
        let tried = variants(&QEMU[..2], &installed, &[BESIDE, DATA].concat());
        assert_eq!(tried[1][3], "qemu-system-data=1:7.2+dfsg-7+deb12u18");
        assert_eq!((tried[1].len(), tried[2].len()), (4, 3), "{tried:?}");
    }

    #[test]
    fn without_qemu_and_without_lists_there_is_the_plain_line_only() {
        assert_eq!(variants(&["git"], &["qemu-utils"], BESIDE), [["git"]]);
        assert_eq!(variants(&["qemu-utils"], &[], ""), [["qemu-utils"]]);
    }
}
