//! Names of teams, of members, and of the workspaces that are made for members.

use std::collections::BTreeSet;

/// The longest name of a workspace: a DNS label.
const WORKSPACE_NAME: usize = 63;
/// The longest name of a team, a member or a role.
const LONGEST: usize = 64;

/// Checks that a text can name a team, a member or a role: 1 to 64 of `A-Z`, `a-z`, `0-9` and
/// with a letter or digit at both ends.
pub fn is_sound(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    bytes.len() <= LONGEST
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
}

/// The part of a member's workspace name before its four digits, or `None` when with them it
/// would be too long. Workspace names have no capitals.
pub fn workspace_prefix(team: &str, role: &str) -> Option<String> {
    let prefix = format!("{team}-{role}-").to_ascii_lowercase();
    (prefix.len() + 4 <= WORKSPACE_NAME).then_some(prefix)
}

/// A name that nobody has yet, from a source of chance. It is added to `taken`.
pub fn free_name(
    prefix: &str,
    taken: &mut BTreeSet<String>,
    mut chance: impl FnMut() -> u16,
) -> String {
    // Chance is tried first so that names of before do not come back; then it is counted on.
    let mut digits = chance();
    for _ in 0..=u16::MAX {
        let name = format!("{prefix}{digits:04x}");
        if taken.insert(name.clone()) {
            return name;
        }
        digits = digits.wrapping_add(1);
    }
    // No daemon keeps that many workspaces; it will be refused as taken.
    format!("{prefix}{digits:04x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_letters_digits_and_hyphens_inside() {
        for good in ["a", "A-b", "0", "Team-7", &"x".repeat(64)] {
            assert!(is_sound(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a_b", "a b", "ä", "a/b", &"x".repeat(65)] {
            assert!(!is_sound(bad), "{bad}");
        }
    }

    #[test]
    fn workspace_names_fit_and_are_free() {
        assert_eq!(workspace_prefix("Team", "Coder").as_deref(), Some("team-coder-"));
        assert!(workspace_prefix(&"t".repeat(50), "coder-x").is_some());
        assert!(workspace_prefix(&"t".repeat(50), "coder-xyz").is_none());
        let mut taken = BTreeSet::from(["a-b-ffff".to_owned(), "a-b-0000".to_owned()]);
        assert_eq!(free_name("a-b-", &mut taken, || 0xffff), "a-b-0001");
        assert_eq!(free_name("a-b-", &mut taken, || 0xffff), "a-b-0002");
    }
}
