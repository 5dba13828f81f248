//! Internet access for as long as a setup takes.

use hivekeep_kernel::{
    Layer, ToolError, WorkspaceId,
    ports::{Network, NetworkMode, NetworkWish},
};

use crate::{codes, prepare::api::Internet};

/// Internet access of a setup, and the policy before.
pub(super) struct Opened {
    pub(crate) internet: Internet,
    /// Why the internet is unavailable.
    pub(crate) why: Option<String>,
    before: Option<bool>,
}

/// Refuses a wish for the internet that this host cannot keep.
///
/// # Errors
/// `network_unavailable`, with the reason.
pub(crate) async fn check(network: &dyn Network, wish: Option<bool>) -> Result<(), ToolError> {
    let why = match (wish, network.mode().await?) {
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
    wish: Option<bool>,
) -> Result<Opened, ToolError> {
    let unavailable =
        |why| Opened { internet: Internet::Unavailable, why: Some(why), before: None };
    let wanted = wish.unwrap_or(true);
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
        return match wish {
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
    let wish = NetworkWish { allow_internet: Some(allow), ..NetworkWish::default() };
    let policy = network.set_policy(id, wish).await?;
    if policy.allow_internet == allow {
        return Ok(());
    }
    let message = format!("allow_internet is not {allow} after it was set so");
    Err(ToolError::new(Layer::Machine, codes::POLICY_NOT_APPLIED, message))
}
