//! Files of a crate import each other in small circles at most.
//!
//! `cargo xtask figures --circles` prints them, and what each file imports of the others.

use hivekeep_figures::{Crate, measure};

use super::{assert_none, sources::root};

/// Files in one circle.
const MOST_FILES: usize = 10;

/// Crates whose circles are larger, and the size of the largest. It may only shrink.
const ALLOWED: [(&str, usize); 0] = [];

fn finding(found: &Crate, allowed: &[(&str, usize)]) -> Option<String> {
    let (folder, files) = (&found.folder, found.largest_circle());
    match allowed.iter().find(|(allowed, _)| allowed == folder) {
        None if files > MOST_FILES => {
            Some(format!("{folder}: {files} files in a circle, at most {MOST_FILES}"))
        }
        Some((_, most)) if files > *most => {
            Some(format!("{folder}: {files} files in a circle, at most {most}"))
        }
        Some(_) if files <= MOST_FILES => {
            Some(format!("{folder}: {files} files in a circle; its allowance is to go"))
        }
        Some((_, most)) if files < *most => {
            Some(format!("{folder}: {files} files in a circle; its allowance is {most}"))
        }
        _ => None,
    }
}

#[test]
fn imports_go_in_small_circles_only() {
    let crates = measure(&root()).expect("the checkout can be read");
    let mut findings: Vec<_> = crates.iter().filter_map(|found| finding(found, &ALLOWED)).collect();
    let gone = ALLOWED.iter().filter(|(name, _)| crates.iter().all(|found| found.folder != *name));
    findings.extend(gone.map(|(name, _)| format!("{name}: there is no such crate")));
    assert_none("untie it: `cargo xtask figures --circles` names the files", &findings);
}

#[test]
fn an_allowance_holds_for_its_number_alone() {
    let circle = |files: usize| {
        let names = (0..files).map(|n| (n.to_string(), Vec::new())).collect();
        Crate {
            folder: "a".to_owned(),
            lines: 0,
            test_lines: 0,
            code_lines: Vec::new(),
            circles: vec![names],
        }
    };
    let refused = |files, allowed: &[_]| finding(&circle(files), allowed).is_some();
    assert!(!refused(MOST_FILES, &[]) && refused(MOST_FILES + 1, &[]));
    let allowed = [("a", 20)];
    assert!(!refused(20, &allowed));
    assert!(refused(21, &allowed) && refused(19, &allowed) && refused(MOST_FILES, &allowed));
}
