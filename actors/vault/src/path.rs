//! Normalised paths in the vault: relative, plain, and exactly one per note. With the scopes in
//! which callers name them, the rules that admit them, and their URIs (RFC 3986),
//! `vault:///path/to/note.md`.

use std::fmt;

use hivekeep_kernel::ToolError;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::Error;

/// Folder in which the daemon keeps files that are not notes.
const TEAMS: &str = "teams/";
/// Maximum length of a path in bytes. Linux takes 4096, of which the folder's own path takes some.
const MAX_BYTES: usize = 2_048;
/// Maximum length of a name in bytes, on the file systems in use.
const MAX_NAME_BYTES: usize = 255;
/// Maximum nesting depth of folders. A walk has all folders on its way open.
pub(crate) const MAX_DEPTH: usize = 48;
/// Maximum length of a team's or a member's name.
const MAX_MEMBER_BYTES: usize = 64;
const URI_ROOT: &str = "vault:///";
/// Characters that must be escaped in the path of a URI (RFC 3986, 3.3).
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Path below the vault's root: names joined by `/`, none of them empty, `.` or `..`. The empty
/// path is the root itself. Symbolic links are never followed, so one note has one path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NotePath(String);

impl NotePath {
    /// Parses a path. A trailing `/` of a folder is dropped.
    ///
    /// # Errors
    /// [`Error::BadPath`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let bad = |why| Error::BadPath { path: shorten(text), why };
        let plain = text.strip_suffix('/').unwrap_or(text);
        if text.starts_with('/') {
            return Err(bad("it is absolute"));
        }
        if plain.is_empty() || plain == "." {
            return Ok(Self::default());
        }
        if plain.len() > MAX_BYTES {
            return Err(bad("it is longer than 2048 bytes"));
        }
        if plain.chars().any(|c| c.is_control() || c == '\\') {
            return Err(bad("it has a control character or a backslash"));
        }
        for (depth, name) in plain.split('/').enumerate() {
            let why = match name {
                "" => "it has an empty name",
                "." | ".." => "it has a name that is `.` or `..`",
                long if long.len() > MAX_NAME_BYTES => "a name is longer than 255 bytes",
                _ if depth >= MAX_DEPTH => "it is deeper than 48 folders",
                _ => continue,
            };
            return Err(bad(why));
        }
        Ok(Self(plain.to_owned()))
    }

    /// Names of the path, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|name| !name.is_empty())
    }

    /// Path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Parent folder and name; `None` for the root.
    pub fn split(&self) -> Option<(NotePath, &str)> {
        if self.0.is_empty() {
            return None;
        }
        let (folder, name) = self.0.rsplit_once('/').unwrap_or(("", &self.0));
        Some((Self(folder.to_owned()), name))
    }

    /// Joins a path below this folder.
    pub fn join(&self, below: &NotePath) -> Result<Self, Error> {
        match (self.0.is_empty(), below.0.is_empty()) {
            (true, _) => Ok(below.clone()),
            (_, true) => Ok(self.clone()),
            // The joined path may be too long or too deep.
            _ => Self::parse(&format!("{}/{}", self.0, below.0)),
        }
    }
}

impl fmt::Display for NotePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "." } else { &self.0 })
    }
}

/// Shortens a caller's text for messages.
fn shorten(text: &str) -> String {
    let short: String = text.chars().take(200).collect();
    if short.len() < text.len() { short + "..." } else { short }
}

/// Access scope of a caller: a folder that is its root. Its paths begin there, and nothing it names
/// is outside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope(NotePath);

impl Scope {
    /// Scope of the whole vault.
    pub fn whole() -> Self {
        Self::default()
    }

    /// Scope below a folder, which need not exist yet.
    pub fn below(folder: NotePath) -> Self {
        Self(folder)
    }

    /// Scope of a caller: the whole vault, or, for `team/member`, the folder `teams/<team>`.
    ///
    /// The member need not exist: whoever may call has the whole vault, and this only restricts it.
    ///
    /// # Errors
    /// `invalid_input` when the text is not `team/member`.
    pub(crate) fn of_member(member: Option<&str>) -> Result<Self, ToolError> {
        let Some(text) = member else { return Ok(Self::whole()) };
        match text.split_once('/') {
            Some((team, member)) if is_member_name(team) && is_member_name(member) => {
                Ok(Self::below(NotePath::parse(&format!("teams/{team}"))?))
            }
            _ => Err(ToolError::invalid("as_member must be `team/member`")
                .next("team with action `status` shows the members")),
        }
    }

    /// Root folder of the scope.
    pub fn root(&self) -> &NotePath {
        &self.0
    }

    /// Path in the vault of a caller's path.
    ///
    /// # Errors
    /// [`Error::BadPath`].
    pub fn place(&self, text: &str) -> Result<NotePath, Error> {
        self.0.join(&NotePath::parse(text)?)
    }
}

/// True for valid names of teams and members.
fn is_member_name(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=MAX_MEMBER_BYTES).contains(&text.len())
        && text.bytes().all(known)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Rules that say which files are notes and which folders are excluded.
#[derive(Debug, Clone)]
pub(crate) struct PathRules {
    pub(crate) extensions: Vec<String>,
    pub(crate) excluded: Vec<String>,
}

impl PathRules {
    pub(crate) fn of(options: &crate::Options) -> Self {
        let (extensions, excluded) = (options.extensions.clone(), options.exclude_dirs.clone());
        Self { extensions, excluded }
    }

    /// True if a file of this name is a note.
    pub(crate) fn is_note(&self, name: &str) -> bool {
        name.rsplit_once('.').is_some_and(|(base, extension)| {
            let known = |one: &String| one.eq_ignore_ascii_case(extension);
            !base.is_empty() && self.extensions.iter().any(known)
        })
    }

    /// True if a folder of this name is excluded.
    pub(crate) fn is_excluded(&self, name: &str) -> bool {
        name == crate::folder::STAGING || self.excluded.iter().any(|one| one == name)
    }

    /// Refuses paths in an excluded folder.
    pub(crate) fn admit(&self, path: &NotePath) -> Result<(), Error> {
        match path.names().any(|name| self.is_excluded(name)) {
            true => Err(Error::BadPath {
                path: path.to_string(),
                why: "it is in a folder that is excluded from the vault",
            }),
            false => Ok(()),
        }
    }

    /// Refuses paths that are neither notes nor, below `teams/`, the daemon's own files, whose
    /// names end in `.json`.
    pub(crate) fn admit_kept(&self, path: &NotePath) -> Result<(), Error> {
        let text = path.as_str();
        match text.starts_with(TEAMS) && text.ends_with(".json") {
            true => self.admit(path),
            false => self.admit_note(path),
        }
    }

    /// Refuses paths that are not notes.
    pub(crate) fn admit_note(&self, path: &NotePath) -> Result<(), Error> {
        self.admit(path)?;
        match path.split() {
            Some((_, name)) if self.is_note(name) => Ok(()),
            _ => {
                let extensions: Vec<_> =
                    self.extensions.iter().map(|one| format!("`.{one}`")).collect();
                let extensions = extensions.join(" or ");
                Err(Error::NotANote { path: path.to_string(), extensions })
            }
        }
    }
}

/// URI of a note.
pub(crate) fn note_uri(path: &str) -> String {
    format!("{URI_ROOT}{}", utf8_percent_encode(path, ESCAPED))
}

/// Path in a URI. The vault decides whether it is that of a note.
pub(crate) fn path_of_uri(uri: &str) -> Result<String, ToolError> {
    let bad = |why: &str| ToolError::invalid(format!("`{uri}` {why}"));
    let path = uri.strip_prefix(URI_ROOT).ok_or_else(|| bad("is not vault:///path/to/note.md"))?;
    if path.contains(['?', '#']) {
        return Err(bad("has a query or a fragment"));
    }
    let path = percent_decode_str(path).decode_utf8();
    path.map(Into::into).map_err(|_| bad("is not UTF-8 when it is decoded"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_could_lead_elsewhere_is_refused() {
        for bad in [
            "/etc/passwd",
            "..",
            "../a.md",
            "a/../b.md",
            "a//b.md",
            "a/./b.md",
            "a\0.md",
            "a\nb",
            "a\\..\\b.md",
            "//a",
        ] {
            assert!(NotePath::parse(bad).is_err(), "{bad:?}");
        }
        assert!(NotePath::parse(&"a/".repeat(60)).is_err());
        assert!(NotePath::parse(&"a".repeat(256)).is_err());
        for good in ["a.md", "a/b c/ä.md", "..a/b..md", "a/"] {
            let path = NotePath::parse(good).unwrap();
            assert_eq!(path.as_str(), good.trim_end_matches('/'));
        }
    }

    #[test]
    fn a_note_is_known_by_its_name() {
        let rules = PathRules::of(&crate::Options::default());
        let admit = |text: &str| rules.admit_note(&NotePath::parse(text).unwrap());
        assert!(admit("a/b.md").is_ok() && admit("B.MD").is_ok());
        for no in ["a/b", "a/b.txt", ".md", ".git/a.md", "x/.obsidian/a.md", ".hivekeep/a.md", ""] {
            assert!(admit(no).is_err(), "{no}");
        }
    }

    #[test]
    fn a_member_has_the_folder_of_its_team() {
        assert_eq!(Scope::of_member(None).unwrap(), Scope::whole());
        assert_eq!(Scope::of_member(Some("a-b/x")).unwrap().root().as_str(), "teams/a-b");
        let long = format!("{}/x", "a".repeat(65));
        for bad in
            ["", "a", "a/", "/a", "../x", "a/..", ".git/x", "a/b/c", "-a/x", "a-/x", "a b/x", &long]
        {
            assert_eq!(Scope::of_member(Some(bad)).unwrap_err().code, "invalid_input", "{bad}");
        }
    }

    #[test]
    fn a_uri_is_in_the_standard_form_and_goes_back_to_its_path() {
        assert_eq!(note_uri("a b/100% #1?.md"), "vault:///a%20b/100%25%20%231%3F.md");
        assert_eq!(note_uri("ideen/größe.md"), "vault:///ideen/gr%C3%B6%C3%9Fe.md");
        for bad in ["file:///a.md", "vault://a.md", "vault:///a.md?x", "vault:///a.md#x", "a.md"] {
            assert_eq!(path_of_uri(bad).expect_err(bad).code, "invalid_input");
        }
        assert!(path_of_uri("vault:///%ff.md").is_err(), "not UTF-8");
        // An escaped spelling of the same path.
        assert_eq!(path_of_uri("vault:///%61.md").expect("a path"), "a.md");
    }

    proptest! {
        #[test]
        fn no_path_leaves_its_scope(text in "[a./\\\\ ]{0,12}", root in "[a-c]{1,3}(/[a-c]{1,3}){0,2}") {
            let scope = Scope::below(NotePath::parse(&root).unwrap());
            if let Ok(path) = scope.place(&text) {
                let inside = path.as_str() == root || path.as_str().starts_with(&format!("{root}/"));
                prop_assert!(inside, "{path}");
                prop_assert!(path.names().all(|name| name != ".." && name != "."));
            }
        }

        #[test]
        fn every_path_has_a_uri(given in "\\PC{0,40}") {
            let uri = note_uri(&given);
            prop_assert!(uri.is_ascii() && !uri.contains(' '));
            prop_assert_eq!(path_of_uri(&uri).expect("its own"), given);
        }
    }
}
