//! Who serves what: the tools of every actor's crate in one catalogue.

use hivekeep_registry::Catalogue;

/// The catalogue. Needs no daemon.
pub fn catalogue() -> Catalogue {
    let tools = hivekeep_workspace::catalogue()
        .into_iter()
        .chain(hivekeep_team::catalogue())
        .chain(hivekeep_vault::catalogue());
    // A test makes the catalogue; a program with a broken one is never built.
    Catalogue::new(tools).expect("the declarations of the tools are sound")
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
