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

mod files;
mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod hello;
mod jobs;
pub mod limits;
mod request;
mod run;
mod system;
mod tasks;

pub use files::{
    ChangeKind, EditFile, EditFileReply, EntryKind, FileEntry, FileOperationDone, FileStat,
    ListFolder, ListFolderReply, ReadFile, ReadFileReply, RunFileOperation, RunFileOperationIn,
    WatchChange, WatchChanges, WatchEnd, WatchEnded, WatchRead, WatchStart, WatchStarted,
    WriteFile, WriteFileAs, WriteFileReply,
};
pub use frame::{
    DecodeError, Decoder, EncodeError, Frame, FrameError, FrameKind, HEADER_LEN, decode, encode,
};
pub use hello::{
    Containment, GuestWelcome, HelloRefusal, HostHello, PROTOCOL_VERSION, SYNC_LEN, SyncScanner,
    begins_sync, nonce_of, sync_preamble,
};
pub use jobs::{
    JobForget, JobForgotten, JobKill, JobKilled, JobList, JobListReply, JobPoll, JobReport,
    JobStart, JobStarted, JobSummary, JobWait, ProcessInput, ProcessInputTaken, ProcessResize,
    ProcessResized, ProcessStart, ProcessStartHeld, ProcessStartWithoutInput, ProcessStop, PtySize,
    Spool,
};
pub use request::{FromGuest, GuestCode, GuestError, GuestEvent, GuestRequest, ToGuest};
pub use run::{
    Argv, Credential, ExecAsked, ExecAsking, Exit, RunCommand, RunCommandReply, RunOnce, Secret,
    Stream,
};
pub use system::{
    AcceptStream, Configure, Configured, FindUser, MountVolume, NetworkSet, OpenStream, Ping, Pong,
    Quiesce, Quiesced, Reidentified, Reidentify, SetNetwork, Shutdown, ShuttingDown, StreamClosed,
    Thaw, Thawed, Usage, UsageReport, UserFound, VolumeMounted,
};
pub use tasks::{
    GuestTaskOutcome, GuestTaskResult, GuestTaskState, TaskAck, TaskAcked, TaskCancel,
    TaskCancelled, TaskList, TaskListReply, TaskProgress, TaskPut, TaskPutReply, TaskRead,
    TaskReadReply, TaskResults, TaskResultsPush, TaskResultsReply, TaskStreamOutput, TasksKeep,
    TasksKept,
};
