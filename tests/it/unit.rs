//! The service unit: what systemd is told holds on a bad day, too.

use std::process::Command;

const UNIT: &str = include_str!("../../docs/hivekeep.service");

/// The value of a setting below its section.
fn setting(section: &str, name: &str) -> Option<&'static str> {
    let below = UNIT.split(&format!("\n[{section}]\n")).nth(1)?;
    let lines = below.lines().take_while(|line| !line.starts_with('['));
    lines
        .filter_map(|line| line.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

#[test]
fn systemd_never_gives_the_daemon_up() {
    assert_eq!(setting("Unit", "StartLimitIntervalSec"), Some("0"));
    assert_eq!(setting("Service", "Restart"), Some("on-failure"));
    let secs = |name| setting("Service", name).and_then(|value| value.parse::<u64>().ok());
    assert!(secs("RestartSec").is_some_and(|secs| secs >= 1), "a loop without a pause");
    assert!(secs("RestartMaxDelaySec").is_some_and(|secs| secs <= 60), "too late to be back");
    // Those that another start does not help.
    assert_eq!(setting("Service", "RestartPreventExitStatus"), Some("2 3 4"));
}

#[test]
fn systemd_understands_the_unit() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hivekeep.service");
    // The program is where the unit says on the host that it is for.
    let program = env!("CARGO_BIN_EXE_hivekeep");
    let unit = UNIT.replace("/usr/local/bin/hivekeep", program);
    std::fs::write(&file, unit).expect("written");
    let looked = match Command::new("systemd-analyze").arg("verify").arg(&file).output() {
        Ok(looked) => looked,
        Err(error) => {
            return hivekeep_skip::skip(format_args!("systemd-analyze does not run: {error}"));
        }
    };
    let said = String::from_utf8_lossy(&looked.stderr);
    // Settings of a later systemd are left alone by an earlier one, and named.
    let place = file.display().to_string();
    let ours = said.lines().filter(|line| line.starts_with(&place));
    let later = ["RestartSteps", "RestartMaxDelaySec", "DelegateSubgroup"];
    let wrong: Vec<_> = ours.filter(|line| !later.iter().any(|name| line.contains(name))).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
