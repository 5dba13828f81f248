//! A person's approval, where a policy asks for one.
//!
//! No one can be asked yet, so a call that needs an approval is refused. That is
//! an answer, not a gap: it must never run unapproved.

use hivekeep_kernel::{Layer, ToolError};

use super::decide::{Asks, Ruling, Verdict, json};
use crate::Entry;
use crate::codes;

const LAYER: &str = "approval";

pub(super) fn pass(
    asks: Asks,
    entry: &Entry,
    verdicts: &mut Vec<Verdict>,
) -> Result<(), ToolError> {
    let Asks::Approval(policy) = asks else {
        let why = "no approval is needed".into();
        verdicts.push(Verdict { layer: LAYER, ruling: Ruling::Allow, why });
        return Ok(());
    };
    let why = "there is nobody who could be asked".into();
    verdicts.push(Verdict { layer: LAYER, ruling: Ruling::Deny, why });
    let message = format!(
        "the {policy} policy wants a person's approval for `{}`, and there is no way to ask for one",
        entry.name()
    );
    Err(ToolError::new(Layer::Approval, codes::APPROVAL_REQUIRED, message)
        .next("do without it, or have the operator change the policy")
        .detail("policy", policy)
        .detail("verdicts", json(verdicts)))
}
