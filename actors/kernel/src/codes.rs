//! Error codes that the platform raises, and those that several crates raise or compare.

crate::codes! {
    /// The input does not fit the tool's schema, or makes no sense.
    INVALID_INPUT = "invalid_input" {
        cause: "A field is missing, unknown, of another type or outside its bounds, or two fields contradict each other.",
        next: "Correct the fields that the message names; `hivekeep tools TOOL` shows the schema.",
    }
    /// The daemon itself has a defect.
    INTERNAL = "internal" {
        cause: "An actor or a call failed in a way that the daemon does not expect.",
        next: "Look at `hivekeep logs` and report it.",
    }
    /// The call was cancelled.
    CANCELLED = "cancelled" {
        cause: "The client cancelled it or went away.",
        next: "Repeat the call if its result is still wanted.",
    }
    /// The daemon ended while the call was running.
    DAEMON_RESTARTED = "daemon_restarted" {
        cause: "It was killed or stopped; its workspaces and what is in them outlive it.",
        next: "Look what took effect, with `details.told_by` where it is there, then repeat the call if it is still wanted.",
    }
    /// The daemon ended during an earlier attempt at the call, and nobody knows what came of that.
    EFFECT_UNKNOWN = "effect_unknown" {
        cause: "The machine is gone or was restarted, never began it or keeps its result no longer, or the tool keeps none.",
        next: "Look what took effect, then make the call anew if it is still wanted.",
    }
    /// The daemon is being stopped and begins nothing new.
    DAEMON_STOPPING = "daemon_stopping" {
        cause: "The operator ordered a stop or a restart.",
        next: "Repeat the call when the daemon is back.",
    }
    /// The session is over.
    SESSION_ENDED = "session_ended" {
        cause: "It was ended by its client or an operator, or was idle for too long.",
        next: "Open a new session; `workspace_adopt` takes over what the old one owned.",
    }
    /// There was no answer within the call's time limit.
    DEADLINE_EXCEEDED = "deadline_exceeded" {
        cause: "The work takes longer than the limit, or the guest or host is overloaded or hung.",
        next: "Look whether it took effect, then repeat it with a larger `timeout_secs` if the tool has one.",
    }
    /// The actor that serves the call is not there at the moment.
    ACTOR_UNAVAILABLE = "actor_unavailable" {
        cause: "It failed and is being restarted, or it ended.",
        next: "Repeat the call; where `details.outcome` is `unknown`, look first whether it took effect.",
    }
    /// Too much is waiting already; the call was not taken.
    BUSY = "busy" {
        cause: "Many calls for the same target, or too many changes, run or wait.",
        next: "Wait for `retry_after_ms`, then repeat the call.",
    }
    /// The caller calls faster than it may.
    RATE_LIMITED = "rate_limited" {
        cause: "The token bucket of the session, the user or the team's member is empty.",
        next: "Wait for `retry_after_ms`, then repeat the call.",
    }
    /// A request, a record or a file is larger than its limit.
    TOO_LARGE = "too_large" {
        cause: "A file, a command with its environment, or a record of the journal exceeds what one step takes.",
        next: "Send or ask for less at once, or use `file_transfer` for large files.",
    }
    /// The disk of the host has no room.
    HOST_DISK_FULL = "host_disk_full" {
        cause: "Free space fell below the daemon's floor, or a write found no room.",
        next: "Free space on the host; a machine that stands still goes on by itself.",
    }
    /// The journal could not be read or written.
    JOURNAL_FAILED = "journal_failed" {
        cause: "The state directory is full, unreadable or on a failing disk.",
        next: "Run `hivekeep check` and look at `hivekeep logs`.",
    }
    /// Records of the state directory make no sense.
    STATE_UNREADABLE = "state_unreadable" {
        cause: "The journal was damaged, or written by a newer version.",
        next: "Restore the state directory from a backup; nothing was overwritten.",
    }
    /// A backup could not be made.
    BACKUP_FAILED = "backup_failed" {
        cause: "Files of the state directory cannot be read, linked or copied, often for want of space.",
        next: "Look at the free space of the state directory and at `hivekeep logs`.",
    }
    /// The named resource belongs to another session, or to nobody.
    NOT_OWNER = "not_owner" {
        cause: "Another session made it, or its session has ended.",
        next: "Use `workspace_adopt` to take over a workspace whose session is gone.",
    }
    /// The name is in use.
    NAME_TAKEN = "name_taken" {
        cause: "A workspace or a team of that name exists.",
        next: "Choose another name.",
    }
    /// There is no such workspace.
    WORKSPACE_NOT_FOUND = "workspace_not_found" {
        cause: "The id or name is wrong, or the workspace was destroyed.",
        next: "`workspace_list` shows the workspaces.",
    }
    /// The workspace is in the middle of something else.
    WORKSPACE_BUSY = "workspace_busy" {
        cause: "It is being started, stopped, saved, restored, taken over or removed.",
        next: "Wait until `workspace_info` shows another state, then repeat the call.",
    }
    /// The workspace is in a state in which this cannot be done.
    WORKSPACE_STATE = "workspace_state" {
        cause: "For example, a command was sent to a workspace that is stopped or paused.",
        next: "`workspace_info` shows the state; call `workspace_start` or `workspace_resume` first.",
    }
    /// There is no such snapshot.
    SNAPSHOT_NOT_FOUND = "snapshot_not_found" {
        cause: "The name is wrong, or the snapshot was deleted or belongs to another workspace.",
        next: "`snapshot` with action `list` shows the snapshots.",
    }
    /// The workspace has a snapshot of this name.
    SNAPSHOT_EXISTS = "snapshot_exists" {
        cause: "It was made before, perhaps by an earlier attempt of the same call.",
        next: "Choose another name, or delete that snapshot first.",
    }
    /// The workspace has as many snapshots as it may.
    TOO_MANY_SNAPSHOTS = "too_many_snapshots" {
        cause: "`workspace.max_snapshots_per_workspace` is reached.",
        next: "Delete some, or raise `workspace.max_snapshots_per_workspace`.",
    }
    /// The guest daemon in the workspace cannot be reached.
    GUEST_UNREACHABLE = "guest_unreachable" {
        cause: "The guest is booting or hung, or its daemon was killed.",
        next: "Repeat the call; `workspace_info` shows the link and `workspace_logs` the console.",
    }
    /// The guest's answers break the protocol.
    GUEST_MISBEHAVES = "guest_misbehaves" {
        cause: "The guest daemon was tampered with or is defective.",
        next: "Destroy the workspace, or restore a snapshot from before.",
    }
    /// The workspace's disk is full.
    GUEST_DISK_FULL = "guest_disk_full" {
        cause: "The workspace has written as much as its `disk_gb` allows.",
        next: "Free space in the workspace, or make one with a larger `disk_gb`.",
    }
    /// The command could not be started.
    CANNOT_START = "cannot_start" {
        cause: "The program does not exist or is not executable, or the working directory does not exist.",
        next: "Check the program's name and `workdir`.",
    }
    /// The command ran into its time limit; its processes were killed.
    EXEC_TIMED_OUT = "exec_timed_out" {
        cause: "It takes longer than `timeout_secs`, or waits for input.",
        next: "Give a larger `timeout_secs`, or start it with `exec_background`.",
    }
    /// The command did not end within its time.
    COMMAND_TIMED_OUT = "command_timed_out" {
        cause: "It waits for something or takes longer than its limit; it was killed with all that it started.",
        next: "Give a larger `timeout_secs`, or start it with `process_start`.",
    }
    /// The guest knows no task of this id.
    UNKNOWN_TASK = "unknown_task" {
        cause: "The task was never given to this guest, or has been removed from it.",
        next: "Assign the task again.",
    }
    /// Another merge into the workspace is running.
    MERGE_IN_PROGRESS = "merge_in_progress" {
        cause: "Two calls merge into the same target.",
        next: "Repeat the call when the other merge has ended.",
    }
    /// Workspaces have no network.
    NETWORK_UNAVAILABLE = "network_unavailable" {
        cause: "`network.mode` switches it off, or the host lacks what it needs.",
        next: "Set `network.mode`, and run `hivekeep check` on the host to see what is missing.",
    }
    /// This host cannot enforce network policies.
    POLICY_UNAVAILABLE = "policy_unavailable" {
        cause: "The host lacks what a filtered network needs, or the daemon's self-test found that a policy does not hold.",
        next: "Run `hivekeep check` on the host to see what is missing.",
    }
    /// This host, or this kind of workspace, mounts no volumes.
    VOLUMES_UNSUPPORTED = "volumes_unsupported" {
        cause: "Volumes are mounted by a daemon that is root, with loop devices; into VMs by virtiofsd, and by a driver that images of earlier versions lack.",
        next: "Run `hivekeep check` on the host to see what is missing; for the driver, `hivekeep image build base`.",
    }
    /// The vault is switched off.
    VAULT_DISABLED = "vault_disabled" {
        cause: "`vault.enabled` is false.",
        next: "Set `vault.enabled` and restart the daemon.",
    }
    /// Too many calls wait for the same messages or swarm.
    TOO_MANY_RECEIVERS = "too_many_receivers" {
        cause: "Calls with `wait_secs` are repeated before the earlier ones have answered.",
        next: "Wait for one of them to answer, or call without `wait_secs`.",
    }
    /// The number of runs that are under way has reached its limit.
    TOO_MANY_RUNS = "too_many_runs" {
        cause: "Runs that were begun before are not over, or wait; `details.limit` is the bound that is reached.",
        next: "Wait for one to end, or cancel one.",
    }
    /// The run is over.
    RUN_OVER = "run_over" {
        cause: "It ended or was cancelled before the message or decision came.",
        next: "Begin another run.",
    }
    /// The path does not exist.
    NOT_FOUND = "not_found" {
        cause: "The path is wrong, or relative to another folder than expected.",
        next: "`file_list` or `fs.list` shows what a folder holds.",
    }
    /// The system refuses access to the path.
    PERMISSION_DENIED = "permission_denied" {
        cause: "The mode or owner of the file forbids it.",
        next: "Change the mode or owner, by `exec` in a workspace, or use another path.",
    }
    /// A part of the path is not a folder.
    NOT_A_DIRECTORY = "not_a_directory" {
        cause: "A file stands where the call needs a folder.",
        next: "Name a folder.",
    }
    /// The path is a folder, and the call needs a file.
    IS_A_DIRECTORY = "is_a_directory" {
        cause: "The path is incomplete.",
        next: "Name a file; `file_list` or `fs.list` shows what the folder holds.",
    }
    /// The text to replace does not occur in the file.
    NO_MATCH = "no_match" {
        cause: "It differs from the file, often in spaces or line ends.",
        next: "Read the file and give the text exactly as it stands there.",
    }
    /// The file is not UTF-8 text.
    NOT_UTF8 = "not_utf8" {
        cause: "It is binary, or text in another encoding.",
        next: "Use `file_transfer` for files of a workspace that are not text.",
    }
    /// The path is not one of the vault or of a place.
    INVALID_PATH = "invalid_path" {
        cause: "It leaves the folder that it is in, is too long, or has characters that are not allowed.",
        next: "Name it relative to the root, with `/` between folders: `ideas/one.md`.",
    }
    /// The pattern of a search is not valid, or too large.
    INVALID_PATTERN = "invalid_pattern" {
        cause: "Special characters are not escaped, or the pattern grows too large when compiled.",
        next: "Mend the pattern; `vault` searches for plain text without `regex`.",
    }
    /// There is no place of this name.
    PLACE_UNKNOWN = "place_unknown" {
        cause: "The operator has not opened such a folder to sessions, and no workspace has this id or name.",
        next: "The message names the places there are; `session.places` in the configuration opens others.",
    }
    /// The path leads out of its place.
    OUTSIDE_PLACE = "outside_place" {
        cause: "It has more `..` than folders, or passes a link that leads elsewhere.",
        next: "Name a path below the place's root.",
    }
    /// The path is neither a file nor a folder.
    NOT_A_FILE = "not_a_file" {
        cause: "It is a device, a pipe or a socket.",
        next: "Name a file.",
    }
    /// The operating system failed to do it.
    FILE_FAILED = "file_failed" {
        cause: "The message names the error of the operating system.",
        next: "Look at the folder of the place on the host, or at the path in the workspace.",
    }
    /// This machine cannot be saved so.
    SNAPSHOT_UNSUPPORTED = "snapshot_unsupported" {
        cause: "It is a sandbox, whose disk is a folder of the host, its hypervisor lacks the feature, or it has volumes, which go with no memory.",
        next: "Make the workspace with isolation `vm`, or start it with an empty list of volumes; `workspace_info` shows what a machine can do.",
    }
    /// There is no such volume.
    VOLUME_NOT_FOUND = "volume_not_found" {
        cause: "The id or label is wrong, the volume was deleted or has expired, or it is another user's.",
        next: "`aegis.volume.list` shows yours.",
    }
}
