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

/// Silence inside a frame after which a guest on a byte stream without
/// connections (virtio-serial) drops the frame and looks for a new preamble.
pub const MID_FRAME_GAP_MS: u64 = 2_000;
