//! Request catalogue, with the direction of each message in the type, and the error that answers any.

use serde::{Deserialize, Serialize};

use crate::*;

/// Request with a known reply type.
pub trait GuestRequest: Send + Sized + 'static {
    /// Type of the reply.
    type Reply: Send + 'static;
    /// Converts to the wire's enum.
    fn into_wire(self) -> ToGuest;
    /// Converts from the wire's enum; `None` when the guest answered something else.
    fn reply_of(reply: FromGuest) -> Option<Self::Reply>;
}

macro_rules! requests {
    ($($(#[$doc:meta])* $request:ident => $reply:ident,)+) => {
        /// Payload of a [`FrameKind::Request`] frame. New kinds are added at the end.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub enum ToGuest { $($(#[$doc])* $request($request),)+ }

        /// Payload of a successful [`FrameKind::Reply`] frame, in the order of [`ToGuest`].
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub enum FromGuest { $(
            #[doc = concat!("Answer to [`ToGuest::", stringify!($request), "`].")]
            $request($reply),
        )+ }

        $(impl GuestRequest for $request {
            type Reply = $reply;
            fn into_wire(self) -> ToGuest { ToGuest::$request(self) }
            fn reply_of(reply: FromGuest) -> Option<$reply> {
                match reply { FromGuest::$request(reply) => Some(reply), _ => None }
            }
        })+
    };
}

requests! {
    /// Liveness.
    Ping => Pong,
    /// Configure after each new link.
    Configure => Configured,
    /// Memory and disk.
    Usage => UsageReport,
    /// Power off.
    Shutdown => ShuttingDown,
    /// Run and wait.
    RunCommand => RunCommandReply,
    /// Run in the background.
    JobStart => JobStarted,
    /// Read a job.
    JobPoll => JobReport,
    /// Signal a job.
    JobKill => JobKilled,
    /// All jobs.
    JobList => JobListReply,
    /// Remove an ended job.
    JobForget => JobForgotten,
    /// Download.
    ReadFile => ReadFileReply,
    /// Upload.
    WriteFile => WriteFileReply,
    /// Replace text: of earlier daemons; no guest answers it any more.
    EditFile => EditFileReply,
    /// List a directory.
    ListFolder => ListFolderReply,
    /// Stat one entry.
    FileStat => FileEntry,
    /// Take an identity after a start from another machine's memory.
    Reidentify => Reidentified,
    /// Sync and freeze the disk.
    Quiesce => Quiesced,
    /// Let the disk be written again.
    Thaw => Thawed,
    /// Set the network interface.
    SetNetwork => NetworkSet,
    /// Run git and answer its askpass.
    ExecAsking => ExecAsked,
    /// Assign a task.
    TaskPut => TaskPutReply,
    /// Tasks that wait or run.
    TaskList => TaskListReply,
    /// Read the results of tasks.
    TaskResults => TaskResultsReply,
    /// Acknowledge results.
    TaskAck => TaskAcked,
    /// End a task.
    TaskCancel => TaskCancelled,
    /// Read a task's output.
    TaskRead => TaskReadReply,
    /// Run an operation of the file engine.
    RunFileOperation => FileOperationDone,
    /// Start a process with an open input.
    ProcessStart => JobStarted,
    /// Write to a process.
    ProcessInput => ProcessInputTaken,
    /// End a process in order.
    ProcessStop => JobKilled,
    /// Mount a volume.
    MountVolume => VolumeMounted,
    /// Run an operation of the file engine as a user, from a folder on.
    RunFileOperationIn => FileOperationDone,
    /// Find a user.
    FindUser => UserFound,
    /// Start a process without an input.
    ProcessStartWithoutInput => JobStarted,
    /// Read a job when there is something new.
    JobWait => JobReport,
    /// Set the size of a terminal.
    ProcessResize => ProcessResized,
    /// Watch a folder.
    WatchStart => WatchStarted,
    /// Read the changes of a watch.
    WatchRead => WatchChanges,
    /// End a watch.
    WatchEnd => WatchEnded,
    /// Connect to a port.
    OpenStream => StreamClosed,
    /// Start a process whose output is held back for its reader.
    ProcessStartHeld => JobStarted,
    /// Upload as a user.
    WriteFileAs => WriteFileReply,
    /// Take a connection to a port.
    AcceptStream => StreamClosed,
    /// Run under a key, or ask what came of it.
    RunOnce => RunCommandReply,
    /// Keep the tasks of the machine that this one is a copy of.
    TasksKeep => TasksKept,
}

/// Payload of a [`FrameKind::Event`] frame: pushed by the guest without being asked. Events are hints,
/// one of which may be lost with a link; the host asks for the truth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuestEvent {
    /// A job ended.
    JobEnded(JobSummary),
    /// A task was started or has a result: ask by [`TaskResults`].
    TasksChanged,
    /// A task has a result, which is included.
    TaskEnded(TaskResultsPush),
    /// A task has written output.
    TaskProgress(TaskProgress),
}

/// Error with which the guest refuses or fails a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct GuestError {
    /// Code that a caller can act on.
    pub code: GuestCode,
    /// Message for people; names the path, job, task or limit concerned.
    pub message: String,
}

/// Error codes of the guest. New ones are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GuestCode {
    /// No such file or directory.
    NotFound,
    /// The guest's kernel refused access.
    PermissionDenied,
    /// A directory was expected.
    NotADirectory,
    /// A file was expected.
    IsADirectory,
    /// The guest's disk is full.
    NoSpace,
    /// A limit of [`crate::limits`] was exceeded.
    TooLarge,
    /// The request makes no sense (empty path, bad variable name).
    Invalid,
    /// Too many calls in flight, or too many jobs.
    Busy,
    /// No job of that id.
    UnknownJob,
    /// The job id is taken by another command.
    JobConflict,
    /// The call was cancelled by the host.
    Cancelled,
    /// `old_string` does not occur in the file.
    NoMatch,
    /// The file is not UTF-8.
    NotUtf8,
    /// The program could not be started.
    CannotStart,
    /// Any other I/O error.
    Io,
    /// A defect of the guest daemon; the call alone failed.
    Internal,
    /// The request's kind is not known to this guest.
    Unsupported,
    /// No task of that id.
    UnknownTask,
    /// The process reads no input: it has ended, or its input is closed.
    InputClosed,
    /// The machine has no user or group of that name or number.
    UnknownUser,
    /// No watch of that id: it was ended, or its daemon was.
    UnknownWatch,
    /// Nothing takes connections on the port.
    PortClosed,
    /// Something else in the guest listens on the port.
    PortTaken,
    /// Nothing is known of a command of that key.
    UnknownRun,
}

impl GuestError {
    /// Makes an error from its parts.
    pub fn new(code: GuestCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}
