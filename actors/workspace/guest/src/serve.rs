//! From a request to its handler.

use hivekeep_protocol::{FromGuest, GuestCode, GuestError, Pong, ToGuest};

use crate::as_user;
use crate::ask;
use crate::exec;
use crate::files;
use crate::freeze;
use crate::identity;
use crate::jobs;
use crate::network;
use crate::session::call::RequestContext;
use crate::streams;
use crate::system;
use crate::tasks;
use crate::volumes;
use crate::watches;

/// Answers one call.
///
/// # Errors
/// The error of the call, as the host gets it.
pub async fn answer(cx: &RequestContext, request: ToGuest) -> Result<FromGuest, GuestError> {
    Ok(match request {
        ToGuest::Ping(ping) => FromGuest::Ping(Pong { payload: ping.payload }),
        ToGuest::Configure(it) => FromGuest::Configure(system::configure(cx, it).await?),
        ToGuest::Usage(it) => FromGuest::Usage(system::usage(cx, it).await?),
        ToGuest::Shutdown(it) => FromGuest::Shutdown(system::shutdown(cx, &it).await?),
        ToGuest::RunCommand(it) => FromGuest::RunCommand(exec::run(cx, it).await?),
        ToGuest::ExecAsking(it) => FromGuest::ExecAsking(ask::run(cx, it).await?),
        ToGuest::JobStart(it) => FromGuest::JobStart(jobs::start(cx, it).await?),
        ToGuest::JobPoll(it) => FromGuest::JobPoll(jobs::poll(cx, it).await?),
        ToGuest::JobKill(it) => FromGuest::JobKill(jobs::kill(cx, it).await?),
        ToGuest::JobList(_) => FromGuest::JobList(jobs::list(cx).await?),
        ToGuest::JobForget(it) => FromGuest::JobForget(jobs::forget(cx, it).await?),
        ToGuest::ReadFile(it) => FromGuest::ReadFile(files::content::read(cx, it).await?),
        ToGuest::WriteFile(it) => FromGuest::WriteFile(files::content::write(cx, it, None).await?),
        ToGuest::WriteFileAs(it) => {
            FromGuest::WriteFileAs(files::content::write(cx, it.write, Some(it.user)).await?)
        }
        ToGuest::EditFile(_) => {
            let why = "files are edited by operations of the file engine";
            return Err(GuestError::new(GuestCode::Unsupported, why));
        }
        ToGuest::ListFolder(it) => FromGuest::ListFolder(files::list(it).await?),
        ToGuest::Reidentify(it) => FromGuest::Reidentify(identity::reidentify(cx, it)?),
        ToGuest::Quiesce(it) => FromGuest::Quiesce(freeze::quiesce(cx, &it).await?),
        ToGuest::Thaw(_) => FromGuest::Thaw(freeze::thaw(cx).await?),
        ToGuest::SetNetwork(it) => FromGuest::SetNetwork(network::set(cx, it).await?),
        ToGuest::TaskPut(it) => FromGuest::TaskPut(tasks::put(cx, it).await?),
        ToGuest::TaskList(_) => FromGuest::TaskList(tasks::list(cx).await?),
        ToGuest::TaskResults(it) => FromGuest::TaskResults(tasks::results(cx, it).await?),
        ToGuest::TaskAck(it) => FromGuest::TaskAck(tasks::acknowledge(cx, it).await?),
        ToGuest::TaskCancel(it) => FromGuest::TaskCancel(tasks::cancel(cx, it).await?),
        ToGuest::TaskRead(it) => FromGuest::TaskRead(tasks::read(cx, it).await?),
        ToGuest::RunFileOperation(it) => {
            FromGuest::RunFileOperation(files::operation::run(cx, it).await?)
        }
        ToGuest::ProcessStart(it) => FromGuest::ProcessStart(jobs::process::start(cx, it).await?),
        ToGuest::ProcessInput(it) => FromGuest::ProcessInput(jobs::process::input(cx, it).await?),
        ToGuest::ProcessStop(it) => FromGuest::ProcessStop(jobs::process::stop(cx, it).await?),
        ToGuest::MountVolume(it) => FromGuest::MountVolume(volumes::mount_one(cx, it).await?),
        ToGuest::RunFileOperationIn(it) => {
            FromGuest::RunFileOperationIn(files::operation::run_in(cx, it).await?)
        }
        ToGuest::FindUser(it) => FromGuest::FindUser(as_user::tell(it).await?),
        ToGuest::ProcessStartWithoutInput(it) => {
            FromGuest::ProcessStartWithoutInput(jobs::process::start_without_input(cx, it).await?)
        }
        ToGuest::ProcessStartHeld(it) => {
            FromGuest::ProcessStartHeld(jobs::process::start_held(cx, it).await?)
        }
        ToGuest::JobWait(it) => FromGuest::JobWait(jobs::wait::wait(cx, it).await?),
        ToGuest::ProcessResize(it) => {
            FromGuest::ProcessResize(jobs::process::resize(cx, it).await?)
        }
        ToGuest::WatchStart(it) => FromGuest::WatchStart(watches::start(cx, it).await?),
        ToGuest::WatchRead(it) => FromGuest::WatchRead(watches::read(cx, it).await?),
        ToGuest::WatchEnd(it) => FromGuest::WatchEnd(watches::end(cx, &it)),
        ToGuest::OpenStream(it) => FromGuest::OpenStream(streams::open(cx, it).await?),
        ToGuest::AcceptStream(it) => FromGuest::AcceptStream(streams::accept(cx, it).await?),
        ToGuest::TasksKeep(it) => FromGuest::TasksKeep(tasks::keep(cx, it).await?),
        ToGuest::RunOnce(it) => FromGuest::RunOnce(exec::once::run(cx, it).await?),
        ToGuest::FileStat(it) => FromGuest::FileStat(files::stat(it).await?),
    })
}
