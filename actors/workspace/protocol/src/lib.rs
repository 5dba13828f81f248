//! Wire protocol between the daemon and the guest: types and framing, no I/O.
//!
//! One connection carries many calls. Every frame names the call it belongs to ([`Frame::id`]); a
//! call is opened by a [`FrameKind::Request`], may exchange [`FrameKind::Data`] in either direction under
//! credit, and is closed by exactly one [`FrameKind::Reply`] from the guest.
//!
//! ```text
//! host                              guest
//!  │ SYNC nonce ───────────────────► │   resynchronises a byte stream that
//!  │ ◄─────────────────── SYNC nonce │   may hold bytes of an older connection
//!  │ HostHello{versions, token} ───► │
//!  │ ◄── GuestWelcome | HelloRefusal │
//!  │ Request 7 ────────────────────► │
//!  │ ◄──────────────── Data 7 stdout │
//!  │ Credit 7 ─────────────────────► │
//!  │ Cancel 7 ─────────────────────► │   optional
//!  │ ◄─────────────────────── Reply 7│
//! ```
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod asking;
mod encode;
mod error;
mod file_operation;
mod files;
mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod hello;
mod jobs;
pub mod limits;
mod network;
mod processes;
mod request;
mod run;
mod streams;
mod sync;
mod system;
mod tasks;
mod users;
mod volumes;
mod watches;

pub use asking::{Credential, ExecAsked, ExecAsking, Secret};
pub use encode::{DecodeError, EncodeError, decode, encode};
pub use error::{GuestCode, GuestError};
pub use file_operation::{FileOperationDone, RunFileOperation, RunFileOperationIn};
pub use files::{
    EditFile, EditFileReply, EntryKind, FileEntry, FileStat, ListFolder, ListFolderReply, ReadFile,
    ReadFileReply, WriteFile, WriteFileAs, WriteFileReply,
};
pub use frame::{Decoder, Frame, FrameError, FrameKind, HEADER_LEN};
pub use hello::{Containment, GuestWelcome, HelloRefusal, HostHello, PROTOCOL_VERSION};
pub use jobs::{
    JobForget, JobForgotten, JobKill, JobKilled, JobList, JobListReply, JobPoll, JobReport,
    JobStart, JobStarted, JobSummary, JobWait, Spool,
};
pub use network::{NetworkSet, SetNetwork};
pub use processes::{
    ProcessInput, ProcessInputTaken, ProcessResize, ProcessResized, ProcessStart, ProcessStartHeld,
    ProcessStartWithoutInput, ProcessStop, PtySize,
};
pub use request::{FromGuest, GuestEvent, GuestRequest, ToGuest};
pub use run::{Argv, Exit, RunCommand, RunCommandReply, Stream};
pub use streams::{OpenStream, StreamClosed};
pub use sync::{SYNC_LEN, SyncScanner, begins_sync, nonce_of, sync_preamble};
pub use system::{
    Configure, Configured, Ping, Pong, Quiesce, Quiesced, Reidentified, Reidentify, Shutdown,
    ShuttingDown, Thaw, Thawed, Usage, UsageReport,
};
pub use tasks::{
    GuestTaskOutcome, GuestTaskResult, GuestTaskState, TaskAck, TaskAcked, TaskCancel,
    TaskCancelled, TaskList, TaskListReply, TaskProgress, TaskPut, TaskPutReply, TaskRead,
    TaskReadReply, TaskResults, TaskResultsPush, TaskResultsReply, TaskStreamOutput,
};
pub use users::{FindUser, UserFound};
pub use volumes::{MountVolume, VolumeMounted};
pub use watches::{
    ChangeKind, WatchChange, WatchChanges, WatchEnd, WatchEnded, WatchRead, WatchStart,
    WatchStarted,
};
