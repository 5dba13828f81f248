//! Table of rules, and the transaction that brings the kernel's table to it: whole, or by the
//! difference to the rendering before.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use nftables::schema::{
    Chain, Element, FlushObject, NfCmd, NfListObject, NfObject, Rule, Set, SetFlag, SetType,
    SetTypeValue, Table as NfTable,
};
use nftables::types::{NfChainPolicy, NfChainType, NfFamily, NfHook};

use super::expr::{Expr, Stmt};

/// Chains and sets that the kernel has under a table's name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExistingTable {
    /// Names of the chains.
    pub chains: BTreeSet<String>,
    /// Names of the sets.
    pub sets: BTreeSet<String>,
}

/// A rendered table.
#[derive(Debug, Clone)]
pub struct RulesTable {
    family: NfFamily,
    name: String,
    sets: BTreeMap<String, (Set<'static>, Contents)>,
    chains: Vec<Chain<'static>>,
    rules: Vec<Rule<'static>>,
}

/// Origin of a set's elements.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Contents {
    /// Elements of the plan, replaced as a whole.
    Planned(Vec<Expr>),
    /// Elements that others put in, and that outlive a rendering.
    Kept,
}

impl RulesTable {
    pub(super) fn new(family: NfFamily, name: &str) -> Self {
        let (sets, chains, rules) = Default::default();
        Self { family, name: name.to_owned(), sets, chains, rules }
    }

    /// The table's name in the kernel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The table's family.
    pub fn family(&self) -> NfFamily {
        self.family
    }

    /// The names of its sets whose elements are added at run time.
    pub fn kept_sets(&self) -> impl Iterator<Item = &str> {
        let kept = self.sets.iter().filter(|(_, (_, contents))| *contents == Contents::Kept);
        kept.map(|(name, _)| name.as_str())
    }

    /// The table's rules, each with its chain.
    pub fn rules(&self) -> impl Iterator<Item = (&str, &[Stmt])> {
        self.rules.iter().map(|rule| (rule.chain.as_ref(), rule.expr.as_ref()))
    }

    fn declare(&self, name: &str, types: &[SetType], flags: &[SetFlag]) -> Set<'static> {
        let set_type = match types {
            [single] => SetTypeValue::Single(*single),
            several => SetTypeValue::Concatenated(several.to_vec().into()),
        };
        Set {
            family: self.family,
            table: self.name.clone().into(),
            name: name.to_owned().into(),
            set_type,
            flags: (!flags.is_empty()).then(|| HashSet::from_iter(flags.iter().copied())),
            ..Set::default()
        }
    }

    /// A set whose elements are the plan's.
    pub(super) fn planned(
        &mut self,
        name: &str,
        types: &[SetType],
        flags: &[SetFlag],
        elements: Vec<Expr>,
    ) {
        let set = self.declare(name, types, flags);
        self.sets.insert(name.to_owned(), (set, Contents::Planned(elements)));
    }

    /// A set whose elements come at run time.
    pub(super) fn kept(&mut self, name: &str, kind: SetType, flags: &[SetFlag]) {
        let set = self.declare(name, &[kind], flags);
        self.sets.insert(name.to_owned(), (set, Contents::Kept));
    }

    /// A chain that others lead to.
    pub(super) fn chain(&mut self, name: &str) {
        self.chains.push(self.chain_named(name));
    }

    /// A chain that the kernel leads to. What it does not decide is accepted.
    pub(super) fn base(&mut self, name: &str, kind: NfChainType, hook: NfHook, prio: i32) {
        self.chain(name);
        let chain = self.chains.last_mut().expect("just pushed");
        (chain._type, chain.hook, chain.prio) = (Some(kind), Some(hook), Some(prio));
        chain.policy = Some(NfChainPolicy::Accept);
    }

    pub(super) fn rule(&mut self, chain: &str, expr: impl IntoIterator<Item = Stmt>) {
        self.rules.push(Rule {
            family: self.family,
            table: self.name.clone().into(),
            chain: chain.to_owned().into(),
            expr: expr.into_iter().collect::<Vec<_>>().into(),
            ..Rule::default()
        });
    }

    /// A rule of one statement, where there is one.
    pub(super) fn rule_if(&mut self, chain: &str, statement: Option<Stmt>) {
        statement.into_iter().for_each(|statement| self.rule(chain, [statement]));
    }

    fn table(&self) -> NfTable<'static> {
        NfTable { family: self.family, name: self.name.clone().into(), handle: None }
    }

    /// The commands that bring `existing` to this table, keeping the elements that others added.
    pub fn update(&self, existing: &ExistingTable) -> Vec<NfObject<'static>> {
        let mut commands = vec![
            NfCmd::Add(NfListObject::Table(self.table())),
            NfCmd::Flush(FlushObject::Table(self.table())),
        ];
        let wanted: BTreeSet<&str> = self.chains.iter().map(|chain| chain.name.as_ref()).collect();
        for name in existing.chains.iter().filter(|name| !wanted.contains(name.as_str())) {
            commands.push(NfCmd::Delete(NfListObject::Chain(self.chain_named(name))));
        }
        for name in existing.sets.iter().filter(|name| !self.sets.contains_key(*name)) {
            let set = self.declare(name, &[SetType::Ipv4Addr], &[]);
            commands.push(NfCmd::Delete(NfListObject::Set(Box::new(set))));
        }
        self.fill(&mut commands, existing);
        commands.into_iter().map(NfObject::CmdObject).collect()
    }

    /// The commands that make this table anew, whatever is there. What others added is lost.
    pub fn rebuild(&self) -> Vec<NfObject<'static>> {
        let mut commands = vec![
            NfCmd::Add(NfListObject::Table(self.table())),
            NfCmd::Delete(NfListObject::Table(self.table())),
            NfCmd::Add(NfListObject::Table(self.table())),
        ];
        self.fill(&mut commands, &ExistingTable::default());
        commands.into_iter().map(NfObject::CmdObject).collect()
    }

    fn fill(&self, commands: &mut Vec<NfCmd<'static>>, existing: &ExistingTable) {
        for (name, (set, contents)) in &self.sets {
            commands.push(NfCmd::Add(NfListObject::Set(Box::new(set.clone()))));
            let Contents::Planned(elements) = contents else { continue };
            if existing.sets.contains(name) {
                commands.push(NfCmd::Flush(FlushObject::Set(Box::new(set.clone()))));
            }
            let elements: Vec<_> = elements.iter().collect();
            commands.extend(self.elements(set, &elements).map(NfCmd::Add));
        }
        let chains = self.chains.iter().cloned().map(NfListObject::Chain);
        commands.extend(chains.map(NfCmd::Add));
        let rules = self.rules.iter().cloned().map(NfListObject::Rule);
        commands.extend(rules.map(NfCmd::Add));
    }

    /// The commands that bring a kernel that holds `before` to this table, in one transaction,
    /// and leave everything else as it is: the chains of other members with their counts of
    /// connections, and what names opened. `None` where that cannot be said in such commands;
    /// then [`RulesTable::update`] can.
    pub fn difference(&self, before: &RulesTable) -> Option<Vec<NfObject<'static>>> {
        let (old, new) = (before.by_chain(), self.by_chain());
        let base = |table: &RulesTable| -> Vec<Chain<'static>> {
            table.chains.iter().filter(|chain| chain.hook.is_some()).cloned().collect()
        };
        let redeclared = |name: &String| match (before.sets.get(name), self.sets.get(name)) {
            (Some((old, was)), Some((new, is))) => {
                old != new || (*was == Contents::Kept) != (*is == Contents::Kept)
            }
            _ => false,
        };
        let same_table = self.name == before.name && self.family == before.family;
        if !same_table || base(self) != base(before) || self.sets.keys().any(redeclared) {
            return None;
        }
        let gone = old.keys().filter(|name| !new.contains_key(*name));
        let made = new.keys().filter(|name| !old.contains_key(*name));
        let changed: BTreeSet<&str> = new
            .iter()
            .filter(|(name, rules)| old.get(*name).is_some_and(|old| old != *rules))
            .map(|(name, _)| *name)
            .collect();
        let made: BTreeSet<&str> = made.copied().collect();
        let gone: Vec<&str> = gone.copied().collect();

        let mut commands = Vec::new();
        self.declare_new(before, &mut commands);
        for name in changed.iter().chain(&gone) {
            commands.push(NfCmd::Flush(FlushObject::Chain(self.chain_named(name))));
        }
        for name in &made {
            commands.push(NfCmd::Add(NfListObject::Chain(self.chain_named(name))));
        }
        self.exchange_elements(before, &mut commands);
        let filled = |rule: &&Rule<'static>| {
            made.contains(rule.chain.as_ref()) || changed.contains(rule.chain.as_ref())
        };
        let rules = self.rules.iter().filter(filled).cloned();
        commands.extend(rules.map(NfListObject::Rule).map(NfCmd::Add));
        for name in gone {
            commands.push(NfCmd::Delete(NfListObject::Chain(self.chain_named(name))));
        }
        for name in before.sets.keys().filter(|name| !self.sets.contains_key(*name)) {
            let set = self.declare(name, &[SetType::Ipv4Addr], &[]);
            commands.push(NfCmd::Delete(NfListObject::Set(Box::new(set))));
        }
        Some(commands.into_iter().map(NfObject::CmdObject).collect())
    }

    /// Rules in their order, for each chain, of which some are empty.
    fn by_chain(&self) -> BTreeMap<&str, Vec<&Rule<'static>>> {
        let mut chains: BTreeMap<&str, Vec<_>> =
            self.chains.iter().map(|chain| (chain.name.as_ref(), Vec::new())).collect();
        for rule in &self.rules {
            chains.entry(rule.chain.as_ref()).or_default().push(rule);
        }
        chains
    }

    fn chain_named(&self, name: &str) -> Chain<'static> {
        Chain {
            family: self.family,
            table: self.name.clone().into(),
            name: name.to_owned().into(),
            ..Chain::default()
        }
    }

    fn declare_new(&self, before: &RulesTable, commands: &mut Vec<NfCmd<'static>>) {
        for (name, (set, contents)) in &self.sets {
            if before.sets.contains_key(name) {
                continue;
            }
            commands.push(NfCmd::Add(NfListObject::Set(Box::new(set.clone()))));
            if let Contents::Planned(elements) = contents {
                let elements: Vec<_> = elements.iter().collect();
                commands.extend(self.elements(set, &elements).map(NfCmd::Add));
            }
        }
    }

    fn exchange_elements(&self, before: &RulesTable, commands: &mut Vec<NfCmd<'static>>) {
        for (name, (set, contents)) in &self.sets {
            let Some((_, Contents::Planned(old))) = before.sets.get(name) else { continue };
            let Contents::Planned(new) = contents else { continue };
            let gone: Vec<_> = old.iter().filter(|one| !new.contains(one)).collect();
            let come: Vec<_> = new.iter().filter(|one| !old.contains(one)).collect();
            commands.extend(self.elements(set, &gone).map(NfCmd::Delete));
            commands.extend(self.elements(set, &come).map(NfCmd::Add));
        }
    }

    /// `None` for no elements.
    fn elements(
        &self,
        set: &Set<'static>,
        elements: &[&Expr],
    ) -> impl Iterator<Item = NfListObject<'static>> + use<> {
        let elem: Vec<Expr> = elements.iter().map(|element| (*element).clone()).collect();
        let (family, table, name) = (self.family, self.name.clone().into(), set.name.clone());
        let element = Element { family, table, name, elem: elem.into() };
        (!elements.is_empty()).then_some(NfListObject::Element(element)).into_iter()
    }
}
