//! `create`: checks and names, plans, and has the team make its members.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use chrono::Utc;
use hivekeep_kernel::{Address, CallCx, Layer, Reply, Resources, TeamId, ToolError};
use hivekeep_ports::Reservation;
use hivekeep_runtime::{ListedWorkspace, log::Decision};

use super::{Inner, Msg, Teams};
use crate::{
    api::{CreateTeam, TeamAction, TeamMember, TeamResult, TeamRole},
    codes,
    records::{self, GoldenSnapshot, MemberPlan, Plan, Record, State},
    shared::{OnBehalfOf, TeamShared},
    status,
    team::{self, NotBuilt, TeamView, operate},
};

/// Time limit of questions that an actor answers without other work.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest description, and longest text of a skill, in bytes.
const LONGEST_TEXT: usize = 4 * 1024;
/// Most skills of one member.
const MOST_SKILLS: usize = 64;

/// The longest name of a workspace: a DNS label.
const LONGEST_WORKSPACE_NAME: usize = 63;
/// The longest name of a team, a member or a role.
const LONGEST_NAME: usize = 64;

impl Teams {
    pub(crate) fn create(
        &mut self,
        cx: &CallCx,
        input: CreateTeam,
    ) -> Result<Reply<TeamResult>, ToolError> {
        let request = TeamRequest::of(&self.shared, input)?;
        let parent = request.parent.as_ref().map(|parent| self.find(parent)).transpose()?;
        let above =
            parent.as_ref().and_then(|(id, _)| Some((*id, self.teams.get(*id)?.name.clone())));
        let (shared, manager, cx) = (self.shared.clone(), self.me.address.clone(), cx.clone());
        Ok(Reply::later(async move {
            if let Some((_, parent)) = &parent {
                operate(parent, cx.session).await?.state.ready()?;
            }
            let id = TeamId::new();
            let (plan, each) = request.plan(&shared, &cx, id, above).await?;
            make(&shared, &manager, &cx, plan, each).await
        }))
    }
}

/// A team that is wanted, as far as it makes sense.
struct TeamRequest {
    name: String,
    roles: Vec<(TeamRole, String)>,
    max_vms: u32,
    parent: Option<String>,
    golden: Option<String>,
    snapshot: Option<String>,
}

impl TeamRequest {
    fn of(shared: &TeamShared, input: CreateTeam) -> Result<Self, ToolError> {
        let name = input.name;
        sound("name", &name)?;
        let mut names = HashMap::new();
        let mut prefixed = Vec::new();
        for (at, role) in input.roles.into_iter().enumerate() {
            sound(&format!("roles[{at}].name"), &role.name)?;
            sound(&format!("roles[{at}].role"), &role.role)?;
            if let Some(other) = names.insert(role.name.clone(), at) {
                let message = format!("roles[{at}].name is that of roles[{other}], too");
                return Err(ToolError::invalid(message).next("each member has a name of its own"));
            }
            let texts = role.skills.iter().chain(&role.description);
            if role.skills.len() > MOST_SKILLS
                || texts.into_iter().any(|text| text.len() > LONGEST_TEXT)
            {
                let message = format!(
                    "roles[{at}]: at most {MOST_SKILLS} skills, and texts of {LONGEST_TEXT} bytes"
                );
                return Err(ToolError::invalid(message));
            }
            let prefix = workspace_prefix(&name, &role.role).ok_or_else(|| {
                let message = format!(
                    "`{name}` and `{}` together make a workspace's name of more than 63 characters",
                    role.role
                );
                ToolError::invalid(message).next("choose a shorter name or role")
            })?;
            prefixed.push((role, prefix));
        }
        let max_vms = input.max_vms.unwrap_or(shared.options.default_max_vms);
        let golden = input.golden_workspace;
        let snapshot = input.base_snapshot.or_else(|| golden.as_ref().map(|_| "golden".to_owned()));
        Ok(Self { name, roles: prefixed, max_vms, parent: input.parent_team, golden, snapshot })
    }

    /// The plan, and what each member takes of the session's quota.
    async fn plan(
        self,
        shared: &Arc<TeamShared>,
        cx: &CallCx,
        id: TeamId,
        above: Option<(TeamId, String)>,
    ) -> Result<(Plan, Resources), ToolError> {
        let caller = OnBehalfOf::call(cx);
        let rows = shared.tools.workspaces(id, &caller).await?;
        let source = match (self.snapshot, self.golden) {
            (None, _) => None,
            (Some(snapshot), Some(golden)) => Some(GoldenSnapshot { golden, snapshot }),
            (Some(snapshot), None) => Some(search(shared, id, &caller, &rows, snapshot).await?),
        };
        let each = match &source {
            Some(source) => shared.tools.size(id, &caller, &source.golden).await?,
            None => shared.member_size,
        };
        let mut taken: BTreeSet<String> = rows.into_iter().map(|row| row.name).collect();
        let members = self.roles.into_iter().map(|(role, prefix)| {
            let chance = || getrandom::u32().map_or(0, |bits| bits as u16);
            let workspace = free_name(&prefix, &mut taken, chance);
            let TeamRole { name, role, skills, description } = role;
            MemberPlan { name, role, skills, description, workspace }
        });
        let (parent, parent_name) = above.unzip();
        let plan = Plan {
            id,
            name: self.name,
            owner: cx.session,
            user: shared.sessions.user(cx.session),
            parent,
            parent_name,
            max_vms: self.max_vms,
            at: Utc::now(),
            members: members.collect(),
            source,
        };
        Ok((plan, each))
    }
}

fn sound(what: &str, text: &str) -> Result<(), ToolError> {
    if is_sound(text) {
        return Ok(());
    }
    let message = format!(
        "{what}: 1 to 64 of A-Z, a-z, 0-9 and -, beginning and ending with a letter or digit"
    );
    Err(ToolError::invalid(message))
}

/// The caller's only workspace that has a snapshot of this name.
async fn search(
    shared: &TeamShared,
    id: TeamId,
    caller: &OnBehalfOf,
    rows: &[ListedWorkspace],
    snapshot: String,
) -> Result<GoldenSnapshot, ToolError> {
    let mut found = Vec::new();
    for row in rows.iter().filter(|row| row.owned) {
        match shared.tools.look(id, caller, &row.workspace_id.to_string()).await {
            Ok(details) if details.snapshots.iter().any(|one| one.name == snapshot) => {
                found.push((row.workspace_id.to_string(), row.name.clone()));
            }
            Ok(_) => {}
            // Gone since it was listed.
            Err(error) if error.is(codes::WORKSPACE_NOT_FOUND) => {}
            Err(error) => return Err(error),
        }
    }
    let (code, message) = match found.as_slice() {
        [(golden, _)] => return Ok(GoldenSnapshot { golden: golden.clone(), snapshot }),
        [] => (
            codes::SNAPSHOT_NOT_FOUND,
            format!("no workspace of yours has a snapshot `{snapshot}`"),
        ),
        _ => {
            (codes::SNAPSHOT_AMBIGUOUS, format!("several workspaces have a snapshot `{snapshot}`"))
        }
    };
    let names: Vec<_> = found.into_iter().map(|(_, name)| name).collect();
    Err(ToolError::new(Layer::Actor, code, message)
        .next("name the workspace as golden_workspace")
        .detail("workspaces", names))
}

async fn make(
    shared: &Arc<TeamShared>,
    manager: &Address<Msg>,
    cx: &CallCx,
    plan: Plan,
    each: Resources,
) -> Result<TeamResult, ToolError> {
    let (id, count) = (plan.id, plan.members.len() as u64);
    // Room for all members at once; each draws its own, and what none drew goes back with the call.
    let all = Reservation::take(shared.sessions.clone(), cx.session, each.times(count)).await?;
    let cx = CallCx { reserved: Some(all), ..cx.clone() };
    let state = Box::new(State::new(plan.clone()));
    manager.ask(PATIENCE, |reply| Msg(Inner::Admit(state, reply))).await??;
    let planned = |_: Option<&State>| Ok(Decision::record(Record::Planned(Box::new(plan))));
    let recorded = shared.teams.begin(records::stream(id)).decide::<ToolError>(planned);
    let recorded = async { Ok(recorded?.await?) };
    if let Err(error) = recorded.await {
        manager.send(Msg::gone(id))?;
        return Err(error);
    }
    let team = manager
        .ask(PATIENCE, |reply| Msg(Inner::Spawn(id, reply)))
        .await?
        .map_err(|fault| ToolError::internal(fault.to_string()))?;
    let (reply, answer) = tokio::sync::oneshot::channel();
    team.send(team::Msg::Build(cx, reply))?;
    // The team answers on every path, also after a cancellation.
    let built = answer
        .await
        .map_err(|_| ToolError::internal("the new team's actor ended; it is being undone"))?;
    match built {
        Ok(view) => Ok(made(shared, &view).await),
        Err(NotBuilt { error, gone }) => {
            if gone {
                manager.ask(PATIENCE, |done| Msg(Inner::Gone(id, Some(done)))).await?;
                return Err(error);
            }
            Err(error.next("some of it is left: team with action `destroy` removes it"))
        }
    }
}

async fn made(shared: &Arc<TeamShared>, view: &TeamView) -> TeamResult {
    let (plan, ids) = (&view.state.plan, view.state.workspaces.clone().unwrap_or_default());
    let members = plan.members.iter().zip(&ids).map(|(member, id)| TeamMember {
        name: member.name.clone(),
        role: member.role.clone(),
        workspace_id: Some(*id),
        workspace_name: member.workspace.clone(),
        ..TeamMember::default()
    });
    TeamResult {
        action: Some(TeamAction::Create),
        name: Some(plan.name.clone()),
        team_id: Some(plan.id),
        state: Some(view.state.word().to_owned()),
        member_count: Some(plan.members.len()),
        members: Some(members.collect()),
        member_workspace_ids: Some(ids),
        max_vms: Some(plan.max_vms),
        network: Some(status::network(shared, &view.state).await),
        cards: Some(view.cards.get()),
        ..TeamResult::default()
    }
}

/// Checks that a text can name a team, a member or a role: 1 to 64 of `A-Z`, `a-z`, `0-9` and
/// with a letter or digit at both ends.
fn is_sound(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    bytes.len() <= LONGEST_NAME
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
}

/// The part of a member's workspace name before its four digits, or `None` when with them it
/// would be too long. Workspace names have no capitals.
fn workspace_prefix(team: &str, role: &str) -> Option<String> {
    let prefix = format!("{team}-{role}-").to_ascii_lowercase();
    (prefix.len() + 4 <= LONGEST_WORKSPACE_NAME).then_some(prefix)
}

/// A name that nobody has yet, from a source of chance. It is added to `taken`.
fn free_name(
    prefix: &str,
    taken: &mut BTreeSet<String>,
    mut chance: impl FnMut() -> u16,
) -> String {
    // Chance is tried first so that names of before do not come back; then it is counted on.
    let mut digits = chance();
    for _ in 0..=u16::MAX {
        let name = format!("{prefix}{digits:04x}");
        if taken.insert(name.clone()) {
            return name;
        }
        digits = digits.wrapping_add(1);
    }
    // No daemon keeps that many workspaces; it will be refused as taken.
    format!("{prefix}{digits:04x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_letters_digits_and_hyphens_inside() {
        for good in ["a", "A-b", "0", "Team-7", &"x".repeat(64)] {
            assert!(is_sound(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a_b", "a b", "ä", "a/b", &"x".repeat(65)] {
            assert!(!is_sound(bad), "{bad}");
        }
    }

    #[test]
    fn workspace_names_fit_and_are_free() {
        assert_eq!(workspace_prefix("Team", "Coder").as_deref(), Some("team-coder-"));
        assert!(workspace_prefix(&"t".repeat(50), "coder-x").is_some());
        assert!(workspace_prefix(&"t".repeat(50), "coder-xyz").is_none());
        let mut taken = BTreeSet::from(["a-b-ffff".to_owned(), "a-b-0000".to_owned()]);
        assert_eq!(free_name("a-b-", &mut taken, || 0xffff), "a-b-0001");
        assert_eq!(free_name("a-b-", &mut taken, || 0xffff), "a-b-0002");
    }
}
