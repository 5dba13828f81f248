//! Trees that guests and Chrome made are removed in one way.

use super::{assert_none, sources::sources};

/// `std`'s recurses, with a descriptor a level: whoever makes a deep tree ends the daemon.
#[test]
fn workspaces_and_profiles_are_removed_by_the_walk_that_no_depth_ends() {
    let code = sources(&[".rs"]);
    let is_host = |path: &str| {
        (path.starts_with("actors/workspace/") || path.starts_with("actors/browser/"))
            && path.contains("/src/")
            && !path.starts_with("actors/workspace/guest/")
    };
    let places = code.iter().filter(|source| is_host(&source.path));
    // A fake machine's files are a test's.
    let places = places.filter(|source| !source.is_test() && !source.path.ends_with("/fake.rs"));
    let shipped = |text: &str| text.split("#[cfg(test)]").next().map(str::to_owned);
    let found: Vec<_> = places
        .filter(|source| shipped(&source.text).is_some_and(|text| text.contains("remove_dir_all")))
        .map(|source| source.path.clone())
        .collect();
    assert_none("use `hivekeep_trees::remove_tree`", &found);
}
