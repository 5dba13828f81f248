//! Quota on the size of all notes together.

use super::*;

#[test]
fn a_full_vault_takes_no_more_until_something_is_gone() {
    let home = Home::with(Options { max_total_mb: 1, ..Options::default() });
    let vault = &home.vault;
    let (large, more) = ("x".repeat(600 << 10), "x".repeat(500 << 10));
    vault.write(&note("large.md"), &large, WritePosition::Overwrite).unwrap();
    assert_eq!(code(vault.write(&note("more.md"), &more, WritePosition::Overwrite)), "vault_full");
    assert!(!home.at("more.md").exists() && home.text("large.md") == large);
    // A replacement that fits is allowed; so is the note once the other is gone.
    vault.write(&note("large.md"), &more, WritePosition::Overwrite).unwrap();
    vault.write(&note("more.md"), &more, WritePosition::Overwrite).unwrap();
    assert_eq!(
        code(vault.write(&note("large.md"), &large, WritePosition::Overwrite)),
        "vault_full"
    );
    vault.delete(&note("more.md")).unwrap();
    vault.write(&note("large.md"), &large, WritePosition::Overwrite).unwrap();
}

#[test]
fn small_notes_take_a_block_each() {
    let home = Home::with(Options { max_total_mb: 1, ..Options::default() });
    let write =
        |n: usize| home.vault.write(&note(&format!("{n}.md")), "", WritePosition::Overwrite);
    let refused = (0..300).find(|n| write(*n).is_err());
    assert_eq!(refused, Some(256));
    // Existing notes can be written, moved and made smaller.
    home.vault.write(&note("0.md"), "short", WritePosition::Overwrite).unwrap();
    assert!(home.vault.rename(&note("0.md"), &note("new.md"), false).unwrap());
}

#[test]
fn what_was_there_before_counts_in_any_number() {
    let home = Home::with(Options { max_total_mb: 64, ..Options::default() });
    for n in 0..11_000 {
        home.put(&format!("{}/{n}.md", n % 7), "");
    }
    let left = (64 << 20) - (11_000 + 7) * 4096;
    let most = Options::default().max_note_bytes() as usize;
    let whole = left / most;
    for n in 0..whole {
        let text = "x".repeat(most);
        home.vault.write(&note(&format!("big-{n}.md")), &text, WritePosition::Overwrite).unwrap();
    }
    let rest = left - whole * most;
    let over = "x".repeat(rest + 1);
    assert_eq!(
        code(home.vault.write(&note("rest.md"), &over, WritePosition::Overwrite)),
        "vault_full"
    );
    home.vault.write(&note("rest.md"), &over[..rest], WritePosition::Overwrite).unwrap();
}
