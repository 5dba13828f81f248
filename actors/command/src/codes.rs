//! Error codes of commands and processes.

pub(crate) use hivekeep_kernel::codes::*;

hivekeep_kernel::codes! {
    /// The command is not on the list of those that may be run.
    COMMAND_NOT_ALLOWED = "command_not_allowed" {
        cause: "The operator restricted commands by `command.allow`, and no entry is the beginning of this one; or `command.allow_variables` does not name a variable that it is given.",
        next: "Use an allowed command, or ask the operator to extend the list.",
    }
    /// The line has a part of which it cannot be said what it would run.
    COMMAND_NOT_JUDGED = "command_not_judged" {
        cause: "Substitutions, expansions, assignments, here-documents, functions and compound commands are not judged against `command.allow`.",
        next: "Write plain commands joined by operators, or give one program with `args`.",
    }
    /// The line needs a shell, and none is granted.
    COMMAND_NEEDS_SHELL = "command_needs_shell" {
        cause: "It has operators, redirections, patterns or expansions, and `command.shell` is off.",
        next: "Give one program in `command` and its arguments in `args`, or have `command.shell` set.",
    }
    /// The workspace has no code interpreter.
    NO_INTERPRETER = "no_interpreter" {
        cause: "Its image was made without one.",
        next: "Make a workspace of the image `code-interpreter`, or run a program with `bash` or `cmd.run`.",
    }
    /// The code interpreter did not start, or refused, or what it said cannot be read.
    INTERPRETER_FAILED = "interpreter_failed" {
        cause: "The message says what; programs in the workspace can change or end the interpreter.",
        next: "Repeat it; with `restart` the context begins anew.",
    }
}
