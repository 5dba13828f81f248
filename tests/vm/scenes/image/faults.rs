//! Pulls and removals that are killed at each of their points, by the command line and by a daemon.

use std::{collections::BTreeSet, fs, os::unix::process::ExitStatusExt, path::Path};

use serde_json::{Value, json};

use super::stage::{image, policy, stocked, with_images};
use crate::{house::House, scenes::crash};

const PULL: [&str; 11] = [
    "pull.after_folder",
    "pull.in_layer",
    "pull.after_fetch",
    "pull.after_layer",
    "pull.after_unpack",
    "image.after_mke2fs",
    "image.after_disk",
    "image.before_object",
    "image.after_object",
    "image.before_manifest",
    "image.after_manifest",
];
const REMOVAL: [&str; 2] = ["image.after_unnamed", "image.after_aside"];

pub fn every_point_of_a_pull_and_a_removal(mut house: House) {
    let (registry, reference) = stocked(house.path());
    with_images(&mut house, &policy(&registry.1));
    for point in PULL {
        dies(&house, point, &["pull", &reference]);
        let named = settled(&house, point);
        // Only what was named is kept, and named it is only with everything.
        assert_eq!(named.is_empty(), point != "image.after_manifest", "{point}: {named:?}");
    }
    let (removed, said) = image(&house, &["rm", &reference]);
    assert!(removed, "{said}");
    let (pulled, said) = image(&house, &["pull", &reference]);
    assert!(pulled, "{said}");
    // A second one over the first: its objects go where they are not the same.
    dies(&house, "image.before_manifest", &["pull", &reference]);
    assert_eq!(settled(&house, "a pull over a pull").len(), 2);
    for point in REMOVAL {
        dies(&house, point, &["rm", &reference]);
        assert_eq!(settled(&house, point), BTreeSet::new(), "{point}");
        let (pulled, said) = image(&house, &["pull", &reference]);
        assert!(pulled, "{point}: {said}");
    }
    let (removed, said) = image(&house, &["rm", &reference]);
    assert!(removed, "{said}");

    // The daemon itself, for a workspace; the next one makes it.
    let wanted = json!({ "name": "boxed", "base_image": reference });
    for point in ["pull.in_layer", "image.after_object", "image.after_manifest"] {
        house.kill();
        house.start_armed(&format!("{point}=return(kill)"));
        assert!(house.try_call("workspace_create", wanted.clone()).is_err(), "{point}");
        house.wait_for_death();
        house.start();
        assert_eq!(crash::settled(&house, "boxed"), None, "{point}");
        settled(&house, point);
    }
    house.call("workspace_create", wanted);
    assert_eq!(house.exec("boxed", "echo $GREETING"), "hello\n");
    house.call("workspace_destroy", json!({ "workspace_id": "boxed" }));
}

/// Runs `hivekeep image` until it kills itself at a point.
fn dies(house: &House, point: &str, args: &[&str]) {
    let mut command = house.command();
    command.arg("image").args(args).env("FAILPOINTS", format!("{point}=return(kill)"));
    let done = command.output().expect("started");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.signal(), Some(9), "{point} was not passed: {said}");
}

/// Objects that the store has after the next program opened it: exactly those that its images name.
fn settled(house: &House, point: &str) -> BTreeSet<String> {
    let (listed, said) = image(house, &["list", "--json"]);
    assert!(listed, "{point}: {said}");
    let images: Value = serde_json::from_str(&said).expect("JSON");
    let mut named = BTreeSet::new();
    for row in images.as_array().expect("a list") {
        for object in ["rootfs_ext4", "rootfs_tree"] {
            named.extend(row["manifest"][object]["hash"].as_str().map(str::to_owned));
        }
    }
    let root = house.path().join("images");
    assert_eq!(names(&root.join("tmp")), BTreeSet::new(), "{point}");
    assert_eq!(names(&root.join("objects")), named, "{point}");
    named
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).expect("listed");
    entries.map(|entry| entry.expect("listed").file_name().into_string().expect("text")).collect()
}
