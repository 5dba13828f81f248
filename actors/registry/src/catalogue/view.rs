//! Check of a view against the catalogue.

use hivekeep_kernel::{Layer, ToolError, view::same_family};

use super::{Catalogue, ToolView};
use crate::codes;

impl Catalogue {
    /// Refuses a view that names a family which does not exist.
    ///
    /// # Errors
    /// `unknown_toolset`, with the families there are.
    pub fn check(&self, view: &ToolView) -> Result<(), ToolError> {
        let families = self.families();
        let begins = view.listing.iter().flat_map(|listing| &listing.toolsets);
        for toolset in view.toolsets.iter().flatten().chain(begins) {
            if !families.iter().any(|family| same_family(toolset, family)) {
                let message = format!("there is no toolset `{toolset}`");
                return Err(ToolError::new(Layer::Door, codes::UNKNOWN_TOOLSET, message)
                    .next(format!("use one of: {}", families.join(", ")))
                    .detail("toolsets", families));
            }
        }
        Ok(())
    }
}
