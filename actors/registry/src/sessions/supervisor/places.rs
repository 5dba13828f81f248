//! Admission of one more session: the idlest that nobody needs makes room for it.

use std::cmp::Reverse;

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_runtime::collection::CollectionMember;

use super::{Sessions, member::SessionMember};
use crate::{
    codes,
    sessions::{EndReason, User, session},
};

impl Sessions {
    /// Ends the idlest session that nobody needs if there are too many, of all or of this user.
    pub(super) fn make_room(&mut self, user: User) -> Result<(), ToolError> {
        let max = self.table.options.sessions.max_sessions.get();
        // Sessions of a user do not keep the others out, the operator among them.
        let of_one = max - max / 4;
        let taking = || self.live.iter().map(|(_, member)| member).filter(|one| one.takes_place());
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let all = count(taking().count());
        let own = count(taking().filter(|member| member.user() == user).count());
        if all < max && own < of_one {
            return Ok(());
        }
        let mut idle: Vec<_> = taking().filter_map(SessionMember::shared).collect();
        idle.retain(|shared| {
            let needed = shared.busy() || shared.about.name.is_some() || shared.holds();
            let counts = own < of_one || shared.account.user == user;
            counts && !needed && shared.ended().is_none()
        });
        idle.sort_by_key(|shared| Reverse(shared.idle_for()));
        // Its end takes a moment; the new one need not wait for it.
        let end = || session::Msg::End(EndReason::MadeRoom, None);
        let leaves = idle.iter().find(|shared| shared.tell(end()).is_ok()).map(|shared| shared.id);
        if let Some(id) = leaves {
            self.set_leaving(id, true);
            return Ok(());
        }
        let (open, allowed, whose) = match own < of_one {
            true => (all, max, "sessions are open".to_owned()),
            false => (own, of_one, format!("sessions of {user} are open")),
        };
        let message = format!("{open} {whose} and {allowed} are allowed");
        Err(ToolError::new(Layer::Session, codes::TOO_MANY_SESSIONS, message)
            .next("end one (`hivekeep sessions`) or raise registry.sessions.max_sessions")
            .retryable()
            .detail("open", open)
            .detail("allowed", allowed))
    }
}
