//! Templates: images, or snapshots of sandboxes.

use crate::doors::e2b::{
    error::{E2bError, Kind},
    state::{E2b, Owner},
};

/// Template that the code interpreter's SDKs ask for, and its image here.
const CODE: (&str, &str) = ("code-interpreter-v1", "code-interpreter");
/// Longest name of a template.
const NAME_CHARS: usize = 256;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Template {
    Image(String),
    Snapshot { sandbox: String, snapshot: String },
}

impl E2b {
    /// Resolves a client's template: by the configuration, as a snapshot of its own by id or name, or as an
    /// image of that name.
    ///
    /// # Errors
    /// For an invalid name. A missing image is an error only when a sandbox is made of it.
    pub(super) async fn template(&self, owner: &Owner, name: &str) -> Result<Template, E2bError> {
        if name.is_empty() || name.chars().count() > NAME_CHARS {
            return Err(E2bError::invalid("`templateID` is not a valid name of a template"));
        }
        if let Some(image) = self.options.templates.get(name) {
            return Ok(Template::Image(image.clone()));
        }
        let plain = name.strip_suffix(":default").unwrap_or(name);
        if let Some((sandbox, snapshot)) = plain.split_once(':')
            && !plain.contains('/')
            && self.snapshot_names(owner, sandbox).await?.iter().any(|name| name == snapshot)
        {
            let (sandbox, snapshot) = (sandbox.to_owned(), snapshot.to_owned());
            return Ok(Template::Snapshot { sandbox, snapshot });
        }
        let image = if plain == CODE.0 { CODE.1 } else { plain };
        Ok(Template::Image(image.to_owned()))
    }

    /// Names of a sandbox's snapshots; none of a sandbox that is not the owner's.
    async fn snapshot_names(&self, owner: &Owner, sandbox: &str) -> Result<Vec<String>, E2bError> {
        let found = self.kept_sandbox(owner, sandbox).await;
        match found {
            Ok(found) => Ok(found.snapshots.into_iter().map(|snapshot| snapshot.name).collect()),
            Err(error)
                if matches!(error.kind, Kind::Gone | Kind::NotFound | Kind::InvalidArgument) =>
            {
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }
}
