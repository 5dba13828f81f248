//! Steps of a preparation in the guest, a clone and the commands of the setup, and the internet access for
//! as long as they take.

use std::time::Duration;

use hivekeep_git as git;
use hivekeep_git::{CloneRequest, Git, GitUrl};
use hivekeep_kernel::{CallCx, Layer, ToolError, TraceContext, WorkspaceId};
use hivekeep_link::{CallTerms, Link, LinkError};
use hivekeep_ports::{Network, NetworkMode, NetworkRequest};
use hivekeep_protocol::{Argv, RunCommand};
use tokio::{sync::watch, time::Instant};

use crate::{
    codes,
    commands::exit_code,
    link_state::{self, LinkState},
    messages::Setup,
    prepare::api::{Internet, PrepareStep, StepKind},
    tail::Tail,
};

/// Git settings that let the commands work on the clone, which need not be root's.
const TRUSTED: [(&str, &str); 3] = [
    ("GIT_CONFIG_COUNT", "1"),
    ("GIT_CONFIG_KEY_0", "safe.directory"),
    ("GIT_CONFIG_VALUE_0", "*"),
];
/// Folder of the clone, as commands without a working directory expect it.
const INTO: &str = "/workspace";
/// The end of a failed command's output that its caller gets.
const TAIL_BYTES: usize = 8 * 1024;
/// Time that the guest's answer is awaited beyond the command's own limit.
const ANSWER_MARGIN: Duration = Duration::from_secs(10);
/// Time to wait for a link that is being made anew.
const LINK_PATIENCE: Duration = Duration::from_secs(30);
/// Longest part of a command that progress and answers show, in characters.
const SHOWN: usize = 200;

/// Reports each step as it begins.
pub(super) struct StepReporter<'c> {
    cx: &'c CallCx,
    begun: usize,
    all: usize,
}

impl<'c> StepReporter<'c> {
    pub(crate) fn new(cx: &'c CallCx, all: usize) -> Self {
        Self { cx, begun: 0, all }
    }

    pub(crate) fn begin(&mut self, what: &str) {
        self.begun += 1;
        let (done, all) = (self.begun - 1, self.all);
        let text = format!("step {} of {all}: {what}", self.begun);
        #[allow(clippy::cast_precision_loss, reason = "at most some dozens")]
        self.cx.progress.report(done as f64, Some(all as f64), text);
    }
}

/// Runs the setup: the clone as `user` (`None` for root), the commands as root.
///
/// # Errors
/// Those of [`git::clone_anew`], `setup_failed`; when the guest cannot be reached.
pub(super) async fn run(
    link_state: &mut watch::Receiver<LinkState>,
    setup: &Setup,
    user: Option<String>,
    reporter: &mut StepReporter<'_>,
) -> Result<Vec<PrepareStep>, ToolError> {
    let mut steps = Vec::new();
    let mut guest = Guest { link_state, cx: reporter.cx, timeout_secs: setup.timeout_secs };
    if let Some(url) = &setup.git_url {
        reporter.begin(&format!("git clone {}", url.plain()));
        steps.push(guest.clone(url, setup, user).await?);
    }
    for (index, command) in setup.commands.iter().enumerate() {
        reporter.begin(&shown(command));
        steps.push(guest.command(index, command).await?);
    }
    Ok(steps)
}

fn shown(command: &str) -> String {
    let plain: String = command.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match plain.char_indices().nth(SHOWN) {
        None => plain,
        Some((end, _)) => format!("{}…", &plain[..end]),
    }
}

/// How a command ended.
struct Ended {
    exit_code: i32,
    timed_out: bool,
    output: String,
    elapsed_ms: u64,
}

struct Guest<'l> {
    link_state: &'l mut watch::Receiver<LinkState>,
    cx: &'l CallCx,
    timeout_secs: u64,
}

impl Guest<'_> {
    async fn clone(
        &mut self,
        url: &GitUrl,
        setup: &Setup,
        user: Option<String>,
    ) -> Result<PrepareStep, ToolError> {
        let begun = Instant::now();
        let git = Git::new(self.link().await?, "/".to_owned(), Vec::new());
        let mut git = git.trusting(setup.ca_file.clone()).as_user(user);
        let wanted = CloneRequest {
            url: url.clone(),
            login: setup.login.clone(),
            path: INTO.to_owned(),
            branch: None,
            depth: None,
            sparse_paths: Vec::new(),
            timeout: Duration::from_secs(self.timeout_secs),
        };
        self.cx.guard(git::clone_anew(&mut git, &wanted)).await.map_err(|error| {
            error.next("nothing of the workspace is left: correct what the error says and repeat; a token can be part of git_url")
        })?;
        let elapsed_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let what = format!("git clone {}", url.plain());
        Ok(PrepareStep { kind: StepKind::Clone, what, elapsed_ms })
    }

    async fn link(&mut self) -> Result<Link, ToolError> {
        let patience = LINK_PATIENCE.min(self.cx.remaining());
        self.cx.guard(link_state::usable(self.link_state, patience)).await
    }

    async fn command(&mut self, index: usize, command: &str) -> Result<PrepareStep, ToolError> {
        let argv = Argv::Shell(command.to_owned());
        let trace = self.cx.trace.iter().flat_map(TraceContext::variables);
        let env = trace.chain(TRUSTED).map(|(name, value)| (name.to_owned(), value.to_owned()));
        let env = env.collect();
        let ended = self.exec(argv, env).await?.map_err(hivekeep_link::link_error)?;
        let what = shown(command);
        if ended.exit_code == 0 && !ended.timed_out {
            let elapsed_ms = ended.elapsed_ms;
            return Ok(PrepareStep { kind: StepKind::Command, what, elapsed_ms });
        }
        let how = match ended.timed_out {
            true => format!("did not end within {} s", self.timeout_secs),
            false => format!("exited with {}", ended.exit_code),
        };
        let message = format!("setup_commands[{index}] {how}: {what}");
        Err(ToolError::new(Layer::Guest, codes::SETUP_FAILED, message)
            .next("the output says why; nothing of the workspace is left, so correct it and repeat")
            .detail("command_index", index)
            .detail("exit_code", ended.exit_code)
            .detail("timed_out", ended.timed_out)
            .detail("elapsed_ms", ended.elapsed_ms)
            .detail("output", ended.output))
    }

    /// Runs one command to its end, or to that of the call.
    async fn exec(
        &mut self,
        argv: Argv,
        env: Vec<(String, String)>,
    ) -> Result<Result<Ended, LinkError>, ToolError> {
        let link = self.link().await?;
        let request = RunCommand {
            argv,
            env,
            workdir: None,
            timeout_ms: self.timeout_secs * 1000,
            // All output passes by here; only its end is kept.
            max_output_bytes: u64::MAX,
        };
        let limit = Duration::from_secs(self.timeout_secs) + ANSWER_MARGIN;
        let deadline = (Instant::now() + limit).min(self.cx.deadline);
        let wait = CallTerms { deadline, cancel: self.cx.cancel.clone() };
        let mut tail = Tail::new(TAIL_BYTES);
        let done = link.exec_followed(request, wait, |_, bytes| tail.push(bytes)).await;
        Ok(done.map(|done| Ended {
            exit_code: exit_code(done.exit).0,
            timed_out: done.timed_out,
            output: tail.text(),
            elapsed_ms: done.elapsed_ms,
        }))
    }
}

/// Internet access of a setup, and the policy before.
pub(super) struct Opened {
    pub(crate) internet: Internet,
    /// Why the internet is unavailable.
    pub(crate) why: Option<String>,
    before: Option<bool>,
}

/// Refuses a request for the internet that this host cannot keep.
///
/// # Errors
/// `network_unavailable`, with the reason.
pub(crate) async fn check(network: &dyn Network, wanted: Option<bool>) -> Result<(), ToolError> {
    let why = match (wanted, network.mode().await?) {
        (Some(true), NetworkMode::User { reason } | NetworkMode::Off { reason }) => reason,
        _ => return Ok(()),
    };
    let message = format!("a setup cannot be given the internet here: {why}");
    Err(ToolError::new(Layer::Machine, codes::NETWORK_UNAVAILABLE, message)
        .next("leave allow_internet out, and set up without it"))
}

/// Sets the policy for the setup. Unless the caller says otherwise, the setup has the internet
/// where a bridge can give it.
///
/// # Errors
/// When the policy cannot be set as the caller wants it.
pub(super) async fn open(
    network: &dyn Network,
    id: WorkspaceId,
    asked: Option<bool>,
) -> Result<Opened, ToolError> {
    let unavailable =
        |why| Opened { internet: Internet::Unavailable, why: Some(why), before: None };
    let wanted = asked.unwrap_or(true);
    let mode = network.mode().await?;
    if let (true, NetworkMode::User { reason } | NetworkMode::Off { reason }) = (wanted, mode) {
        return Ok(unavailable(reason));
    }
    let Some(view) = network.view(id) else {
        return Ok(match wanted {
            true => unavailable("the workspace is not in the network".to_owned()),
            false => Opened { internet: Internet::Off, why: None, before: None },
        });
    };
    let now = view.policy.allow_internet;
    let internet = match (wanted, now) {
        (true, true) => Internet::Allowed,
        (true, false) => Internet::DuringSetup,
        (false, _) => Internet::Off,
    };
    if wanted != now
        && let Err(error) = set(network, id, wanted).await
    {
        // The caller did not ask for the internet, and this host was not seen to enforce the policy.
        return match asked {
            None if error.is(codes::POLICY_UNAVAILABLE) => Ok(unavailable(error.message)),
            _ => Err(error),
        };
    }
    Ok(Opened { internet, why: None, before: (wanted != now).then_some(now) })
}

/// Puts the policy back: a golden workspace has the one that it was made with.
///
/// # Errors
/// When the policy is not in force; then the setup must not be kept.
pub(super) async fn close(
    network: &dyn Network,
    id: WorkspaceId,
    opened: &Opened,
) -> Result<(), ToolError> {
    match opened.before {
        Some(before) => set(network, id, before).await,
        None => Ok(()),
    }
}

async fn set(network: &dyn Network, id: WorkspaceId, allow: bool) -> Result<(), ToolError> {
    let wanted = NetworkRequest { allow_internet: Some(allow), ..NetworkRequest::default() };
    let policy = network.set_policy(id, wanted).await?;
    if policy.allow_internet == allow {
        return Ok(());
    }
    let message = format!("allow_internet is not {allow} after it was set so");
    Err(ToolError::new(Layer::Machine, codes::POLICY_NOT_APPLIED, message))
}
