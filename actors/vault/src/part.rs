//! Access scope of a team's member: the folder of its team, and nothing else.

use hivekeep_kernel::ToolError;

use crate::path::{NotePath, Scope};

/// Maximum length of a team's or a member's name.
const MAX_NAME_BYTES: usize = 64;

/// Scope of a caller: the whole vault, or, for `team/member`, the folder `teams/<team>`.
///
/// The member need not exist: whoever may call has the whole vault, and this only restricts it.
///
/// # Errors
/// `invalid_input` when the text is not `team/member`.
pub(crate) fn of(member: Option<&str>) -> Result<Scope, ToolError> {
    let Some(text) = member else { return Ok(Scope::whole()) };
    match text.split_once('/') {
        Some((team, member)) if is_name(team) && is_name(member) => {
            Ok(Scope::below(NotePath::parse(&format!("teams/{team}"))?))
        }
        _ => Err(ToolError::invalid("as_member must be `team/member`")
            .next("team with action `status` shows the members")),
    }
}

/// True for valid names of teams and members.
fn is_name(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=MAX_NAME_BYTES).contains(&text.len())
        && text.bytes().all(known)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_has_the_folder_of_its_team() {
        assert_eq!(of(None).unwrap(), Scope::whole());
        assert_eq!(of(Some("a-b/x")).unwrap().root().as_str(), "teams/a-b");
        let long = format!("{}/x", "a".repeat(65));
        for bad in
            ["", "a", "a/", "/a", "../x", "a/..", ".git/x", "a/b/c", "-a/x", "a-/x", "a b/x", &long]
        {
            assert_eq!(of(Some(bad)).unwrap_err().code, "invalid_input", "{bad}");
        }
    }
}
