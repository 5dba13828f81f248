//! Moves of names between scopes, with all their versions.

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_runtime::log::Decision;
use hivekeep_store::NewEvent;
use serde_json::json;

use super::{Answer, Logs, ManifestRegistry, Named, RegistryCaller, named, not_found};
use crate::{ManifestEntry, ManifestScope, RegisteredManifest, codes, entry::Record};

/// Direction of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScopeMove {
    /// To more callers: from a user to the tenant to all.
    Promote,
    /// To fewer callers.
    Demote,
}

impl ScopeMove {
    /// Whether a name of a scope gets to the target so.
    fn fits(self, from: ManifestScope, target: ManifestScope) -> bool {
        match self {
            Self::Promote => from.height() < target.height(),
            Self::Demote => from.height() > target.height(),
        }
    }
}

impl<M: RegisteredManifest> ManifestRegistry<M> {
    /// Moves a name to another scope, under its id. Where a name is in several scopes, the one that is next to the
    /// target is meant. Answered when it is on the disk.
    ///
    /// # Errors
    /// `scope_unfit` for a caller who is no operator, and for a target on the wrong side; the kind's code,
    /// `scope_name_taken`, `manifest_registry_full`.
    pub async fn relocate(
        &self,
        caller: RegistryCaller,
        asked: &str,
        way: ScopeMove,
        target: ManifestScope,
    ) -> Answer<(M::Id, String)> {
        if !caller.operator {
            let told = format!("operators alone move {}s between scopes", M::KIND);
            return Err(ToolError::new(Layer::Policy, codes::SCOPE_UNFIT, told)
                .next("have an operator do it, or deploy a copy by a name of your own"));
        }
        let (id, name, written) = {
            let logs = self.logs();
            let (id, entry) = moved(&logs, caller, asked, way, target)?;
            let shipped =
                self.shipped.iter().find(|(_, it)| it.scope == target && it.name == entry.name);
            let taken = named(&logs, target, &entry.name).map(|(id, _)| id);
            if let Some(other) = taken.or(shipped.map(|(id, _)| *id)) {
                let (kind, scope) = (M::KIND, target.name());
                let told = format!("the {kind} `{}` is in the scope {scope} already", entry.name);
                return Err(ToolError::new(Layer::Actor, codes::SCOPE_NAME_TAKEN, told)
                    .next("delete or move what `details.id` names, or deploy this one by another name")
                    .detail("id", other.to_string()));
            }
            self.check_room(&logs, target, None, entry.bytes())?;
            let data = json!({ "from": entry.scope, "to": target, "by": caller.user });
            let kind = format!("{}.moved", M::KIND);
            let decision = Decision::record(Record::Moved { scope: target }).event(NewEvent {
                kind,
                subject: id.to_string(),
                data,
            });
            let log = logs.get(&id).ok_or_else(|| not_found::<M>(asked))?;
            (id, entry.name, log.decide(|_| Ok::<_, ToolError>(decision))?)
        };
        written.await?;
        Ok((id, name))
    }
}

/// Name that a move means.
fn moved<M: RegisteredManifest>(
    logs: &Logs<M>,
    caller: RegistryCaller,
    asked: &str,
    way: ScopeMove,
    target: ManifestScope,
) -> Answer<Named<M>> {
    let asked_id = asked.parse::<M::Id>().ok();
    let is = |id: M::Id, entry: &ManifestEntry<M>| {
        let near = entry.scope.owner().is_none_or(|user| user == caller.user);
        asked_id.map_or(near && entry.name == asked, |asked| asked == id)
    };
    let decided = |(id, log): (&M::Id, &hivekeep_runtime::log::Log<ManifestEntry<M>>)| {
        let entry = log.views(|decided, _| decided.filter(|entry| is(*id, entry)).cloned());
        entry.map(|entry| (*id, entry))
    };
    let known: Vec<Named<M>> = logs.iter().filter_map(decided).collect();
    let Some(scope) = known.first().map(|(_, entry)| entry.scope) else {
        return Err(not_found::<M>(asked));
    };
    let fitting = known.into_iter().filter(|(_, entry)| way.fits(entry.scope, target));
    let nearest = fitting.min_by_key(|(_, entry)| entry.scope.height().abs_diff(target.height()));
    nearest.ok_or_else(|| {
        let side = match way {
            ScopeMove::Promote => "below",
            ScopeMove::Demote => "above",
        };
        let (kind, scope, target) = (M::KIND, scope.name(), target.name());
        let told = format!("the {kind} `{asked:.80}` is in the scope {scope}, not {side} {target}");
        ToolError::new(Layer::Actor, codes::SCOPE_UNFIT, told)
            .next("name another scope; a promotion goes up, a demotion down")
    })
}
