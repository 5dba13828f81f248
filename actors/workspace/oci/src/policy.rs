//! Policy of pulls: who may fetch which image.

use crate::{Error, ImageOptions, ImageSource, OciResult};

/// Who asks for a pull.
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

impl ImagePolicy<'_> {
    /// Judges a pull.
    ///
    /// # Errors
    /// `NotAllowed` with the key that decides.
    pub fn judge(&self, source: &ImageSource, asker: Asker) -> OciResult<()> {
        let refuse = |message: String, key| Err(Error::NotAllowed { message, key });
        if self.0.require_signature {
            let message = "signatures are required, and this version cannot verify them: nothing \
                           is pulled while workspace.images.require_signature is set";
            return refuse(message.to_owned(), "workspace.images.require_signature");
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
        assert_eq!(key(&options, &pinned, Asker::Operator), Some("require_signature"));
    }
}
