//! Manifests, indexes and configurations: from a document to the layers for this platform, and to what commands
//! of a workspace begin with.

use std::collections::BTreeMap;

use hivekeep_image::ImageDefaults;
use oci_spec::image::{
    Arch, Descriptor, ImageConfiguration, ImageIndex, ImageManifest, MediaType, Os,
};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::layer::LayerPacking;
use crate::options::DOCUMENT_BYTES;
use crate::{Error, OciResult, PullLimits, Sha256Digest};

/// Media types that registries are asked for.
pub(crate) const ACCEPT: &str = "application/vnd.oci.image.manifest.v1+json, \
     application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, \
     application/vnd.docker.distribution.manifest.list.v2+json";

/// Blob of an image: where its bytes are, and what they must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlobRef {
    pub(crate) digest: Sha256Digest,
    pub(crate) bytes: u64,
}

impl BlobRef {
    pub(crate) fn of(descriptor: &Descriptor) -> OciResult<Self> {
        let digest = descriptor.digest().to_string().parse()?;
        Ok(Self { digest, bytes: descriptor.size() })
    }

    /// Blob that is held in memory, and bounded by [`DOCUMENT_BYTES`].
    pub(crate) fn document(descriptor: &Descriptor) -> OciResult<Self> {
        let blob = Self::of(descriptor)?;
        if blob.bytes > DOCUMENT_BYTES {
            let what = "a manifest or configuration in bytes";
            return Err(Error::TooLarge { what, key: "document_bytes", limit: DOCUMENT_BYTES });
        }
        Ok(blob)
    }
}

/// Manifest of one platform.
#[derive(Debug)]
pub(crate) struct PlatformManifest {
    pub(crate) config: BlobRef,
    /// Layers, lowest first.
    pub(crate) layers: Vec<(BlobRef, LayerPacking)>,
}

/// Form of a document: an index or a manifest.
#[derive(Debug)]
pub(crate) enum ManifestForm {
    /// An index: the blob that is for this platform.
    Chosen(BlobRef),
    /// A manifest.
    Manifest(PlatformManifest),
}

/// Members that tell an index from a manifest. A document that has both is read differently by different
/// programs (CVE-2021-41190).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shape {
    schema_version: u32,
    manifests: Option<IgnoredAny>,
    layers: Option<IgnoredAny>,
}

/// Reads a document that was checked by its digest.
pub(crate) fn read(bytes: &[u8], limits: &PullLimits) -> OciResult<ManifestForm> {
    let bad = |error: serde_json::Error| Error::unsupported(format!("its manifest: {error}"));
    let shape: Shape = serde_json::from_slice(bytes).map_err(bad)?;
    if shape.schema_version != 2 {
        return Err(Error::unsupported(format!("manifest schema {}", shape.schema_version)));
    }
    match (shape.manifests, shape.layers) {
        (Some(_), None) => choose(&serde_json::from_slice(bytes).map_err(bad)?),
        (None, Some(_)) => manifest(&serde_json::from_slice(bytes).map_err(bad)?, limits),
        _ => Err(Error::unsupported("its manifest is neither one image's nor an index")),
    }
}

fn choose(index: &ImageIndex) -> OciResult<ManifestForm> {
    let ours = index.manifests().iter().find(|entry| {
        entry.platform().as_ref().is_some_and(|platform| {
            (platform.os(), platform.architecture()) == (&Os::Linux, &Arch::Amd64)
        })
    });
    // An index of one image may leave the platform out; the configuration is checked anyway.
    let only = || match index.manifests().as_slice() {
        [one] if one.platform().is_none() => Some(one),
        _ => None,
    };
    let chosen = ours.or_else(only);
    let chosen = chosen.ok_or_else(|| Error::unsupported("its index has none for linux/amd64"))?;
    BlobRef::document(chosen).map(ManifestForm::Chosen)
}

fn manifest(manifest: &ImageManifest, limits: &PullLimits) -> OciResult<ManifestForm> {
    let layers = manifest.layers();
    if layers.len() > limits.layers {
        let limit = limits.layers as u64;
        return Err(Error::TooLarge { what: "layers", key: "workspace.images.max_layers", limit });
    }
    let layers = layers
        .iter()
        .map(|layer| Ok((BlobRef::of(layer)?, packing(layer.media_type())?)))
        .collect::<OciResult<Vec<_>>>()?;
    let bytes = layers.iter().fold(0u64, |sum, (blob, _)| sum.saturating_add(blob.bytes));
    check_compressed(bytes, limits)?;
    Ok(ManifestForm::Manifest(PlatformManifest {
        config: BlobRef::document(manifest.config())?,
        layers,
    }))
}

/// Checks the sum of the layers' bytes as they are stored.
pub(crate) fn check_compressed(bytes: u64, limits: &PullLimits) -> OciResult<()> {
    if bytes <= limits.compressed_bytes {
        return Ok(());
    }
    let (what, key) = ("the layers in bytes", "workspace.images.max_compressed_mb");
    Err(Error::TooLarge { what, key, limit: limits.compressed_bytes })
}

fn packing(media_type: &MediaType) -> OciResult<LayerPacking> {
    match media_type.as_ref() {
        "application/vnd.oci.image.layer.v1.tar"
        | "application/vnd.docker.image.rootfs.diff.tar" => Ok(LayerPacking::Plain),
        "application/vnd.oci.image.layer.v1.tar+gzip"
        | "application/vnd.docker.image.rootfs.diff.tar.gzip" => Ok(LayerPacking::Gzip),
        "application/vnd.oci.image.layer.v1.tar+zstd"
        | "application/vnd.docker.image.rootfs.diff.tar.zstd" => Ok(LayerPacking::Zstd),
        other => Err(Error::unsupported(format!("layers of the media type {other:.120?}"))),
    }
}

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
    use serde_json::{Value, json};

    use super::*;
    use crate::ImageOptions;

    fn of(value: &Value) -> OciResult<ManifestForm> {
        let limits = ImageOptions { max_layers: 3, max_compressed_mb: 1, ..Default::default() };
        read(value.to_string().as_bytes(), &limits.limits())
    }

    fn blob(media_type: &str, size: u64) -> Value {
        json!({ "mediaType": media_type, "digest": Sha256Digest::of(b"x").to_string(), "size": size })
    }

    fn image(layers: &[Value]) -> Value {
        let config = blob("application/vnd.oci.image.config.v1+json", 2);
        json!({ "schemaVersion": 2, "config": config, "layers": layers })
    }

    #[test]
    fn layers_of_each_packing_and_what_exceeds_a_limit() {
        let gzip = blob("application/vnd.docker.image.rootfs.diff.tar.gzip", 5);
        let zstd = blob("application/vnd.oci.image.layer.v1.tar+zstd", 6);
        let plain = blob("application/vnd.oci.image.layer.v1.tar", 7);
        let ManifestForm::Manifest(read) = of(&image(&[gzip.clone(), zstd, plain])).unwrap() else {
            panic!("no manifest");
        };
        let packings: Vec<_> = read.layers.iter().map(|(_, packing)| *packing).collect();
        assert_eq!(packings, [LayerPacking::Gzip, LayerPacking::Zstd, LayerPacking::Plain]);
        let foreign = blob("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", 1);
        assert!(matches!(of(&image(&[foreign])), Err(Error::Unsupported(_))));
        let many = vec![gzip; 4];
        assert!(matches!(of(&image(&many)), Err(Error::TooLarge { what: "layers", .. })));
        for size in [2 << 20, u64::from(u32::MAX) << 31] {
            let big = vec![blob("application/vnd.oci.image.layer.v1.tar", size); 2];
            assert!(matches!(of(&image(&big)), Err(Error::TooLarge { .. })), "{size}");
        }
        let mut config = image(&[]);
        config["config"]["size"] = json!(DOCUMENT_BYTES + 1);
        assert!(matches!(of(&config), Err(Error::TooLarge { .. })));
    }

    #[test]
    fn an_index_gives_what_is_for_this_platform_and_no_document_is_both() {
        let entry = |arch: &str, size: u64| {
            let mut entry = blob("application/vnd.oci.image.manifest.v1+json", size);
            entry["platform"] = json!({ "os": "linux", "architecture": arch });
            entry
        };
        let index = |entries: &[Value]| json!({ "schemaVersion": 2, "manifests": entries });
        let both =
            of(&index(&[entry("arm64", 1), entry("amd64", 2), entry("unknown", 3)])).unwrap();
        assert!(matches!(both, ManifestForm::Chosen(BlobRef { bytes: 2, .. })), "{both:?}");
        assert!(of(&index(&[entry("arm64", 1)])).is_err());
        let mut two = image(&[]);
        two["manifests"] = json!([entry("amd64", 2)]);
        assert!(matches!(of(&two), Err(Error::Unsupported(_))));
        assert!(of(&json!({ "schemaVersion": 1, "layers": [] })).is_err());
    }

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
