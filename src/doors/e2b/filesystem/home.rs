//! Paths as the SDKs write them: absolute, or below the home of the user.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use moka::sync::Cache;
use serde::Deserialize;
use serde_json::json;

use crate::doors::e2b::{
    error::{E2bError, Kind},
    state::E2b,
    target::Target,
};

/// Homes that are remembered.
const MOST: u64 = 4_096;
/// Bytes of `/etc/passwd` that are looked at.
const PASSWD_BYTES: u64 = 256 * 1024;

/// Homes by sandbox and user.
pub(in super::super) struct Homes(Cache<(String, String), String>);

impl Default for Homes {
    fn default() -> Self {
        Self(Cache::new(MOST))
    }
}

impl Homes {
    fn known(&self, target: &Target) -> Option<String> {
        self.0.get(&(target.id.clone(), target.user.clone()))
    }

    fn remember(&self, target: &Target, home: String) {
        self.0.insert((target.id.clone(), target.user.clone()), home);
    }
}

/// The home of a user by a `passwd` file.
fn home(passwd: &str, user: &str) -> Option<String> {
    let fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut rows = fields.filter(|fields| fields.len() == 7 && fields[0] == user);
    rows.next().map(|fields| fields[5].to_owned()).filter(|home| home.starts_with('/'))
}

/// A path without `.`, `..` and empty parts. It begins with a slash.
fn plain(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// A link's target from where the link is.
pub(super) fn beside(path: &str, target: &str) -> String {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    match target.starts_with('/') {
        true => plain(target),
        false => plain(&format!("{folder}/{target}")),
    }
}

#[derive(Debug, Deserialize)]
struct Read {
    content_base64: String,
}

impl E2b {
    /// The absolute path that a client means.
    ///
    /// # Errors
    /// For a user without a home, and those of reading who has which.
    pub(in super::super) async fn absolute(
        &self,
        target: &Target,
        path: &str,
    ) -> Result<String, E2bError> {
        let below = match path.strip_prefix("~/") {
            _ if path.starts_with('/') => return Ok(plain(path)),
            Some(below) => below,
            None if path == "~" => "",
            None => path,
        };
        let home = match self.homes.known(target) {
            Some(home) => home,
            None => self.home(target).await?,
        };
        Ok(plain(&format!("{home}/{below}")))
    }

    async fn home(&self, target: &Target) -> Result<String, E2bError> {
        let asked = json!({
            "place": target.clone().with_user("root".to_owned()).place("/"),
            "path": "/etc/passwd", "max_bytes": PASSWD_BYTES,
        });
        let Read { content_base64 } = self.ask(&target.owner, "fs.get", asked).await?;
        let bytes = STANDARD.decode(content_base64).unwrap_or_default();
        let none = || {
            let why = format!("the sandbox has no user `{}` with a home", target.user);
            E2bError::new(Kind::Unauthenticated, why)
        };
        let home = home(&String::from_utf8_lossy(&bytes), &target.user).ok_or_else(none)?;
        self.homes.remember(target, home.clone());
        Ok(home)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_plain() {
        for (path, made) in [
            ("/", "/"),
            ("/a//b/./c", "/a/b/c"),
            ("/a/../../b", "/b"),
            ("/a/b/", "/a/b"),
            ("", "/"),
        ] {
            assert_eq!(plain(path), made, "{path}");
        }
        assert_eq!(beside("/a/link", "file"), "/a/file");
        assert_eq!(beside("/a/link", "../x"), "/x");
        assert_eq!(beside("/a/link", "/x"), "/x");
        assert_eq!(beside("/link", "x"), "/x");
    }

    #[test]
    fn a_home_is_the_users_own() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:1:1::/h/ann:/bin/sh\nbob:x:2:2::x:\n";
        assert_eq!(home(passwd, "ann").as_deref(), Some("/h/ann"));
        assert_eq!(home(passwd, "root").as_deref(), Some("/root"));
        assert_eq!(home(passwd, "bob"), None);
        assert_eq!(home(passwd, "nobody"), None);
    }
}
