//! Wire protocol between the daemon and the guest: types and framing, no I/O.
//!
//! One connection carries many calls. Every frame names the call it belongs to ([`Frame::id`]); a
//! call is opened by a [`Kind::Request`], may exchange [`Kind::Data`] in either direction under
//! credit, and is closed by exactly one [`Kind::Reply`] from the guest.
//!
//! ```text
//! host                              guest
//!  │ SYNC nonce ───────────────────► │   resynchronises a byte stream that
//!  │ ◄─────────────────── SYNC nonce │   may hold bytes of an older connection
//!  │ Hello{versions, token} ───────► │
//!  │ ◄──────────── Welcome | Refused │
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
mod files;
mod frame;
mod hello;
mod jobs;
pub mod limits;
mod network;
mod request;
mod run;
mod sync;
mod system;
mod tasks;

pub use asking::{Credential, ExecAsked, ExecAsking, Secret};
pub use encode::{DecodeError, EncodeError, decode, encode};
pub use error::{GuestCode, GuestError};
pub use files::{
    EntryKind, FileEdit, FileEdited, FileEntry, FileList, FileListed, FileRead, FileReadDone,
    FileStat, FileWrite, FileWritten,
};
pub use frame::{Decoder, Frame, FrameError, HEADER_LEN, Kind};
pub use hello::{Containment, Hello, PROTOCOL_VERSION, Refusal, Welcome};
pub use jobs::{
    JobForget, JobForgotten, JobKill, JobKilled, JobList, JobPoll, JobReport, JobStart, JobStarted,
    JobSummary, Jobs, Spool,
};
pub use network::{NetworkSet, SetNetwork};
pub use request::{FromGuest, GuestEvent, Request, ToGuest};
pub use run::{Argv, Exec, ExecDone, Exit, Stream};
pub use sync::{SYNC_LEN, SyncScanner, begins_sync, nonce_of, sync_preamble};
pub use system::{
    Configure, Configured, Ping, Pong, Quiesce, Quiesced, Reidentified, Reidentify, Shutdown,
    ShuttingDown, Thaw, Thawed, Usage, UsageReport,
};
pub use tasks::{
    TaskAck, TaskAcked, TaskCancel, TaskCancelled, TaskList, TaskNews, TaskOutcome, TaskOutput,
    TaskPage, TaskProgress, TaskPut, TaskRead, TaskReading, TaskResult, TaskResults, TaskState,
    TaskTaken, Tasks,
};
