//! Error codes of the link to a guest, and of what guests answer.

pub(crate) use hivekeep_kernel::codes::*;

hivekeep_kernel::codes! {
    /// The connection to the guest broke during the call.
    LINK_LOST = "link_lost" {
        cause: "The guest daemon or the machine ended or was restarted.",
        next: "Look whether the call took effect, then repeat it.",
    }
    /// Guest and daemon do not accept each other.
    LINK_REFUSED = "link_refused" {
        cause: "The machine was made by another daemon, or its guest speaks another version of the protocol.",
        next: "Stop and start the workspace, so that it runs this daemon's guest.",
    }
    /// A file of the host could not be read or written.
    HOST_FILE_FAILED = "host_file_failed" {
        cause: "Missing permissions, a file that changed during the transfer, or a failing disk.",
        next: "The message names the error; look at the file and its folder on the host.",
    }
    /// The guest runs as many things at once as it may.
    GUEST_BUSY = "guest_busy" {
        cause: "Too many calls, background jobs or tasks are in the workspace.",
        next: "Wait for some to end, or end them; `workspace_info` lists the jobs.",
    }
    /// The guest knows no job of this id.
    UNKNOWN_JOB = "unknown_job" {
        cause: "The id is wrong, or the job went with an earlier run of the machine.",
        next: "`workspace_info` lists the jobs.",
    }
    /// Another job of this id was started before.
    JOB_CONFLICT = "job_conflict" {
        cause: "A repeated start differs from the first one.",
        next: "Start the command as a new job.",
    }
    /// The process reads no input.
    INPUT_CLOSED = "input_closed" {
        cause: "It has ended, it has closed its standard input, or a call closed that.",
        next: "`process_output` shows what became of it; start another one to write to.",
    }
    /// The workspace has no such user or group.
    USER_UNKNOWN = "user_unknown" {
        cause: "`/etc/passwd` or `/etc/group` of the workspace has no such name, or the number is beyond what a sandbox has, 65535.",
        next: "Name a user that is there; `root` always is.",
    }
    /// The guest has no such watch.
    WATCH_UNKNOWN = "watch_unknown" {
        cause: "It was ended, nobody read it for ten minutes, or the workspace was restarted.",
        next: "Begin another by `fs.watch`, and look at the folder: changes in between are not known.",
    }
    /// Nothing takes connections on the port.
    PORT_CLOSED = "port_closed" {
        cause: "No program in the workspace listens on the port, on its loopback or on an address of its own, or it does not take the connection within ten seconds.",
        next: "Start the program, or look at what it listens on; a port below 65536 that it prints at its start is usual.",
    }
    /// Something else listens on the port.
    GUEST_PORT_TAKEN = "guest_port_taken" {
        cause: "A program in the workspace listens on the port that the guest's daemon is to listen on.",
        next: "End that program, or have it listen on another port.",
    }
    /// A read or write failed in the guest.
    GUEST_IO = "guest_io" {
        cause: "The message names the system's error.",
        next: "Look at the path by `exec`; `workspace_logs` shows the console.",
    }
    /// The guest daemon has a defect.
    GUEST_INTERNAL = "guest_internal" {
        cause: "Something failed in the guest that its daemon does not expect.",
        next: "Look at `workspace_logs` and report it.",
    }
    /// The guest cannot do this.
    GUEST_UNSUPPORTED = "guest_unsupported" {
        cause: "The workspace still runs the guest daemon of an older version.",
        next: "Stop and start the workspace: then it runs this daemon's guest.",
    }
}
