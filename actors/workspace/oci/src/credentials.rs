//! Credentials of registries, read from a file in the format of Docker's `config.json`.

use std::{collections::HashMap, fmt, fs::File, io::Read, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::{Error, OciResult};

const FILE_BYTES: u64 = 1 << 20;
/// Key that Docker uses for its own registry.
const DOCKER_KEY: &str = "https://index.docker.io/v1/";

/// User and password for one registry; its text forms do not show them.
#[derive(Clone)]
pub(crate) struct RegistryLogin {
    pub(crate) user: Zeroizing<String>,
    pub(crate) password: Zeroizing<String>,
}

impl fmt::Debug for RegistryLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RegistryLogin(..)")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuthFile {
    #[serde(default)]
    auths: HashMap<String, AuthEntry>,
    #[serde(default)]
    cred_helpers: HashMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Deserialize)]
struct AuthEntry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
}

/// Finds the login for a registry, if the file has one. Blocks.
///
/// # Errors
/// `Credentials` when the file cannot be read, and when it leaves the registry to a helper
/// program: none is run.
pub(crate) fn login_for(file: &Path, registry: &str) -> OciResult<Option<RegistryLogin>> {
    if file.as_os_str().is_empty() {
        return Ok(None);
    }
    let no = |why: &str| Error::Credentials(format!("{}: {why}", file.display()));
    let mut bytes = Zeroizing::new(Vec::new());
    File::open(file)
        .and_then(|file| file.take(FILE_BYTES).read_to_end(&mut bytes))
        .map_err(|error| no(&error.to_string()))?;
    // The parser's own message could quote the file.
    let parsed: AuthFile =
        serde_json::from_slice(&bytes).map_err(|_| no("it is not in the format of config.json"))?;
    let keys = [registry, &format!("https://{registry}"), &format!("https://{registry}/v1/")]
        .map(str::to_owned);
    let docker = (registry == "docker.io").then(|| DOCKER_KEY.to_owned());
    let entry = keys.iter().chain(&docker).find_map(|key| parsed.auths.get(key));
    let helper = parsed.cred_helpers.contains_key(registry) || parsed.creds_store.is_some();
    match entry {
        Some(AuthEntry { auth: Some(auth), .. }) if !auth.is_empty() => {
            decode(auth).map(Some).ok_or_else(|| no("an `auth` is not USER:PASSWORD in base64"))
        }
        Some(AuthEntry { username: Some(user), password: Some(password), .. }) => {
            let (user, password) = (user.clone().into(), password.clone().into());
            Ok(Some(RegistryLogin { user, password }))
        }
        Some(_) if helper => Err(no("it leaves the registry to a helper program; none is run")),
        Some(_) | None => Ok(None),
    }
}

fn decode(auth: &str) -> Option<RegistryLogin> {
    let bytes = Zeroizing::new(STANDARD.decode(auth.trim()).ok()?);
    let (user, password) = std::str::from_utf8(&bytes).ok()?.split_once(':')?;
    let (user, password) = (user.to_owned().into(), password.trim_end_matches('\0').to_owned());
    Some(RegistryLogin { user, password: password.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_found_by_registry_and_never_shown() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let auth = STANDARD.encode("ann:s:cret");
        let text = format!(
            r#"{{"auths": {{"https://index.docker.io/v1/": {{"auth": "{auth}"}},
            "127.0.0.1:5000": {{"username": "bob", "password": "pw"}}, "helped.example": {{}},
            "bad.example": {{"auth": "c2VjcmV0"}}}}, "credsStore": "desktop"}}"#
        );
        std::fs::write(file.path(), text).unwrap();
        let found = |registry: &str| login_for(file.path(), registry);
        let ann = found("docker.io").unwrap().unwrap();
        assert_eq!((ann.user.as_str(), ann.password.as_str()), ("ann", "s:cret"));
        assert!(!format!("{ann:?}").contains("cret"));
        assert_eq!(found("127.0.0.1:5000").unwrap().unwrap().password.as_str(), "pw");
        assert!(found("other.example").unwrap().is_none());
        assert!(found("helped.example").unwrap_err().to_string().contains("helper"));
        let bad = found("bad.example").unwrap_err().to_string();
        assert!(!bad.contains("c2VjcmV0") && !bad.contains("secret"), "{bad}");
        std::fs::write(file.path(), "ann:s:cret").unwrap();
        assert!(!found("docker.io").unwrap_err().to_string().contains("cret"));
    }
}
