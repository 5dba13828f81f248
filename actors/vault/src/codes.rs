//! Error codes of the vault.

pub(crate) use hivekeep_kernel::codes::*;

hivekeep_kernel::codes! {
    /// There is no such note or folder.
    NOTE_NOT_FOUND = "note_not_found" {
        cause: "The path is wrong, or the note was moved or deleted.",
        next: "The action `list` with `recursive` shows the notes.",
    }
    /// The file is not a note.
    NOT_A_NOTE = "not_a_note" {
        cause: "Its extension is not one of `vault.extensions`.",
        next: "Name a note, or add the extension to `vault.extensions`.",
    }
    /// A folder stands where a note is needed, or the reverse.
    WRONG_KIND = "wrong_kind" {
        cause: "The path is incomplete, or has an extension too many.",
        next: "The action `list` shows which is which.",
    }
    /// A note of this path exists.
    NOTE_EXISTS = "note_exists" {
        cause: "It was written before.",
        next: "Choose another path, or set `overwrite`.",
    }
    /// The note is, or would be, larger than a note may be.
    NOTE_TOO_LARGE = "note_too_large" {
        cause: "`vault.max_note_mb` is reached.",
        next: "Split the note, or raise `vault.max_note_mb`.",
    }
    /// The vault has no room for the note.
    VAULT_FULL = "vault_full" {
        cause: "All notes together reach `vault.max_total_mb`.",
        next: "Delete notes, or raise `vault.max_total_mb`.",
    }
    /// The note is not UTF-8 text.
    NOT_TEXT = "not_text" {
        cause: "Another program wrote it in another encoding, or it is binary.",
        next: "Save it as UTF-8.",
    }
    /// The front matter is not a YAML mapping, or cannot be changed without harm.
    MALFORMED_FRONTMATTER = "malformed_frontmatter" {
        cause: "It was edited by hand; `details.line` and `details.column` say where.",
        next: "Mend it there with the action `replace`, or `write` the note anew.",
    }
    /// Finding the pattern in the note takes too long.
    PATTERN_TOO_SLOW = "pattern_too_slow" {
        cause: "The pattern spans many lines of a large note.",
        next: "Use a smaller pattern that stays in a line, or replace plain text.",
    }
    /// Another program changes the note all the time.
    NOTE_CONTENDED = "note_contended" {
        cause: "It changed each time between reading and writing.",
        next: "Repeat the call.",
    }
    /// The vault's folder cannot be opened.
    VAULT_UNAVAILABLE = "vault_unavailable" {
        cause: "It is missing, not mounted, or its mode keeps the daemon out.",
        next: "Make it readable and writable for the daemon; the next call tries again.",
    }
    /// A read or write in the vault's folder failed.
    VAULT_IO = "vault_io" {
        cause: "The message names the system's error.",
        next: "Look at the folder on the host.",
    }
    /// A deletion was not confirmed.
    NOT_CONFIRMED = "not_confirmed" {
        cause: "`confirm` is missing or false; nothing was deleted.",
        next: "Set `confirm` to true to delete the note.",
    }
    /// Whether the note was changed is not known.
    OUTCOME_UNKNOWN = "outcome_unknown" {
        cause: "The vault was restarted in the middle of the change.",
        next: "Read the note before trying again.",
    }
}
