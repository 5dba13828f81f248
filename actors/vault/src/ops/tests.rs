use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::CWD;
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::Options;
use crate::folder::STAGING;

mod list;
mod quota;
mod replace;

struct Home {
    dir: TempDir,
    vault: VaultView,
}

impl Home {
    fn new() -> Self {
        Self::with(Options::default())
    }

    fn with(options: Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let changes = tokio::sync::broadcast::channel(1).0;
        let folder = VaultFolder::open(&options, &dir.path().join("vault"), changes).unwrap();
        let folder = Arc::new(folder);
        Self { dir, vault: VaultView { folder, scope: Scope::whole() } }
    }

    fn at(&self, path: &str) -> std::path::PathBuf {
        self.dir.path().join("vault").join(path)
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap()
    }

    fn put(&self, path: &str, text: impl AsRef<[u8]>) {
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        fs::write(self.at(path), text).unwrap();
    }
}

fn note(path: &str) -> NotePath {
    NotePath::parse(path).unwrap()
}

/// Lists everything; `recursive` includes subfolders.
fn wanted(recursive: bool) -> ListingParams {
    ListingParams { recursive, limit: MOST_ROWS, ..ListingParams::default() }
}

/// Replaces literal text.
fn plain(old: &str, new: &str) -> TextReplacement {
    TextReplacement::new(old, new, false).unwrap()
}

fn code<T>(done: Result<T, Error>) -> &'static str {
    done.err().map_or("done", |error| error.code().name)
}

#[test]
fn a_note_is_written_read_moved_and_deleted() {
    let home = Home::new();
    let vault = &home.vault;
    assert_eq!(vault.write(&note("a/b/c.md"), "one", WritePosition::Overwrite).unwrap(), (true, 3));
    assert_eq!(vault.write(&note("a/b/c.md"), "two", WritePosition::Append).unwrap(), (false, 6));
    assert_eq!(vault.read(&note("a/b/c.md")).unwrap().text, "onetwo");
    assert!(vault.rename(&note("a/b/c.md"), &note("d/e.md"), false).unwrap());
    assert_eq!((home.text("d/e.md").as_str(), home.at("a/b/c.md").exists()), ("onetwo", false));
    assert!(!vault.rename(&note("d/e.md"), &note("d/e.md"), true).unwrap());
    home.put("f.md", "there");
    assert_eq!(code(vault.rename(&note("d/e.md"), &note("f.md"), false)), "note_exists");
    assert!(vault.rename(&note("d/e.md"), &note("f.md"), true).unwrap());
    assert_eq!(home.text("f.md"), "onetwo");
    // Two names of one file: the system would leave both and report a move.
    fs::hard_link(home.at("f.md"), home.at("g.md")).unwrap();
    assert_eq!(code(vault.rename(&note("g.md"), &note("f.md"), true)), "wrong_kind");
    vault.delete(&note("g.md")).unwrap();
    vault.delete(&note("f.md")).unwrap();
    assert_eq!(code(vault.delete(&note("f.md"))), "note_not_found");
    assert_eq!(code(vault.rename(&note("f.md"), &note("f.md"), true)), "note_not_found");
    assert_eq!(code(vault.read(&note("no/f.md"))), "note_not_found");
    assert_eq!(fs::read_dir(home.at(STAGING)).unwrap().count(), 0, "nothing is left over");
}

#[test]
fn what_is_prepended_comes_after_the_front_matter() {
    let home = Home::new();
    let write = |text: &str, mode| home.vault.write(&note("a.md"), text, mode);
    home.put("a.md", "---\na: 1\n---\nbody\n");
    write("first\n", WritePosition::Prepend).unwrap();
    assert_eq!(home.text("a.md"), "---\na: 1\n---\nfirst\nbody\n");
    home.put("a.md", "---\na: 1\n---");
    write("x", WritePosition::Prepend).unwrap();
    assert_eq!(home.text("a.md"), "---\na: 1\n---\nx");
    home.put("a.md", "---\r\na: 1\r\n---");
    write("x", WritePosition::Prepend).unwrap();
    assert_eq!(home.text("a.md"), "---\r\na: 1\r\n---\r\nx");
    home.put("a.md", "\u{feff}body");
    write("x", WritePosition::Prepend).unwrap();
    assert_eq!(home.text("a.md"), "\u{feff}xbody");
    home.put("a.md", "---\nnever closed");
    assert_eq!(code(write("x", WritePosition::Prepend)), "malformed_frontmatter");
    assert_eq!(home.text("a.md"), "---\nnever closed");
    write("!", WritePosition::Append).unwrap();
    assert_eq!(home.text("a.md"), "---\nnever closed!");
    write("x", WritePosition::Overwrite).unwrap();
    home.vault.write(&note("new.md"), "made", WritePosition::Prepend).unwrap();
    assert_eq!(home.text("new.md"), "made");
}

/// Every way out of the vault: each action is refused and nothing outside is changed or shown.
#[test]
fn no_symbolic_link_leads_out() {
    let home = Home::new();
    let outside = home.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret.md"), "secret #tag").unwrap();
    home.put("inside/kept.md", "kept");
    let link = |to: &Path, name: &str| symlink(to, home.at(name)).unwrap();
    link(&outside.join("secret.md"), "file.md");
    link(&outside, "folder");
    link(Path::new("../outside"), "relative");
    link(&outside.join("not-there.md"), "dangling.md");
    link(Path::new("loop.md"), "loop.md");
    link(Path::new("inside"), "alias");
    link(Path::new("/"), "root");
    link(&outside, "inside/nested");
    let secret = format!("root{}", outside.join("secret.md").display());
    let vault = &home.vault;
    for path in [
        "file.md",
        "folder/secret.md",
        "relative/secret.md",
        "dangling.md",
        "loop.md",
        "alias/kept.md",
        "inside/nested/secret.md",
        "folder/new.md",
        "folder/new/deep.md",
        &secret,
    ] {
        let at = note(path);
        let kept = note("inside/kept.md");
        let codes = [
            code(vault.read(&at)),
            code(vault.write(&at, "x", WritePosition::Overwrite)),
            code(vault.write(&at, "x", WritePosition::Append)),
            code(vault.delete(&at)),
            code(vault.set(&at, "k", &json!(1))),
            code(vault.add_tag(&at, "t")),
            code(vault.replace(&at, &plain("s", "x"), &|| false)),
            code(vault.rename(&at, &note("got.md"), true)),
            code(vault.rename(&kept, &at, false)),
            code(vault.rename(&kept, &at, true)),
        ];
        assert!(codes.iter().all(|code| *code == "wrong_kind"), "{path}: {codes:?}");
    }
    for folder in ["folder", "relative", "alias", "root", "inside/nested"] {
        assert_eq!(
            code(vault.list(&note(folder), &wanted(true), &|| false)),
            "wrong_kind",
            "{folder}"
        );
    }
    let listed = vault.list(&NotePath::default(), &wanted(true), &|| false).unwrap();
    let paths: Vec<_> = listed.rows.iter().map(|row| row.path.as_str()).collect();
    assert_eq!(paths, ["inside", "inside/kept.md"]);
    assert_eq!(vault.stats(9, &|| false).unwrap().notes, 1);
    assert_eq!(fs::read_to_string(outside.join("secret.md")).unwrap(), "secret #tag");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(home.text("inside/kept.md"), "kept");
}

/// Race: a folder is swapped for a link that leads out, again and again, while notes are written
/// through it.
#[test]
fn a_link_put_in_place_meanwhile_leads_nowhere() {
    let home = Home::new();
    let outside = home.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    home.put("swap/a.md", "in");
    symlink(&outside, home.at("link")).unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                let (folder, link) = (home.at("swap"), home.at("link"));
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(CWD, &folder, CWD, &link, exchange).unwrap();
            }
        });
        for round in 0..300 {
            let at = note(&format!("swap/new{}.md", round % 7));
            let _refused_or_inside = home.vault.write(&at, "x", WritePosition::Overwrite);
            let _either = home.vault.list(&note("swap"), &wanted(true), &|| false);
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn what_is_no_file_is_not_opened() {
    let home = Home::new();
    let pipe = home.at("pipe.md");
    rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    fs::create_dir(home.at("folder.md")).unwrap();
    for path in ["pipe.md", "folder.md"] {
        assert_eq!(code(home.vault.read(&note(path))), "wrong_kind");
        assert_eq!(
            code(home.vault.write(&note(path), "x", WritePosition::Overwrite)),
            "wrong_kind"
        );
        assert_eq!(code(home.vault.delete(&note(path))), "wrong_kind");
    }
    home.put("a.md", "x");
    assert_eq!(
        code(home.vault.write(&note("a.md/b.md"), "x", WritePosition::Overwrite)),
        "wrong_kind"
    );
}

#[test]
fn sizes_are_bounded_also_of_what_grows() {
    let home = Home::with(Options { max_note_mb: 1, ..Options::default() });
    let big = "x".repeat(1 << 20);
    home.vault.write(&note("a.md"), &big, WritePosition::Overwrite).unwrap();
    assert_eq!(code(home.vault.write(&note("a.md"), "y", WritePosition::Append)), "note_too_large");
    let doubled = home.vault.replace(&note("a.md"), &plain("x", "xx"), &|| false);
    assert_eq!(code(doubled), "note_too_large");
    assert_eq!(home.text("a.md"), big);
    home.put("b.md", format!("{big}y"));
    assert_eq!(code(home.vault.read(&note("b.md"))), "note_too_large");
    home.put("c.md", b"caf\xe9");
    assert_eq!(code(home.vault.read(&note("c.md"))), "not_text");
}

#[test]
fn a_change_by_another_program_is_not_written_over() {
    let home = Home::new();
    home.put("a.md", "old");
    let read = home.vault.read(&note("a.md")).unwrap();
    home.put("a.md", "from an editor");
    let saved = home.vault.folder.save(&note("a.md"), b"mine", read.expect);
    assert_eq!(code(saved), "note_contended");
    assert_eq!(home.text("a.md"), "from an editor");
    assert_eq!(
        code(home.vault.folder.save(&note("a.md"), b"mine", WritePrecondition::Nothing)),
        "note_contended"
    );
    assert_eq!(fs::read_dir(home.at(STAGING)).unwrap().count(), 0);
}

#[test]
fn a_note_keeps_its_mode_and_what_a_crash_left_is_swept() {
    let home = Home::new();
    home.put("a.md", "x");
    fs::set_permissions(home.at("a.md"), fs::Permissions::from_mode(0o640)).unwrap();
    home.vault.write(&note("a.md"), "y", WritePosition::Overwrite).unwrap();
    assert_eq!(fs::metadata(home.at("a.md")).unwrap().mode() & 0o777, 0o640);
    fs::write(home.at(STAGING).join("left"), "half").unwrap();
    home.vault.folder.sweep().unwrap();
    home.vault.folder.sweep().unwrap();
    assert!(!home.at(STAGING).exists());
}

#[test]
fn a_scope_is_all_there_is() {
    let home = Home::new();
    home.put("teams/one/a.md", "a");
    home.put("teams/two/b.md", "b");
    let folder = home.vault.folder.clone();
    let own = VaultView { folder, scope: Scope::below(note("teams/one")) };
    let listed = own.list(own.scope.root(), &wanted(true), &|| false).unwrap();
    assert_eq!(listed.rows.iter().map(|row| row.path.as_str()).collect::<Vec<_>>(), ["a.md"]);
    let below = own.list(&own.scope.place("").unwrap(), &wanted(false), &|| false).unwrap();
    assert_eq!(below.rows, listed.rows);
    assert!(own.scope.place("../two/b.md").is_err());
    assert_eq!(own.stats(5, &|| false).unwrap().recent[0].path, "a.md");
    let empty = VaultView { scope: Scope::below(note("teams/new")), ..own };
    assert!(empty.list(empty.scope.root(), &wanted(true), &|| false).unwrap().rows.is_empty());
    empty.write(&empty.scope.place("c.md").unwrap(), "c", WritePosition::Overwrite).unwrap();
    assert_eq!(home.text("teams/new/c.md"), "c");
}
