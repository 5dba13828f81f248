use std::path::PathBuf;

use tempfile::TempDir;

use super::*;

/// A checkout with a surface that a fragment accounts for.
fn checkout() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_owned();
    for path in ["config.toml", "docs/errors.md", "docs/tools/a.md", "tests/contract/cli.txt"] {
        write(&root, path, "as it was\n");
    }
    write(&root, PAGE, "# Changelog\n\nAbout.\n\n## Unreleased\n");
    add(&root, Kind::Fixed, "first", "One.").unwrap();
    accounted(&root).unwrap();
    (folder, root)
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn refusal(root: &Path) -> String {
    accounted(root).unwrap_err().to_string()
}

#[test]
fn each_change_of_the_surface_takes_a_fragment() {
    let (_folder, root) = checkout();
    for path in ["config.toml", "docs/errors.md", "docs/tools/a.md", "tests/contract/cli.txt"] {
        write(&root, path, "changed\n");
        let said = refusal(&root);
        assert!(said.contains(path) && said.contains("cargo xtask changelog add"), "{said}");
        add(&root, Kind::Changed, "second", "Two.").unwrap();
        accounted(&root).unwrap();
    }
    write(&root, "docs/tools/b.md", "a new tool\n");
    fs::remove_file(root.join("docs/tools/a.md")).unwrap();
    let said = refusal(&root);
    assert!(said.contains(": docs/tools/a.md, docs/tools/b.md;"), "{said}");
    write(&root, "src/lib.rs", "no surface\n");
    add(&root, Kind::Added, "third", "Three.").unwrap();
    accounted(&root).unwrap();
    fs::remove_file(root.join("changelog.d/surface")).unwrap();
    assert!(accounted(&root).is_err());
}

#[test]
fn a_fragment_that_cannot_be_read_is_named() {
    let (_folder, root) = checkout();
    for text in ["Text alone.\n", "kind: better\n\nText.\n", "kind: added\n\n \n"] {
        write(&root, "changelog.d/wrong.md", text);
        let said = refusal(&root);
        assert!(said.contains("changelog.d/wrong.md") && said.contains("removed"), "{said}");
    }
    for (slug, text) in [("Über", "Text."), ("../a", "Text."), ("", "Text."), ("a", " ")] {
        assert!(add(&root, Kind::Added, slug, text).is_err(), "{slug}: {text}");
    }
}

#[test]
fn a_release_takes_what_is_unreleased_and_the_fragments() {
    let (_folder, root) = checkout();
    let page = "# Changelog\n\nAbout.\n\n## Unreleased\n\nThe next.\n\n### Changed\n\n- By hand.\n\n\
                ## 0.1.0 (2026-01-01)\n\n### Added\n\n- Everything.\n";
    write(&root, PAGE, page);
    add(&root, Kind::Changed, "second", "Two,\nin lines.").unwrap();
    add(&root, Kind::Added, "third", "Three.").unwrap();
    assert!(release(&root, "0.1.0", "2026-02-03").is_err());
    release(&root, "0.2.0", "2026-02-03").unwrap();
    let expected = "# Changelog\n\nAbout.\n\n## Unreleased\n\n## 0.2.0 (2026-02-03)\n\nThe next.\n\n\
                    ### Added\n\n- Three.\n\n### Changed\n\n- By hand.\n- Two,\n  in lines.\n\n\
                    ### Fixed\n\n- One.\n\n## 0.1.0 (2026-01-01)\n\n### Added\n\n- Everything.\n";
    assert_eq!(fs::read_to_string(root.join(PAGE)).unwrap(), expected);
    assert_eq!(names(&root.join(FOLDER)).unwrap(), ["surface"]);
    accounted(&root).unwrap();
    let again = release(&root, "0.3.0", "2026-02-04").unwrap_err().to_string();
    assert!(again.contains("nothing is unreleased"), "{again}");
}

#[test]
fn a_release_leaves_everything_when_it_cannot_be_made() {
    let (_folder, root) = checkout();
    for page in ["# Changelog\n", "## Unreleased\n\n### Improved\n\n- A.\n"] {
        write(&root, PAGE, page);
        assert!(release(&root, "0.2.0", "2026-02-03").is_err(), "{page}");
        assert_eq!(fs::read_to_string(root.join(PAGE)).unwrap(), page);
        assert_eq!(names(&root.join(FOLDER)).unwrap(), ["first.md", "surface"]);
    }
    write(&root, "config.toml", "changed\n");
    assert!(release(&root, "0.2.0", "2026-02-03").unwrap_err().to_string().contains("config.toml"));
}
