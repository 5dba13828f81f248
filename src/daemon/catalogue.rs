//! The catalogue: the tools of every family.

use hivekeep_registry::Catalogue;

use crate::families;

/// The catalogue. Needs no daemon.
pub fn catalogue() -> Catalogue {
    // A test makes the catalogue; a program with a broken one is never built.
    Catalogue::new(families::tools()).expect("the declarations of the tools are sound")
}

#[cfg(test)]
mod tests {
    use super::*;
    use hivekeep_registry::View;

    #[test]
    fn the_catalogue_is_sound_and_mcp_can_list_it() {
        let catalogue = catalogue();
        let listing = crate::doors::mcp::Listing::of(&catalogue, &View::operator());
        assert_eq!(
            listing.digest(),
            crate::doors::mcp::Listing::of(&catalogue, &View::operator()).digest()
        );
        assert!(catalogue.entries().count() > 0);
    }
}
