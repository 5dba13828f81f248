//! Detached signatures of cosign, verified by public keys: who signed the manifest that is pulled.
//!
//! A signature is a layer of the image `REPOSITORY:sha256-<digits>.sig`: the layer is the signed
//! payload, a document that names a repository and a manifest's digest, and its annotation is the
//! signature. Both come from the registry, which is not trusted; the keys are the operator's.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use oci_spec::image::{Descriptor, ImageManifest};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use serde::Deserialize;
use tokio_rustls::rustls::pki_types::SubjectPublicKeyInfoDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

use crate::manifest::BlobRef;
use crate::options::SignatureRule;
use crate::source::RegistryClient;
use crate::{Error, OciResult, RegistryRef, Sha256Digest};

/// Annotation of a layer with the signature of the layer in base64.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// Media type of a layer that is a payload.
const PAYLOAD_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// `type` of a payload.
const PAYLOAD_KIND: &str = "cosign container image signature";
const PAYLOAD_BYTES: u64 = 64 << 10;
/// Maximum number of signatures that are looked at.
const MAX_SIGNATURES: usize = 32;
const KEY_BYTES: u64 = 16 << 10;
/// DER of a public key on the curve P-256 up to its point, which has 65 bytes and is not compressed
/// (RFC 5480).
const P256_HEAD: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
const POINT_BYTES: usize = 65;

/// Public key on the curve P-256.
struct SigningKey([u8; POINT_BYTES]);

impl SigningKey {
    /// Reads a PEM file. Blocks.
    fn read(path: &Path) -> OciResult<Self> {
        let no = |why: &str| Error::SigningKey(format!("{}: {why}", path.display()));
        let mut pem = Vec::new();
        File::open(path)
            .and_then(|file| file.take(KEY_BYTES).read_to_end(&mut pem))
            .map_err(|error| no(&error.to_string()))?;
        Self::of_pem(&pem).ok_or_else(|| no("it is not a public key on the curve P-256 in PEM"))
    }

    fn of_pem(pem: &[u8]) -> Option<Self> {
        let key = SubjectPublicKeyInfoDer::from_pem_slice(pem).ok()?;
        let point = key.as_ref().strip_prefix(P256_HEAD.as_slice())?;
        point.try_into().ok().map(Self)
    }

    fn signed(&self, payload: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, self.0).verify(payload, signature).is_ok()
    }
}

#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    identity: Identity,
    image: SignedImage,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Identity {
    #[serde(rename = "docker-reference")]
    docker_reference: String,
}

#[derive(Deserialize)]
struct SignedImage {
    #[serde(rename = "docker-manifest-digest")]
    docker_manifest_digest: String,
}

/// Checks that one of a rule's keys signed the manifest or index that was fetched.
///
/// # Errors
/// `Unsigned` with what is missing; `SigningKey` for a key that cannot be read.
pub(crate) async fn verify(
    client: &RegistryClient<'_>,
    rule: &SignatureRule,
    digest: Sha256Digest,
) -> OciResult<()> {
    let files = rule.keys.clone();
    let read = move || files.iter().map(|key| SigningKey::read(key)).collect::<OciResult<Vec<_>>>();
    let keys = tokio::task::spawn_blocking(read).await;
    let keys = keys.map_err(|panic| Error::SigningKey(panic.to_string()))??;
    let (reference, version) = (client.reference(), format!("sha256-{}.sig", digest.hex()));
    let unsigned = |reason: String| Error::Unsigned { reference: reference.to_string(), reason };
    let bytes = match client.manifest(&version).await {
        Err(Error::NotFound { .. }) => {
            return Err(unsigned(format!("its repository has no signatures, no tag {version}")));
        }
        bytes => bytes?,
    };
    let manifest: ImageManifest = serde_json::from_slice(&bytes)
        .map_err(|error| unsigned(format!("the manifest of its signatures: {error}")))?;
    let mut refused = None;
    for layer in manifest.layers().iter().take(MAX_SIGNATURES) {
        match judge(client, layer, &keys, digest).await? {
            Judged::Signed => return Ok(()),
            Judged::OfOther(what) => refused = Some(what),
            Judged::Unknown => {}
        }
    }
    Err(unsigned(refused.unwrap_or_else(|| {
        let count = manifest.layers().len().min(MAX_SIGNATURES);
        let keys = rule.keys.iter().map(|key| key.display().to_string()).collect::<Vec<_>>();
        format!(
            "none of its {count} signatures is by a key of {:?}: {}",
            rule.images,
            keys.join(", ")
        )
    })))
}

enum Judged {
    Signed,
    /// Signature of a key, for something else.
    OfOther(String),
    /// No signature of a key.
    Unknown,
}

async fn judge(
    client: &RegistryClient<'_>,
    layer: &Descriptor,
    keys: &[SigningKey],
    digest: Sha256Digest,
) -> OciResult<Judged> {
    let signature = layer.annotations().as_ref().and_then(|all| all.get(SIGNATURE));
    let signature = signature.and_then(|text| STANDARD.decode(text).ok());
    let (Some(signature), PAYLOAD_TYPE) = (signature, layer.media_type().as_ref()) else {
        return Ok(Judged::Unknown);
    };
    let blob = BlobRef::of(layer)?;
    if blob.bytes > PAYLOAD_BYTES {
        return Ok(Judged::Unknown);
    }
    let payload = client.document(&blob.digest).await?;
    Sha256Digest::of(&payload).expect(blob.digest, "the payload of a signature")?;
    if !keys.iter().any(|key| key.signed(&payload, &signature)) {
        return Ok(Judged::Unknown);
    }
    Ok(match mismatch(&payload, client.reference(), digest) {
        Some(what) => Judged::OfOther(what),
        None => Judged::Signed,
    })
}

/// First statement of a signed payload that is not of this image.
fn mismatch(payload: &[u8], reference: &RegistryRef, digest: Sha256Digest) -> Option<String> {
    let Ok(Payload { critical }) = serde_json::from_slice::<Payload>(payload) else {
        return Some("its signature is of something that is not a payload of cosign".to_owned());
    };
    if critical.kind != PAYLOAD_KIND {
        return Some(format!("its signature is of the type {:.80?}", critical.kind));
    }
    let signed = critical.image.docker_manifest_digest;
    if signed != digest.to_string() {
        return Some(format!("its signature is of the image {signed:.80}, not of {digest}"));
    }
    let name = critical.identity.docker_reference;
    let same = RegistryRef::parse(&name).is_ok_and(|signed| {
        (signed.registry(), signed.repository()) == (reference.registry(), reference.repository())
    });
    (!same).then(|| format!("its signature is of the repository {name:.240}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(name: &str, digest: &str, kind: &str) -> String {
        format!(
            r#"{{"critical":{{"identity":{{"docker-reference":"{name}"}},"image":
            {{"docker-manifest-digest":"{digest}"}},"type":"{kind}"}},"optional":null}}"#
        )
    }

    #[test]
    fn a_payload_is_of_one_repository_and_one_digest() {
        let (digest, other) = (Sha256Digest::of(b"a"), Sha256Digest::of(b"b"));
        let hub = RegistryRef::parse("docker.io/library/app:1").unwrap();
        let wrong = |name: &str, digest: Sha256Digest, kind: &str, of: Sha256Digest| {
            mismatch(payload(name, &of.to_string(), kind).as_bytes(), &hub, digest)
        };
        for same in ["docker.io/library/app", "index.docker.io/library/app", "docker.io/app:2"] {
            assert_eq!(wrong(same, digest, PAYLOAD_KIND, digest), None, "{same}");
        }
        for name in ["docker.io/library/app2", "evil.example/library/app", "app", ""] {
            assert!(wrong(name, digest, PAYLOAD_KIND, digest).unwrap().contains("repository"));
        }
        assert!(wrong("docker.io/app", digest, PAYLOAD_KIND, other).unwrap().contains("not of"));
        assert!(wrong("docker.io/app", digest, "other", digest).unwrap().contains("type"));
        // Two members of one name are read differently by different programs.
        let good = payload("docker.io/app", &digest.to_string(), PAYLOAD_KIND);
        let twice = good.replacen(
            "\"image\":",
            "\"image\":{\"docker-manifest-digest\":\"x\"},\"image\":",
            1,
        );
        assert!(mismatch(twice.as_bytes(), &hub, digest).is_some());
        assert!(mismatch(b"{}", &hub, digest).is_some());
    }

    #[test]
    fn only_keys_of_the_curve_are_read() {
        for bad in ["", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"] {
            assert!(SigningKey::of_pem(bad.as_bytes()).is_none());
        }
    }
}
