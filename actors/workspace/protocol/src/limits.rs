//! Limits that both sides enforce. A request beyond one is refused or the connection is closed;
//! nothing is buffered beyond a limit.

/// Maximum frame payload in bytes. Requests (a command line, an environment) and replies fit in one
/// frame; bulk content travels as [`DATA_CHUNK_BYTES`].
pub const MAX_PAYLOAD_BYTES: usize = 1024 * 1024;

/// Maximum data payload that either side sends, without the leading stream byte. Other frames wait
/// behind one of these, so it takes only a millisecond or two on the slowest carrier; and it is
/// large, because each costs both sides a wake-up.
pub const DATA_CHUNK_BYTES: usize = 256 * 1024;

/// Initial credit: data bytes that a sender may have in flight for one call before the receiver
/// grants more with a credit frame.
pub const INITIAL_CREDIT_BYTES: u32 = 1024 * 1024;

/// Maximum number of calls that the guest serves at once on one connection; one more is answered
/// [`crate::GuestCode::Busy`].
pub const MAX_CALLS_IN_FLIGHT: usize = 256;

/// Maximum number of streams to ports that the guest carries at once on one connection, beside
/// [`MAX_CALLS_IN_FLIGHT`]; one more is answered [`crate::GuestCode::Busy`].
pub const MAX_STREAMS: usize = 128;

/// Credit of each side of a stream: bytes that may be in flight, and that the other side may have to hold.
pub const STREAM_WINDOW_BYTES: u32 = 256 * 1024;

/// Maximum data payload of a stream, without the leading stream byte.
pub const STREAM_CHUNK_BYTES: usize = 64 * 1024;

/// Lowest port that the guest's daemon listens on for its host.
pub const MIN_LISTEN_PORT: u16 = 1024;

/// Maximum number of ports that it listens on at once; one more is answered [`crate::GuestCode::Busy`].
pub const MAX_LISTENERS: usize = 8;

/// Connections to one of these ports that wait to be taken.
pub const LISTEN_BACKLOG: u32 = 64;

/// Time after which such a port is closed when the host takes no more connections from it.
pub const LISTEN_IDLE_SECS: u64 = 10 * 60;

/// Maximum time that the guest waits for a port to take a connection.
pub const STREAM_DIAL_MS: u64 = 10_000;

/// Maximum length of a path in bytes, as in Linux.
pub const MAX_PATH_BYTES: usize = 4096;

/// Maximum number of environment variables of one command.
pub const MAX_ENV_VARS: usize = 1024;

/// Maximum number of entries of one [`crate::ListFolderReply`] page.
pub const MAX_LIST_ENTRIES: usize = 2000;

/// Maximum number of file operations that walk a tree, and of those that do not, that a guest runs at
/// once; others wait.
pub const FILE_OPERATIONS_AT_ONCE: usize = 2;

/// Maximum number of jobs that a guest keeps, running and finished together.
pub const MAX_JOBS: usize = 1000;

/// Maximum size of a job's stdout, and of its stderr, that the guest keeps unless the start asks
/// for less.
pub const DEFAULT_SPOOL_BYTES: u64 = 64 * 1024 * 1024;

/// Maximum size of one write to a process.
pub const MAX_PROCESS_INPUT_BYTES: usize = 64 * 1024;

/// Time that the output of a [`crate::ProcessStartHeld`] is held back while its reader does not go on.
pub const MAX_HELD_MS: u64 = 2 * 60 * 1000;

/// Maximum time between the two signals of a [`crate::ProcessStop`].
pub const MAX_STOP_GRACE_MS: u64 = 5 * 60 * 1000;

/// Longest wait of one call for news of a job or a watch.
pub const MAX_WAIT_MS: u64 = 60 * 1000;

/// Number of calls of one connection that may wait for news; they are among [`MAX_CALLS_IN_FLIGHT`].
pub const MAX_WAITING_CALLS: usize = 64;

/// Maximum number of watches of a guest.
pub const MAX_WATCHES: usize = 32;

/// Maximum number of folders of one watch.
pub const MAX_WATCH_FOLDERS: usize = 8192;

/// Maximum number of changes in one answer, and the size of their paths.
pub const MAX_CHANGES: usize = 1000;
/// See [`MAX_CHANGES`].
pub const MAX_CHANGES_BYTES: usize = 256 * 1024;

/// Time after which a watch that nobody reads ends.
pub const WATCH_IDLE_SECS: u64 = 10 * 60;

/// Maximum length of the key of a [`crate::RunOnce`].
pub const MAX_RUN_KEY_BYTES: usize = 128;

/// Maximum number of commands under keys that run at once; one more is answered [`crate::GuestCode::Busy`].
pub const KEYED_RUNS_AT_ONCE: usize = 16;

/// Maximum number of ended commands whose results are kept under their keys.
pub const KEPT_RUNS: usize = 64;

/// Maximum size of the output of all of them. Those that run may hold as much again, each with both its streams.
pub const KEPT_RUNS_BYTES: usize = 16 * 1024 * 1024;

/// Maximum size of each stream of a command under a key.
pub const KEPT_STREAM_BYTES: usize = 1024 * 1024;

/// Time after which the result of a command under a key is dropped.
pub const KEPT_RUN_SECS: u64 = 24 * 60 * 60;

/// Folder of a guest's tasks. Output files of tasks lie below.
pub const TASKS_DIR: &str = "/var/lib/hivekeep/tasks";

/// Maximum number of tasks that run at once in a guest.
pub const TASKS_AT_ONCE: usize = 4;

/// Maximum number of tasks of a guest that are queued, run, or have a result that was not
/// acknowledged. One more is answered [`crate::GuestCode::Busy`].
pub const MAX_TASKS: usize = 1000;

/// Number of acknowledged tasks that a guest remembers, to recognise a repeated put.
pub const MAX_TASKS_REMEMBERED: usize = 1000;

/// Maximum length of the id of a task, and of the message that assigned it.
pub const MAX_TASK_ID_BYTES: usize = 128;

/// Maximum length of a task's command: that of a message.
pub const MAX_TASK_COMMAND_BYTES: usize = 256 * 1024;

/// Maximum size of the names and values of a task's environment: the workspace's and the task's
/// own.
pub const MAX_TASK_ENV_BYTES: usize = 512 * 1024;

/// Maximum time limit of a task.
pub const MAX_TASK_TIMEOUT_SECS: u64 = 24 * 60 * 60;

/// Maximum number of results in one [`crate::TaskResultsReply`], so that it fits a frame.
pub const MAX_TASK_RESULTS: usize = 20;

/// Maximum size of each stream in a [`crate::GuestTaskResult`].
pub const TASK_SHOWN_BYTES: usize = 16 * 1024;

/// Maximum size of each stream in a [`crate::TaskReadReply`].
pub const MAX_TASK_READ_BYTES: u32 = 256 * 1024;

/// Maximum payload of an event. A larger one is not sent; the host has to ask.
pub const MAX_EVENT_BYTES: usize = 16 * 1024;

/// Maximum size of a [`crate::TaskProgress::tail`].
pub const MAX_TASK_TAIL_BYTES: usize = 512;

/// Maximum size of each stream of a task that is kept; output beyond is counted and dropped.
pub const TASK_SPOOL_BYTES: u64 = 16 * 1024 * 1024;

/// Maximum size of the output of acknowledged tasks that a guest keeps whole.
pub const TASK_OUTPUTS_BYTES: u64 = 256 * 1024 * 1024;

/// Maximum size of the reason why a task was not run.
pub const MAX_TASK_REASON_BYTES: usize = 2048;

/// Silence inside a frame after which a guest on a byte stream without connections (virtio-serial)
/// drops the frame and looks for a new preamble.
pub const MID_FRAME_GAP_MS: u64 = 2_000;
