//! A supervisor's registry of many actors of one kind: loaded from the journal, found by id or unique
//! name, bounded in number.
//!
//! ```text
//! admitted ─▶ idle ─▶ running ─▶ idle      its actor ended in order
//!                        └─────▶ given up  it failed too often; its records stay as they are
//! ```
//! A member is what the manager of the kind keeps of an entity; its actor stands at
//! `PATH/ID` below the manager, and is restarted by the kind's policy. The manager passes
//! [`Entity::child`] news on to [`Collection::handle_end`], and adds and removes members. News of others
//! are nothing to it: a manager with children of another kind has those in [`Children`] beside it.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Display,
    str::FromStr,
};

use hivekeep_kernel::{
    Address, Census, ChildEnd, Children, Context, Entity, Fault, RestartPolicy,
    children::ChildOutcome,
};
use hivekeep_store::Journal;

use crate::log::{self, Loaded, Sourced, Streams};

/// Member of a collection: what is kept of an entity, whether or not it has an actor.
pub trait CollectionMember: 'static {
    /// Its id: the name of its stream and of its place below the manager.
    type Id: Copy + Ord + Display + FromStr;
    /// Its actor.
    type Actor: Entity;
    /// The kind of its actor in `ps`.
    const KIND: &'static str;
    /// When its actor is started again.
    const RESTART: RestartPolicy = RestartPolicy::ENTITY;

    /// A name that no other member has.
    fn name(&self) -> Option<&str> {
        None
    }

    /// Whether it takes one of the places of [`Collection::admit`]. One that is given up does not.
    fn takes_place(&self) -> bool {
        true
    }
}

/// The actor of a member.
enum Place<M: CollectionMember> {
    Idle,
    Running(Address<<M::Actor as Entity>::Msg>),
    GivenUp(String),
}

struct Entry<M: CollectionMember> {
    member: M,
    place: Place<M>,
}

/// Why a member is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAdmitted<Id> {
    /// All places are taken: this many.
    Full(usize),
    /// Another member has the name.
    NameTaken(Id),
}

/// The end of an actor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberEnd {
    /// The actor stopped in order, or its policy never restarts it.
    InOrder,
    /// The actor failed too often, last for this reason, and stays down.
    GivenUp(String),
}

/// See the module.
pub struct Collection<M: CollectionMember> {
    children: Children,
    members: BTreeMap<M::Id, Entry<M>>,
    names: HashMap<String, M::Id>,
}

/// Reads all entities of a kind with their ids. Streams without a beginning are removed: nothing of
/// them was acknowledged.
///
/// # Errors
/// When a stream cannot be read, or its name is not an id.
pub async fn load<S: Sourced, Id: FromStr>(
    journal: &Journal,
) -> Result<Vec<(Id, Loaded<S>)>, Fault> {
    let Streams { loaded, stray } = log::read_all::<S>(journal).await?;
    for stream in stray {
        tracing::warn!(%stream, "records without a beginning are removed");
        if let Err(error) = journal.forget(&stream).await {
            tracing::warn!(%stream, %error, "they stay until the next start");
        }
    }
    let id = |stream: &str| stream.rsplit('/').next().and_then(|id| id.parse().ok());
    let all = loaded.into_iter().map(|(stream, loaded)| {
        let name = stream.to_string();
        let id = id(&name).ok_or_else(|| Fault::new(format!("the stream {name} has no id")))?;
        Ok((id, loaded))
    });
    all.collect()
}

impl<M: CollectionMember> Collection<M> {
    /// Makes a collection without members, below this actor.
    pub fn new<T: Send + 'static>(manager: &Context<T>, census: Census) -> Self {
        let path = manager.address.probe().path();
        Self {
            children: Children::new(path, census, manager.cell.clone()),
            members: BTreeMap::new(),
            names: HashMap::new(),
        }
    }

    /// Adds a member if fewer than `most` take a place and nobody has its name.
    ///
    /// # Errors
    /// See [`NotAdmitted`].
    pub fn admit(&mut self, id: M::Id, member: M, most: usize) -> Result<(), NotAdmitted<M::Id>> {
        let taking = self.members.values().filter(|entry| entry.takes_place()).count();
        if member.takes_place() && taking >= most {
            return Err(NotAdmitted::Full(taking));
        }
        self.insert(id, member)
    }

    /// Adds a member, without a bound: one that is recorded. A member of this id before it is
    /// replaced, and its name is free.
    ///
    /// # Errors
    /// When another has its name; then nothing has changed.
    pub fn insert(&mut self, id: M::Id, member: M) -> Result<(), NotAdmitted<M::Id>> {
        let name = member.name().map(str::to_owned);
        let holder = name.as_ref().and_then(|name| self.names.get(name).copied());
        if let Some(other) = holder.filter(|other| *other != id) {
            return Err(NotAdmitted::NameTaken(other));
        }
        if let Some(before) = self.members.get(&id).and_then(|entry| entry.member.name()) {
            self.names.remove(before);
        }
        if let Some(name) = name {
            self.names.insert(name, id);
        }
        self.members.insert(id, Entry { member, place: Place::Idle });
        Ok(())
    }

    /// Starts the actor of a member, or gives the member up.
    ///
    /// # Errors
    /// When it cannot be spawned, or there is no such member.
    pub fn start(
        &mut self,
        id: M::Id,
        args: <M::Actor as Entity>::Args,
    ) -> Result<Address<<M::Actor as Entity>::Msg>, Fault> {
        let address = self.vacant(id);
        self.start_at(id, &address, args)?;
        Ok(address)
    }

    /// An address for a member's actor that is not started yet, to be told to others before.
    pub fn vacant(&self, id: M::Id) -> Address<<M::Actor as Entity>::Msg> {
        self.children.address(&id.to_string(), M::KIND, M::RESTART)
    }

    /// Like [`Self::start`], at an address of this member's place that others know already.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_at(
        &mut self,
        id: M::Id,
        address: &Address<<M::Actor as Entity>::Msg>,
        args: <M::Actor as Entity>::Args,
    ) -> Result<(), Fault> {
        let Some(entry) = self.members.get_mut(&id) else {
            return Err(Fault::new(format!("there is no {} {id}", M::KIND)));
        };
        let started = self.children.start_at::<M::Actor>(address, args);
        entry.place = match &started {
            Ok(()) => Place::Running(address.clone()),
            Err(Fault(reason)) => Place::GivenUp(reason.clone()),
        };
        started
    }

    /// Applies the policy to an actor's end, and tells of one that is not started again.
    ///
    /// # Errors
    /// When the manager has to fail with it.
    pub fn handle_end(&mut self, end: ChildEnd) -> Result<Option<(M::Id, MemberEnd)>, Fault> {
        let (name, ended) = match self.children.handle_end(end)? {
            ChildOutcome::Gone { name, .. } => (name, MemberEnd::InOrder),
            ChildOutcome::GaveUp { name, reason } => {
                // Its records stay as they are; the next start tries again.
                tracing::error!(kind = M::KIND, actor = %name, %reason, "an actor was given up");
                (name, MemberEnd::GivenUp(reason))
            }
            ChildOutcome::Restarting { .. } | ChildOutcome::Stranger => return Ok(None),
        };
        let Ok(id) = name.parse::<M::Id>() else { return Ok(None) };
        // The actor of a member that was removed ends after the removal.
        let Some(entry) = self.members.get_mut(&id) else { return Ok(None) };
        entry.place = match &ended {
            MemberEnd::InOrder => Place::Idle,
            MemberEnd::GivenUp(reason) => Place::GivenUp(reason.clone()),
        };
        Ok(Some((id, ended)))
    }

    /// The member of an id.
    pub fn get(&self, id: M::Id) -> Option<&M> {
        self.members.get(&id).map(|entry| &entry.member)
    }

    /// The member of an id, to be changed in all but its name: that is for [`Self::insert`].
    pub fn get_mut(&mut self, id: M::Id) -> Option<&mut M> {
        self.members.get_mut(&id).map(|entry| &mut entry.member)
    }

    /// The member of an id or a unique name. A name may look like an id; a member's id comes first,
    /// so that nobody takes its place by a name.
    pub fn find(&self, id_or_name: &str) -> Option<(M::Id, &M)> {
        let of_id = id_or_name.parse().ok().and_then(|id| self.get(id).map(|member| (id, member)));
        of_id.or_else(|| self.find_name(id_or_name))
    }

    /// The member of a unique name.
    pub fn find_name(&self, name: &str) -> Option<(M::Id, &M)> {
        let id = *self.names.get(name)?;
        self.get(id).map(|member| (id, member))
    }

    /// The address of a member's actor, while it has one.
    pub fn address(&self, id: M::Id) -> Option<&Address<<M::Actor as Entity>::Msg>> {
        match &self.members.get(&id)?.place {
            Place::Running(address) => Some(address),
            Place::Idle | Place::GivenUp(_) => None,
        }
    }

    /// Why the member's actor stays down.
    pub fn given_up(&self, id: M::Id) -> Option<&str> {
        match &self.members.get(&id)?.place {
            Place::GivenUp(reason) => Some(reason),
            Place::Idle | Place::Running(_) => None,
        }
    }

    /// All members, by id.
    pub fn iter(&self) -> impl Iterator<Item = (M::Id, &M)> {
        self.members.iter().map(|(id, entry)| (*id, &entry.member))
    }

    /// Removes a member; its actor is told to stop.
    pub fn remove(&mut self, id: M::Id) -> Option<M> {
        let Entry { member, place } = self.members.remove(&id)?;
        if let Some(name) = member.name() {
            self.names.remove(name);
        }
        if let Place::Running(_) = place {
            self.children.stop(&id.to_string(), "removed");
        }
        Some(member)
    }
}

impl<M: CollectionMember> Entry<M> {
    fn takes_place(&self) -> bool {
        !matches!(self.place, Place::GivenUp(_)) && self.member.takes_place()
    }
}

#[cfg(test)]
mod tests;
