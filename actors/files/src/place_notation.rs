//! Notation of a place as scp has it: `[USER@]WORKSPACE[:FOLDER]`.

use hivekeep_kernel::ToolError;

/// Longest name of a user, in bytes.
const MAX_USER_BYTES: usize = 256;

/// Parts of a place's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlaceNotation<'n> {
    /// User of the guest, by name or number.
    pub(crate) user: Option<&'n str>,
    /// Name or id.
    pub(crate) name: &'n str,
    /// Folder of the guest: absolute, or `~` or below it, which is the user's home.
    pub(crate) folder: Option<&'n str>,
}

impl<'n> PlaceNotation<'n> {
    /// Parses a place's name. The first `:` begins the folder; a user is before an `@` before that.
    ///
    /// # Errors
    /// `invalid_input` for a user or a folder that makes no sense.
    pub(crate) fn parse(text: &'n str) -> Result<Self, ToolError> {
        let (rest, folder) = match text.split_once(':') {
            Some((rest, folder)) => (rest, Some(folder)),
            None => (text, None),
        };
        let (user, name) = match rest.split_once('@') {
            Some((user, name)) => (Some(user), name),
            None => (None, rest),
        };
        let odd = |c: char| c.is_whitespace() || c.is_control() || "/@".contains(c);
        let is_user = |it: &str| !it.is_empty() && it.len() <= MAX_USER_BYTES && !it.contains(odd);
        if user.is_some_and(|user| !is_user(user)) {
            return Err(wrong(text, "has no valid user before its `@`"));
        }
        let is_folder =
            |it: &str| it.starts_with('/') || it.split('/').next().is_some_and(|it| it == "~");
        if folder.is_some_and(|folder| !is_folder(folder)) {
            return Err(wrong(text, "has a folder that is neither absolute nor begins with `~/`"));
        }
        Ok(Self { user, name, folder })
    }

    /// The same place, whose workspace has this name.
    pub(crate) fn named(&self, name: &str) -> String {
        let user = self.user.map(|user| format!("{user}@")).unwrap_or_default();
        let folder = self.folder.map(|folder| format!(":{folder}")).unwrap_or_default();
        format!("{user}{name}{folder}")
    }
}

fn wrong(text: &str, what: &str) -> ToolError {
    let shown: String = text.chars().take(80).collect();
    ToolError::invalid(format!("the place `{shown}` {what}"))
        .next("write [USER@]WORKSPACE[:FOLDER], such as `app@w:/srv`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_user_and_a_folder_or_not() {
        for (text, user, name, folder) in [
            ("w", None, "w", None),
            ("app@w", Some("app"), "w", None),
            ("w:/", None, "w", Some("/")),
            ("1000@w:~/src", Some("1000"), "w", Some("~/src")),
            ("w:~", None, "w", Some("~")),
            ("w:/a:b@c", None, "w", Some("/a:b@c")),
            ("", None, "", None),
        ] {
            let parsed = PlaceNotation::parse(text).expect(text);
            assert_eq!(parsed, PlaceNotation { user, name, folder }, "{text}");
            assert_eq!(parsed.named(name), text);
        }
        let long = format!("{}@w", "u".repeat(257));
        for text in ["@w", "a b@w", "a/b@w", "\n@w", "w:", "w:src", "w:~bob", &long] {
            assert!(PlaceNotation::parse(text).is_err(), "{text:?}");
        }
    }
}
