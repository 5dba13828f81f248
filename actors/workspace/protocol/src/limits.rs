//! Bounds that both sides keep. What exceeds one is answered or the connection
//! is closed; it is never buffered.

/// Largest frame payload in bytes. Requests (a command line, an environment)
/// and replies fit in one frame; bulk content travels as [`DATA_CHUNK_BYTES`].
pub const MAX_PAYLOAD_BYTES: usize = 1024 * 1024;

/// Largest data payload either side sends, without the leading stream byte. Other
/// frames wait behind one of these, so it is a matter of a millisecond or two on
/// the slowest carrier; and it is large, because each costs both sides a wake-up.
pub const DATA_CHUNK_BYTES: usize = 256 * 1024;

/// Data bytes that a sender may have on the way for one call before the
/// receiver grants more with a credit frame.
pub const INITIAL_CREDIT_BYTES: u32 = 1024 * 1024;

/// Calls that the guest serves at once on one connection; one more is answered
/// [`crate::GuestCode::Busy`].
pub const MAX_CALLS_IN_FLIGHT: usize = 256;

/// Longest path in bytes, as in Linux.
pub const MAX_PATH_BYTES: usize = 4096;

/// Most environment variables of one command.
pub const MAX_ENV_VARS: usize = 1024;

/// Most entries of one [`crate::FileListed`] page.
pub const MAX_LIST_ENTRIES: usize = 2000;

/// Largest file that [`crate::FileEdit`] opens.
pub const MAX_EDIT_BYTES: u64 = 64 * 1024 * 1024;

/// Most jobs that a guest keeps, running and finished together.
pub const MAX_JOBS: usize = 1000;

/// Bytes of a job's stdout, and of its stderr, that the guest keeps unless the
/// start asks for fewer.
pub const DEFAULT_SPOOL_BYTES: u64 = 64 * 1024 * 1024;

/// Where a guest keeps its tasks. What it names as a task's output lies below.
pub const TASKS_DIR: &str = "/var/lib/hivekeep/tasks";

/// Tasks that run at once in a guest.
pub const TASKS_AT_ONCE: usize = 4;

/// Most tasks of a guest that are queued, run, or have a result that was not acknowledged. One
/// more is answered [`crate::GuestCode::Busy`].
pub const MAX_TASKS: usize = 1000;

/// Acknowledged tasks that a guest remembers, so that a repeat is known for one.
pub const MAX_TASKS_REMEMBERED: usize = 1000;

/// Longest id of a task, and of the message that assigned it.
pub const MAX_TASK_ID_BYTES: usize = 128;

/// Longest command of a task: as long as a message may be.
pub const MAX_TASK_COMMAND_BYTES: usize = 256 * 1024;

/// Most bytes of names and values of a task's environment: the workspace's and the task's own.
pub const MAX_TASK_ENV_BYTES: usize = 512 * 1024;

/// Longest time limit of a task.
pub const MAX_TASK_TIMEOUT_SECS: u64 = 24 * 60 * 60;

/// Most results in one [`crate::TaskPage`], so that it fits a frame.
pub const MAX_TASK_RESULTS: usize = 20;

/// Most bytes of each stream in a [`crate::TaskResult`].
pub const TASK_SHOWN_BYTES: usize = 16 * 1024;

/// Most bytes of each stream in a [`crate::TaskReading`].
pub const MAX_TASK_READ_BYTES: u32 = 256 * 1024;

/// Largest payload of an event. What is larger is not told, but left to be asked for.
pub const MAX_EVENT_BYTES: usize = 16 * 1024;

/// Most bytes of a [`crate::TaskProgress::tail`].
pub const MAX_TASK_TAIL_BYTES: usize = 512;

/// Bytes of each stream of a task that are kept; output beyond is counted and dropped.
pub const TASK_SPOOL_BYTES: u64 = 16 * 1024 * 1024;

/// Bytes of output of acknowledged tasks that a guest keeps whole.
pub const TASK_OUTPUTS_BYTES: u64 = 256 * 1024 * 1024;

/// Most bytes of the text with which a task was not run.
pub const MAX_TASK_REASON_BYTES: usize = 2048;

/// Silence inside a frame after which a guest on a byte stream without
/// connections (virtio-serial) drops the frame and looks for a new preamble.
pub const MID_FRAME_GAP_MS: u64 = 2_000;
