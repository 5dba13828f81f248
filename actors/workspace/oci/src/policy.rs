//! Policy of pulls: who may fetch which image.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Error, ImageOptions, ImageSource, OciResult, RegistryRef};

/// Rule that images have to be signed by one of some keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignatureRule {
    /// Images that it is about: `HOST/REPOSITORY`, or the beginning of that and `*`.
    pub images: String,
    /// Files with public keys of cosign (ECDSA on P-256, PEM). One of them has to have signed.
    pub keys: Vec<PathBuf>,
}

impl SignatureRule {
    fn is_about(&self, reference: &RegistryRef) -> bool {
        let name = format!("{}/{}", reference.registry(), reference.repository());
        match self.images.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == self.images,
        }
    }
}

/// Requester of a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// Operator, at the command line: any source.
    Operator,
    /// Tool, for a session: listed registries only, never a path of the host.
    Session,
}

/// Policy of the configuration.
#[derive(Debug, Clone, Copy)]
pub struct ImagePolicy<'a>(pub &'a ImageOptions);

impl<'a> ImagePolicy<'a> {
    /// Judges a pull.
    ///
    /// # Errors
    /// `NotAllowed` with the key that decides.
    pub fn judge(&self, source: &ImageSource, asker: Asker) -> OciResult<()> {
        let refuse = |message: String, key| Err(Error::NotAllowed { message, key });
        if self.0.require_signature && self.signature_rule(source).is_none() {
            let message = format!(
                "workspace.images.require_signature is set, and no rule of \
                 workspace.images.signatures says who has to sign {source}"
            );
            return refuse(message, "workspace.images.require_signature");
        }
        let reference = match (source, asker) {
            (ImageSource::Registry(reference), _) => reference,
            (_, Asker::Operator) => return Ok(()),
            (_, Asker::Session) => {
                let message = "only images of registries can be named here".to_owned();
                return refuse(message, "workspace.images.registries");
            }
        };
        let listed = self.0.registries.iter().any(|it| it == "*" || it == reference.registry());
        if asker == Asker::Session && !listed {
            let registry = reference.registry();
            let message = format!(
                "image {reference} is not here, and registry {registry} is not in \
                 workspace.images.registries, from which tools pull"
            );
            return refuse(message, "workspace.images.registries");
        }
        if self.0.require_digest && reference.digest().is_none() {
            let message = format!("{reference} is not pinned by digest, as the configuration asks");
            return refuse(message, "workspace.images.require_digest");
        }
        Ok(())
    }

    /// Rule by which an image has to be signed. Only images of registries can be.
    pub(crate) fn signature_rule(&self, source: &ImageSource) -> Option<&'a SignatureRule> {
        let ImageSource::Registry(reference) = source else { return None };
        self.0.signatures.iter().find(|rule| rule.is_about(reference))
    }

    /// True for registries that are asked without TLS.
    pub(crate) fn plain_http(&self, host: &str) -> bool {
        self.0.plain_http.iter().any(|listed| listed == host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_pull_from_listed_registries_and_operators_from_anywhere() {
        let tagged = ImageSource::parse("ghcr.io/a/b:1").unwrap();
        let pinned = ImageSource::parse(&format!("ghcr.io/a/b@sha256:{}", "0".repeat(64))).unwrap();
        let folder = ImageSource::parse("oci:/a").unwrap();
        let key = |options: &ImageOptions, source: &ImageSource, asker| match ImagePolicy(options)
            .judge(source, asker)
        {
            Ok(()) => None,
            Err(Error::NotAllowed { key, .. }) => Some(key.rsplit('.').next().unwrap()),
            Err(other) => panic!("{other}"),
        };
        let mut options = ImageOptions::default();
        assert_eq!(key(&options, &tagged, Asker::Operator), None);
        assert_eq!(key(&options, &tagged, Asker::Session), Some("registries"));
        options.registries = vec!["ghcr.io".to_owned()];
        assert_eq!(key(&options, &tagged, Asker::Session), None);
        assert_eq!(key(&options, &folder, Asker::Session), Some("registries"));
        assert_eq!(key(&options, &folder, Asker::Operator), None);
        options.require_digest = true;
        assert_eq!(key(&options, &tagged, Asker::Operator), Some("require_digest"));
        assert_eq!(key(&options, &pinned, Asker::Session), None);
        options.require_signature = true;
        let rule = |images: &str| SignatureRule { images: images.to_owned(), keys: Vec::new() };
        for other in ["ghcr.io/a", "ghcr.io/a/bc", "docker.io/*", "a/b"] {
            options.signatures.push(rule(other));
        }
        assert_eq!(key(&options, &pinned, Asker::Operator), Some("require_signature"));
        for ours in ["ghcr.io/a/b", "ghcr.io/a/*", "*"] {
            options.signatures = vec![rule(ours)];
            assert_eq!(key(&options, &pinned, Asker::Session), None);
            assert_eq!(key(&options, &folder, Asker::Operator), Some("require_signature"));
        }
    }
}
