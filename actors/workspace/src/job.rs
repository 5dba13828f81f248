//! Background jobs of a workspace: each has an actor that follows it until it ends.

use std::{collections::HashMap, time::Duration};

use hivekeep_kernel::{Address, Children, Context, Entity, Fault, JobId, RestartPolicy};
use hivekeep_link::{CallTerms, LinkError};
use hivekeep_protocol::{GuestCode, JobPoll, JobSummary};
use serde_json::json;
use tokio::sync::watch;

use crate::{
    handle::WorkspaceHandle,
    link_state::LinkState,
    records::{ProcessExit, Record},
};

/// Interval between looks at a job whose end was not announced.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// The jobs of a workspace that an actor follows.
#[derive(Default)]
pub(crate) struct Jobs(HashMap<JobId, Address<Msg>>);

impl Jobs {
    /// Has an actor follow a job, unless one does.
    pub(crate) fn follow(&mut self, children: &mut Children, args: Args) -> Result<(), Fault> {
        let job = args.job;
        if self.0.contains_key(&job) {
            return Ok(());
        }
        let name = job.to_string();
        let address = children.address(&name, "job", RestartPolicy::ENTITY);
        children.start::<Job>(&name, RestartPolicy::ENTITY, &address, args)?;
        self.0.insert(job, address);
        Ok(())
    }

    /// Handles the guest's event that a job ended: the job's actor asks how.
    pub(crate) fn ended_in_guest(&self, job: &str) {
        let address = job.parse().ok().and_then(|job: JobId| self.0.get(&job));
        if let Some(address) = address {
            let _ended_already = address.send(Msg::Look);
        }
    }

    /// Forgets a job by the name of its actor, which is gone.
    pub(crate) fn gone(&mut self, name: &str) {
        if let Ok(job) = name.parse() {
            self.0.remove(&job);
        }
    }
}

/// Messages to a job's actor.
pub enum Msg {
    /// The job's end was announced: look.
    Look,
    /// Outcome of a look; `None` when the guest could not be asked.
    Looked(Option<Found>),
    /// The job's end could not be recorded.
    Unrecorded,
}

/// Summary of the job; `None` when the guest has no such job.
type Found = Option<JobSummary>;

/// Arguments of one incarnation of the actor.
#[derive(Clone)]
pub(crate) struct Args {
    pub(crate) job: JobId,
    pub(crate) workspace: WorkspaceHandle,
    pub(crate) link_state: watch::Receiver<LinkState>,
}

pub(crate) struct Job {
    args: Args,
    me: Context<Msg>,
    /// A look is under way. There is one at a time, however often the guest announces the end.
    looking: bool,
    /// The end was announced during that look, which may have been too early to see it.
    again: bool,
    /// The job's end is being recorded, or was.
    ending: bool,
}

impl Entity for Job {
    type Msg = Msg;
    type Args = Args;

    async fn start(args: Args, me: Context<Msg>) -> Result<Self, Fault> {
        let address = me.address.clone();
        let _detached = me.workers.spawn(async move {
            // The first look finds jobs that ended while nobody watched.
            tokio::time::sleep(Duration::from_millis(100)).await;
            while address.send(Msg::Look).is_ok() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        Ok(Self { args, me, looking: false, again: false, ending: false })
    }

    fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            Msg::Look if self.looking => self.again = true,
            Msg::Look => self.look(),
            Msg::Looked(found) => {
                self.looking = false;
                if let Some(found) = found {
                    self.found(found);
                }
                if std::mem::take(&mut self.again) {
                    self.look();
                }
            }
            Msg::Unrecorded => self.ending = false,
        }
        Ok(())
    }
}

impl Job {
    fn look(&mut self) {
        if self.ending {
            return;
        }
        self.looking = true;
        let (args, address) = (self.args.clone(), self.me.address.clone());
        let _detached = self.me.workers.spawn(async move {
            let found = look(args).await;
            let _gone = address.send(Msg::Looked(found));
        });
    }

    fn found(&mut self, found: Found) {
        match found {
            None => self.end(json!({ "job_id": self.args.job, "lost": true }), None),
            Some(summary) if summary.exit.is_some() || summary.interrupted => {
                let (code, signal) = summary.exit.map_or((None, None), |exit| match exit {
                    hivekeep_protocol::Exit::Code(code) => (Some(code), None),
                    hivekeep_protocol::Exit::Signal(signal) => (None, Some(signal)),
                });
                let at_unix_ms = summary.finished_unix_ms;
                let known = summary.exit.filter(|_| !summary.interrupted);
                let event = json!({
                    "job_id": self.args.job, "exit_code": code, "signal": signal,
                    "interrupted": summary.interrupted,
                });
                self.end(event, known.map(|_| ProcessExit { code, signal, at_unix_ms }));
            }
            Some(_) => {}
        }
    }

    fn end(&mut self, event: serde_json::Value, end: Option<ProcessExit>) {
        self.ending = true;
        let (workspace, job, me) = (self.args.workspace.clone(), self.args.job, self.me.clone());
        let _detached = self.me.workers.spawn(async move {
            let record = Record::JobEnded { job, end };
            match workspace.commit(vec![record], Some(("job.ended", event))).await {
                Ok(()) => me.stop("the job ended"),
                Err(error) => {
                    tracing::error!(%job, %error, "a job's end could not be recorded");
                    let _gone = me.address.send(Msg::Unrecorded);
                }
            }
        });
    }
}

/// `None` when the guest cannot be asked now; `Some(None)` when it has no such job.
async fn look(mut args: Args) -> Option<Found> {
    let link = match args
        .link_state
        .wait_for(|link_state| matches!(link_state, LinkState::Up(_)))
        .await
        .ok()?
        .clone()
    {
        LinkState::Up(link) => link,
        _ => return None,
    };
    let poll =
        JobPoll { job_id: args.job.to_string(), stdout_from: 0, stderr_from: 0, max_bytes: 0 };
    match link.ask(poll, CallTerms::at_most(Duration::from_secs(20))).await {
        Ok(report) => Some(Some(report.summary)),
        Err(LinkError::Guest(error)) if error.code == GuestCode::UnknownJob => Some(None),
        Err(_) => None,
    }
}
