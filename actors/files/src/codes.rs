//! Error codes of places and their files.

pub(crate) use hivekeep_kernel::codes::*;

hivekeep_kernel::codes! {
    /// The place may be read only.
    PLACE_READ_ONLY = "place_read_only" {
        cause: "`read_only` is set for it, which is the default.",
        next: "Write elsewhere, or set `read_only = false` for the place in the configuration.",
    }
    /// The session may not work in the place.
    PLACE_WITHHELD = "place_withheld" {
        cause: "The session is an agent's, whose manifest has a `spec.security.filesystem`: it works in its own workspace.",
        next: "Leave `place` out.",
    }
    /// The place is no workspace.
    PLACE_NO_WORKSPACE = "place_no_workspace" {
        cause: "Users, folders in a place's name and watches are of workspaces; this place is a folder of the host or a volume.",
        next: "Name a workspace, or leave out what only workspaces have.",
    }
    /// Something has the path already.
    FILE_EXISTS = "file_exists" {
        cause: "A file or folder stands where another is to be moved.",
        next: "Set `overwrite` to replace a file, or choose another path.",
    }
    /// The folder is not empty.
    FOLDER_NOT_EMPTY = "folder_not_empty" {
        cause: "It has files or folders.",
        next: "Set `recursive` to delete it with everything in it.",
    }
    /// The range begins behind the end of the file.
    PAST_END = "past_end" {
        cause: "The file has fewer lines, or bytes, perhaps since it was changed.",
        next: "Begin where there is something; the message says how much there is.",
    }
    /// The file system keeps no metadata.
    METADATA_UNSUPPORTED = "metadata_unsupported" {
        cause: "Metadata are extended attributes of the class `user`, which the file system of this path has not.",
        next: "Put the file without `metadata`, or below another path.",
    }
    /// The text to replace occurs more than once.
    MANY_MATCHES = "many_matches" {
        cause: "The text is not unique in the file; `details.occurrences` says how often it occurs.",
        next: "Give more of the text around the place that is meant.",
    }
    /// Another program changes the file all the time.
    FILE_CONTENDED = "file_contended" {
        cause: "It was written between each reading and the write that was to follow.",
        next: "Repeat the call when the other program is done.",
    }
    /// The manifest is not valid, and was not put in place.
    MANIFEST_REFUSED = "manifest_refused" {
        cause: "Its YAML or its fields are wrong; `details.problems` names lines and columns.",
        next: "Mend the text and repeat the call; the file is as it was.",
    }
}
