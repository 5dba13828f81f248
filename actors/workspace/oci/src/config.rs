//! Image configuration: what commands of a workspace begin with, and what the layers must be.

use std::collections::BTreeMap;

use hivekeep_image::ImageDefaults;
use oci_spec::image::{Arch, ImageConfiguration, Os};

use crate::{Error, OciResult, Sha256Digest};

/// Maximum size of names and values of the environment together; they travel with every command.
const ENV_BYTES: usize = 128 << 10;
/// Maximum size of the entry point and the command together, what a system takes in one argument.
const LINE_BYTES: usize = 128 << 10;
/// Maximum number of variables, half of what a command may have.
const ENV_COUNT: usize = 256;

/// Configuration of an image for this platform.
#[derive(Debug)]
pub(crate) struct PlatformConfig {
    pub(crate) defaults: ImageDefaults,
    /// Digests of the layers as archives, lowest first.
    pub(crate) diff_ids: Vec<Sha256Digest>,
}

impl PlatformConfig {
    /// Reads and checks a configuration.
    pub(crate) fn parse(bytes: &[u8]) -> OciResult<Self> {
        let config: ImageConfiguration = serde_json::from_slice(bytes)
            .map_err(|error| Error::unsupported(format!("its configuration: {error}")))?;
        let (os, arch) = (config.os(), config.architecture());
        if (os, arch) != (&Os::Linux, &Arch::Amd64) {
            return Err(Error::unsupported(format!("it is for {os}/{arch}, not linux/amd64")));
        }
        if config.rootfs().typ() != "layers" {
            return Err(Error::unsupported("its root file system is not made of layers"));
        }
        let diff_ids =
            config.rootfs().diff_ids().iter().map(|id| id.parse()).collect::<OciResult<_>>()?;
        Ok(Self { defaults: defaults(&config)?, diff_ids })
    }
}

fn defaults(config: &ImageConfiguration) -> OciResult<ImageDefaults> {
    let Some(run) = config.config() else { return Ok(ImageDefaults::default()) };
    let empty_is_none = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let mut env = BTreeMap::new();
    for pair in run.env().iter().flatten() {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if name.is_empty() || pair.contains('\0') {
            return Err(Error::unsupported("a variable of its environment has no valid name"));
        }
        env.insert(name.to_owned(), value.to_owned());
    }
    let bytes: usize = env.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > ENV_BYTES {
        let what = "the environment in bytes";
        return Err(Error::TooLarge { what, key: "environment", limit: ENV_BYTES as u64 });
    }
    if env.len() > ENV_COUNT {
        let what = "variables of the environment";
        return Err(Error::TooLarge { what, key: "environment", limit: ENV_COUNT as u64 });
    }
    let working_dir = empty_is_none(run.working_dir());
    if working_dir.as_ref().is_some_and(|dir| !dir.starts_with('/') || dir.contains('\0')) {
        return Err(Error::unsupported("its working directory is not an absolute path"));
    }
    let words = [run.entrypoint(), run.cmd()].map(|words| words.clone().unwrap_or_default());
    if words.iter().flatten().map(String::len).sum::<usize>() > LINE_BYTES {
        let what = "the entry point and the command in bytes";
        return Err(Error::TooLarge { what, key: "entrypoint", limit: LINE_BYTES as u64 });
    }
    let [entrypoint, command] = words;
    Ok(ImageDefaults {
        env,
        user: empty_is_none(run.user()),
        user_applies: true,
        working_dir,
        entrypoint,
        command,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(os: &str, run: &str) -> OciResult<PlatformConfig> {
        let text = format!(
            r#"{{"os": "{os}", "architecture": "amd64", "config": {run},
            "rootfs": {{"type": "layers", "diff_ids": ["{}"]}}}}"#,
            Sha256Digest::of(b"")
        );
        PlatformConfig::parse(text.as_bytes())
    }

    #[test]
    fn what_a_container_would_begin_with_is_kept() {
        let run = r#"{"Env": ["PATH=/a:/b", "E=", "K=v=w"], "User": "app", "WorkingDir": "/srv",
            "Entrypoint": ["/e"], "Cmd": ["c", "d"], "Labels": null, "Volumes": null,
            "ExposedPorts": null}"#;
        let config = parse("linux", run).unwrap();
        let defaults = config.defaults;
        assert_eq!(defaults.env["PATH"], "/a:/b");
        assert_eq!((defaults.env["E"].as_str(), defaults.env["K"].as_str()), ("", "v=w"));
        assert_eq!(defaults.user.as_deref(), Some("app"));
        assert_eq!(defaults.working_dir.as_deref(), Some("/srv"));
        assert_eq!((defaults.entrypoint, defaults.command.len()), (vec!["/e".to_owned()], 2));
        assert_eq!(config.diff_ids, [Sha256Digest::of(b"")]);
    }

    #[test]
    fn what_cannot_run_here_is_refused() {
        let other = parse("windows", "{}").unwrap_err();
        assert!(other.to_string().contains("windows/amd64"), "{other}");
        assert!(parse("linux", r#"{"WorkingDir": "srv"}"#).is_err());
        assert!(parse("linux", r#"{"Env": ["=x"]}"#).is_err());
        let many = format!(r#"{{"Env": ["A={}"]}}"#, "x".repeat(ENV_BYTES));
        assert!(matches!(parse("linux", &many), Err(Error::TooLarge { .. })));
        let long = format!(r#"{{"Entrypoint": ["/e"], "Cmd": ["{}"]}}"#, "x".repeat(LINE_BYTES));
        assert!(matches!(parse("linux", &long), Err(Error::TooLarge { key: "entrypoint", .. })));
    }
}
