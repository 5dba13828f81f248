//! Tree of the executions that are not over: whose child each is, which session is whose, and what each and
//! everything below it used, so that no turn of one goes beyond a bound of another above it. Nothing of it is
//! recorded: at a start it is made anew from the states.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Mutex,
};

use hivekeep_kernel::{ExecutionId, Layer, SessionId, ToolError, lock};

use super::account::{BudgetAmounts, BudgetKind, ExecutionAccount};
use crate::codes;

/// Most executions, one above the other: a session has no more above it either.
pub(crate) const MAX_DEPTH: usize = 3;

/// A bound that has too little left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BudgetShortage {
    pub(crate) of: ExecutionId,
    pub(crate) kind: BudgetKind,
    pub(crate) used: u64,
    pub(crate) wanted: u64,
    pub(crate) limit: u64,
}

#[derive(Default)]
struct TreeNode {
    parent: Option<ExecutionId>,
    session: Option<SessionId>,
    budget: BudgetAmounts,
    /// Amounts of its own.
    own: BudgetAmounts,
    /// Amounts of its own and of all below it, those that ended among them.
    total: BudgetAmounts,
}

/// See the module.
#[derive(Default)]
pub(crate) struct ExecutionTree(Mutex<TreeNodes>);

/// Locked for a walk of a few steps, never across an await.
#[derive(Default)]
struct TreeNodes {
    nodes: BTreeMap<ExecutionId, TreeNode>,
    sessions: HashMap<SessionId, ExecutionId>,
}

impl BudgetShortage {
    /// Error of work that does not wait for more.
    pub(crate) fn exhausted(&self) -> ToolError {
        let Self { kind, used, wanted, limit, .. } = self;
        let kind = kind.word();
        let message = format!("{used} of {limit} {kind} were used, and {wanted} more are wanted");
        ToolError::new(Layer::Quota, codes::BUDGET_EXHAUSTED, message)
            .next("run the agent again with a larger budget")
    }
}

impl TreeNodes {
    /// Ids from one to the root.
    fn chain(&self, id: ExecutionId) -> Vec<ExecutionId> {
        let above =
            |id: &ExecutionId| self.nodes.get(id)?.parent.filter(|it| self.nodes.contains_key(it));
        std::iter::successors(Some(id), above).collect()
    }

    /// Replaces the own amounts of one, in all totals.
    fn set_own(&mut self, id: ExecutionId, own: &BudgetAmounts) {
        let Some(before) = self.nodes.get(&id).map(|node| node.own.clone()) else { return };
        for above in self.chain(id) {
            let node = self.nodes.entry(above).or_default();
            node.total = std::mem::take(&mut node.total).minus(&before).plus(own);
        }
        self.nodes.entry(id).or_default().own = own.clone();
    }

    /// The first bound from one to the root that is exceeded by its own amounts becoming these.
    fn shortage(&self, id: ExecutionId, own: &BudgetAmounts) -> Option<BudgetShortage> {
        let before = &self.nodes.get(&id)?.own;
        self.chain(id).into_iter().find_map(|of| {
            let node = self.nodes.get(&of)?;
            let total = node.total.clone().minus(before);
            node.budget.kinds().find_map(|(kind, limit)| {
                let wanted = own.amount(kind).saturating_sub(before.amount(kind));
                let over = total.amount(kind).saturating_add(own.amount(kind)) > limit;
                let used = node.total.amount(kind);
                (over && wanted > 0).then_some(BudgetShortage { of, kind, used, wanted, limit })
            })
        })
    }
}

impl ExecutionTree {
    /// Takes an execution in that is not there, with its parent and its own session, after those above it.
    pub(crate) fn insert(
        &self,
        (id, parent): (ExecutionId, Option<ExecutionId>),
        session: Option<SessionId>,
        account: &ExecutionAccount,
    ) {
        let mut tree = lock(&self.0);
        if tree.nodes.contains_key(&id) {
            return;
        }
        let node = TreeNode {
            parent,
            session,
            budget: account.budget.clone(),
            own: BudgetAmounts::default(),
            total: account.children_used.clone(),
        };
        tree.nodes.insert(id, node);
        tree.sessions.extend(session.map(|session| (session, id)));
        tree.set_own(id, &account.own());
        for above in tree.chain(id).into_iter().skip(1) {
            let node = tree.nodes.entry(above).or_default();
            node.total = std::mem::take(&mut node.total).plus(&account.children_used);
        }
    }

    /// Notes the session of an execution.
    pub(crate) fn opened(&self, id: ExecutionId, session: SessionId) {
        let mut tree = lock(&self.0);
        if let Some(node) = tree.nodes.get_mut(&id) {
            node.session = Some(session);
            tree.sessions.insert(session, id);
        }
    }

    /// Executions that are there, the oldest first.
    pub(crate) fn ids(&self) -> Vec<ExecutionId> {
        lock(&self.0).nodes.keys().copied().collect()
    }

    /// Lets some go. What they used stays in the totals above.
    pub(crate) fn remove(&self, gone: impl IntoIterator<Item = ExecutionId>) {
        // Whoever tells which are gone looks at executions, and may not do so under the lock.
        let gone: Vec<_> = gone.into_iter().collect();
        let mut tree = lock(&self.0);
        for id in gone {
            let session = tree.nodes.remove(&id).and_then(|node| node.session);
            session.map(|session| tree.sessions.remove(&session));
        }
    }

    /// Execution of the first of these sessions that is one's own.
    pub(crate) fn of_sessions(&self, sessions: &[SessionId]) -> Option<ExecutionId> {
        let tree = lock(&self.0);
        sessions.iter().find_map(|session| tree.sessions.get(session).copied())
    }

    /// Amounts of one and of all below it.
    pub(crate) fn total(&self, id: ExecutionId) -> Option<BudgetAmounts> {
        lock(&self.0).nodes.get(&id).map(|node| node.total.clone())
    }

    /// Number of executions from one to the root.
    pub(crate) fn depth(&self, id: ExecutionId) -> usize {
        lock(&self.0).chain(id).len()
    }

    pub(crate) fn is_below(&self, id: ExecutionId, above: ExecutionId) -> bool {
        lock(&self.0).chain(id)[1..].contains(&above)
    }

    /// Kinds that a bound of one, or of one above it, is set for.
    pub(crate) fn bounded(&self, id: ExecutionId) -> BTreeSet<BudgetKind> {
        let tree = lock(&self.0);
        let nodes = tree.chain(id).into_iter().filter_map(|id| tree.nodes.get(&id));
        nodes.flat_map(|node| node.budget.kinds().map(|(kind, _)| kind)).collect()
    }

    /// Makes the own amounts these, if all bounds above have them left; gives the total then.
    ///
    /// # Errors
    /// The first bound that has not.
    pub(crate) fn claim(
        &self,
        id: ExecutionId,
        budget: &BudgetAmounts,
        own: &BudgetAmounts,
    ) -> Result<BudgetAmounts, BudgetShortage> {
        let mut tree = lock(&self.0);
        tree.nodes.entry(id).or_default().budget = budget.clone();
        if let Some(shortage) = tree.shortage(id, own) {
            return Err(shortage);
        }
        tree.set_own(id, own);
        Ok(tree.nodes.entry(id).or_default().total.clone())
    }

    /// Makes the own amounts those of the records. Nothing is set aside then.
    pub(crate) fn settle(&self, id: ExecutionId, account: &ExecutionAccount) {
        lock(&self.0).set_own(id, &account.own());
    }

    /// Makes the bounds those of the records.
    pub(crate) fn raise(&self, id: ExecutionId, account: &ExecutionAccount) {
        if let Some(node) = lock(&self.0).nodes.get_mut(&id) {
            node.budget = account.budget.clone();
        }
    }

    /// Whether a bound has so much left.
    pub(crate) fn has_left(&self, of: ExecutionId, kind: BudgetKind, wanted: u64) -> bool {
        let tree = lock(&self.0);
        let Some(node) = tree.nodes.get(&of) else { return true };
        let most = node.budget.get(kind);
        most.is_none_or(|most| node.total.amount(kind).saturating_add(wanted) <= most)
    }
}
