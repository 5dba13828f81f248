//! Trees that guests and Chrome made are removed in one way, and files are made durable in one.

use regex::Regex;

use super::{
    assert_none,
    sources::{is_ours, sources},
};

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
    assert_none("use `hivekeep_fs::remove_tree`", &found);
}

/// A file that was written elsewhere, or a folder, is opened to be synced by `hivekeep-fs` alone; so a name that is
/// not durable is not forgotten. A guest has its own, and the file engine works beneath handles.
#[test]
fn a_path_is_made_durable_by_the_crate_for_it() {
    const OWN: [&str; 3] = ["actors/fs/", "actors/files/engine/", "actors/workspace/guest/"];
    let opened = Regex::new(r"File::open\([^;]*sync_(all|data)\(").expect("a pattern");
    let code = sources(&[".rs"]);
    let shipped = code.iter().filter(|source| {
        is_ours(&source.path)
            && !source.is_test()
            && !OWN.iter().any(|own| source.path.starts_with(own))
    });
    let found = shipped.filter(|source| opened.is_match(&source.text));
    let found: Vec<_> = found.map(|source| source.path.clone()).collect();
    assert_none(
        "use `hivekeep_fs::sync_file`, `sync_folder` or what is there for a whole change",
        &found,
    );
}
