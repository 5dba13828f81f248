//! Image references: a repository of a registry, a layout folder, an archive.

use std::{fmt, path::PathBuf};

use oci_spec::distribution::Reference;

use crate::{Error, OciResult, Sha256Digest};

/// Maximum length of a reference; its image is kept under it as a file name.
const MAX_BYTES: usize = 240;

/// Place that an image comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageSource {
    /// Repository of a registry.
    Registry(RegistryRef),
    /// Folder in the OCI image layout, and the tag in it; without a tag its only image.
    Layout {
        /// Path of the folder, as it was given.
        path: PathBuf,
        /// Tag behind the path; `None` for the only image of the folder.
        tag: Option<String>,
    },
    /// File that `docker save` wrote.
    Archive(PathBuf),
}

impl ImageSource {
    /// Parses what the command line takes: `oci:PATH[:TAG]`, `docker-archive:PATH`, or a
    /// reference to a registry.
    ///
    /// # Errors
    /// `Reference`.
    pub fn parse(text: &str) -> OciResult<Self> {
        if let Some(rest) = text.strip_prefix("oci:") {
            let (path, tag) = match rest.rsplit_once(':') {
                Some((path, tag)) if !tag.contains('/') => (path, Some(tag.to_owned())),
                _ => (rest, None),
            };
            return Ok(Self::Layout { path: local(text, path)?, tag });
        }
        if let Some(path) = text.strip_prefix("docker-archive:") {
            return Ok(Self::Archive(local(text, path)?));
        }
        RegistryRef::parse(text).map(Self::Registry)
    }
}

impl fmt::Display for ImageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registry(reference) => reference.fmt(f),
            Self::Layout { path, tag: None } => write!(f, "oci:{}", path.display()),
            Self::Layout { path, tag: Some(tag) } => write!(f, "oci:{}:{tag}", path.display()),
            Self::Archive(path) => write!(f, "docker-archive:{}", path.display()),
        }
    }
}

fn local(text: &str, path: &str) -> OciResult<PathBuf> {
    if path.is_empty() {
        let reason = "it has no path".to_owned();
        return Err(Error::Reference { text: text.to_owned(), reason });
    }
    Ok(PathBuf::from(path))
}

/// Full reference to an image of a registry: `HOST[:PORT]/REPOSITORY` with a tag, a digest, or
/// both. Short names are not completed, because whose image they mean would be a guess.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryRef {
    inner: Reference,
    digest: Option<Sha256Digest>,
}

impl RegistryRef {
    /// Parses a reference; without tag and digest its tag is `latest`.
    ///
    /// # Errors
    /// `Reference`.
    pub fn parse(text: &str) -> OciResult<Self> {
        let no = |reason: &str| Error::Reference {
            text: text.chars().take(300).collect(),
            reason: reason.to_owned(),
        };
        if text.len() > MAX_BYTES {
            return Err(no("it has more than 240 bytes"));
        }
        if !Self::looks_like(text) {
            return Err(no("it does not name its registry"));
        }
        let inner: Reference = text.parse().map_err(|_| no("its parts are not well formed"))?;
        let digest = match inner.digest() {
            Some(digest) => {
                Some(digest.parse().map_err(|_| no("its digest is not a SHA-256 digest"))?)
            }
            None => None,
        };
        Ok(Self { inner, digest })
    }

    /// True for texts that name a registry, and so are not the name of an image that is here.
    pub fn looks_like(text: &str) -> bool {
        text.split_once('/').is_some_and(|(host, _)| {
            !host.is_empty() && (host.contains(['.', ':']) || host == "localhost")
        })
    }

    /// Host and port, as the reference has them.
    pub fn registry(&self) -> &str {
        self.inner.registry()
    }

    /// Host and port that are asked.
    pub fn host(&self) -> &str {
        self.inner.resolve_registry()
    }

    /// Path of the repository below the registry, without tag and digest.
    pub fn repository(&self) -> &str {
        self.inner.repository()
    }

    /// Digest, if it is pinned.
    pub fn digest(&self) -> Option<Sha256Digest> {
        self.digest
    }

    /// Version that the registry is asked for: the digest, or else the tag.
    pub(crate) fn version(&self) -> String {
        match (self.digest, self.inner.tag()) {
            (Some(digest), _) => digest.to_string(),
            (None, tag) => tag.unwrap_or("latest").to_owned(),
        }
    }
}

impl fmt::Display for RegistryRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.whole())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_full_and_have_one_form() {
        let digest = Sha256Digest::of(b"");
        let pinned = format!("ghcr.io/a/b@{digest}");
        for (text, whole) in [
            ("docker.io/library/python:3.12", "docker.io/library/python:3.12"),
            ("docker.io/python", "docker.io/library/python:latest"),
            ("localhost/a", "localhost/a:latest"),
            ("127.0.0.1:5000/a/b:T", "127.0.0.1:5000/a/b:T"),
            (&pinned, &pinned),
        ] {
            assert_eq!(RegistryRef::parse(text).unwrap().to_string(), whole);
        }
        assert_eq!(RegistryRef::parse(&pinned).unwrap().digest(), Some(digest));
        let long = format!("ghcr.io/{}", "a".repeat(250));
        for bad in [
            "",
            "python",
            "library/python",
            "/a",
            "ghcr.io/A",
            "ghcr.io/a:",
            "ghcr.io/a@sha256:0",
            "ghcr.io/../a",
            &long,
        ] {
            assert!(matches!(RegistryRef::parse(bad), Err(Error::Reference { .. })), "{bad}");
        }
    }

    #[test]
    fn local_places_have_a_path_and_a_layout_may_have_a_tag() {
        let layout = |path: &str, tag: Option<&str>| ImageSource::Layout {
            path: path.into(),
            tag: tag.map(str::to_owned),
        };
        assert_eq!(ImageSource::parse("oci:/a/b:t").unwrap(), layout("/a/b", Some("t")));
        assert_eq!(ImageSource::parse("oci:a:b/c").unwrap(), layout("a:b/c", None));
        let archive = ImageSource::parse("docker-archive:/x:y.tar").unwrap();
        assert_eq!(archive, ImageSource::Archive("/x:y.tar".into()));
        assert!(
            ImageSource::parse("oci:").is_err() && ImageSource::parse("docker-archive:").is_err()
        );
    }
}
