//! Sources of images: each gives a checked manifest and configuration, and the layers as files.

mod local;
mod registry;

use std::sync::Arc;

use hivekeep_image::ImageDefaults;
use tokio_util::sync::CancellationToken;

pub(crate) use registry::RegistryClient;

use crate::manifest::{self, BlobRef, ManifestForm, PlatformConfig, PlatformManifest};
use crate::options::{DOCUMENT_BYTES, ImagePolicy, SignatureRule};
use crate::signature;
use crate::{ImageSource, LayerFile, OciResult, PullLimits, Sha256Digest};
use local::{DockerArchive, OciLayout};

/// Image fetched from a source.
pub(crate) struct FetchedImage {
    /// Digest of the manifest; an archive of Docker has none.
    pub(crate) digest: Option<Sha256Digest>,
    pub(crate) defaults: ImageDefaults,
    /// Layers, lowest first.
    pub(crate) layers: Vec<LayerFile>,
}

/// Parameters of a fetch.
pub(crate) struct FetchTerms<'a> {
    pub(crate) policy: ImagePolicy<'a>,
    pub(crate) limits: PullLimits,
    /// Folder for what is downloaded.
    pub(crate) work: &'a std::path::Path,
    pub(crate) cancel: &'a CancellationToken,
    /// Callback with the bytes that are there and the bytes that there will be.
    pub(crate) tell: &'a (dyn Fn(u64, u64) + Send + Sync),
}

/// Fetches an image.
pub(crate) async fn fetch(source: &ImageSource, terms: &FetchTerms<'_>) -> OciResult<FetchedImage> {
    match source {
        ImageSource::Registry(reference) => {
            let client = RegistryClient::open(reference, terms)?;
            let rule = terms.policy.signature_rule(source);
            fetch_from(&Store::Registry(Box::new(client), rule), terms).await
        }
        ImageSource::Layout { path, tag } => {
            let layout = OciLayout::open(path, tag.as_deref())?;
            fetch_from(&Store::Layout(Arc::new(layout)), terms).await
        }
        ImageSource::Archive(path) => DockerArchive::open(path)?.image(&terms.limits),
    }
}

/// Place where manifests and blobs are found by their digests.
enum Store<'a> {
    /// Client, and the rule by which its images have to be signed.
    Registry(Box<RegistryClient<'a>>, Option<&'a SignatureRule>),
    Layout(Arc<OciLayout>),
}

impl Store<'_> {
    /// Document that the reference names, with its digest; signed, where it has to be.
    async fn top(&self) -> OciResult<(Vec<u8>, Sha256Digest)> {
        match self {
            Self::Registry(client, rule) => {
                let (bytes, digest) = client.top().await?;
                if let Some(rule) = rule {
                    signature::verify(client, rule, digest).await?;
                }
                Ok((bytes, digest))
            }
            Self::Layout(layout) => layout.top(),
        }
    }

    async fn document(&self, blob: BlobRef, is_manifest: bool) -> OciResult<Vec<u8>> {
        let bytes = match self {
            Self::Registry(client, _) if is_manifest => {
                client.manifest(&blob.digest.to_string()).await
            }
            Self::Registry(client, _) => client.document(&blob.digest).await,
            Self::Layout(layout) => layout.document(&blob.digest, DOCUMENT_BYTES),
        }?;
        Sha256Digest::of(&bytes).expect(blob.digest, "a manifest or configuration")?;
        Ok(bytes)
    }
}

async fn fetch_from(store: &Store<'_>, terms: &FetchTerms<'_>) -> OciResult<FetchedImage> {
    let (bytes, digest) = store.top().await?;
    let (manifest, digest) = match manifest::read(&bytes, &terms.limits)? {
        ManifestForm::Manifest(manifest) => (manifest, digest),
        ManifestForm::Chosen(blob) => {
            let bytes = store.document(blob, true).await?;
            match manifest::read(&bytes, &terms.limits)? {
                // The index names all that is in it by digest, so its own digest pins the image.
                ManifestForm::Manifest(manifest) => (manifest, digest),
                ManifestForm::Chosen(_) => {
                    return Err(crate::Error::unsupported("its index leads to an index"));
                }
            }
        }
    };
    let config = PlatformConfig::parse(&store.document(manifest.config, false).await?)?;
    if config.diff_ids.len() != manifest.layers.len() {
        return Err(crate::Error::unsupported("its manifest and configuration differ in layers"));
    }
    let layers = layers(store, &manifest, config.diff_ids, terms).await?;
    Ok(FetchedImage { digest: Some(digest), defaults: config.defaults, layers })
}

async fn layers(
    store: &Store<'_>,
    manifest: &PlatformManifest,
    diff_ids: Vec<Sha256Digest>,
    terms: &FetchTerms<'_>,
) -> OciResult<Vec<LayerFile>> {
    let total = manifest.layers.iter().map(|(blob, _)| blob.bytes).sum();
    let mut done = 0;
    let mut layers = Vec::new();
    for ((blob, packing), diff_id) in manifest.layers.iter().zip(diff_ids) {
        let file = match store {
            Store::Registry(client, _) => {
                client.download(*blob, &|bytes| (terms.tell)(done + bytes, total)).await?
            }
            Store::Layout(layout) => {
                let (layout, blob, cancel) = (layout.clone(), *blob, terms.cancel.clone());
                let checked = tokio::task::spawn_blocking(move || layout.blob(blob, &cancel));
                checked.await.map_err(|_| crate::Error::Cancelled)??
            }
        };
        done += blob.bytes;
        (terms.tell)(done, total);
        layers.push(LayerFile { file, offset: 0, bytes: blob.bytes, packing: *packing, diff_id });
    }
    Ok(layers)
}

#[cfg(test)]
mod tests;
