//! Flavours of images that are made from Debian's packages: what each has on top of the minimal system.

/// Folders left out of every package, now and when the workspace installs more.
pub(super) const LEFT_OUT: [&str; 4] = ["man", "doc", "locale", "info"];

/// Additions of an image to the minimal system.
pub(super) struct Flavour {
    /// Packages.
    pub(super) include: &'static str,
    /// Additional files, in folders that the packages have: path, permissions, content.
    pub(super) files: &'static [(&'static str, u32, &'static str)],
    /// Whether the folder of workspaces is the user's, and not root's.
    pub(super) users_workspace: bool,
}

/// Flavour of the image `debian`.
pub(super) const PLAIN: Flavour =
    Flavour { include: "git,ca-certificates,procps", files: &[], users_workspace: false };

impl Flavour {
    /// Everything that decides the content, as text.
    pub(super) fn recipe(&self) -> String {
        let files: String = self
            .files
            .iter()
            .map(|(path, mode, text)| format!("\n{path} {mode:o}\n{text}"))
            .collect();
        let owned = if self.users_workspace { "\nowned" } else { "" };
        format!("{} -{}{files}{owned}", self.include, LEFT_OUT.join("-"))
    }
}
