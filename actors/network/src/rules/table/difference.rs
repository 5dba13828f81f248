//! Difference between one rendering of a table and the next.

use std::collections::{BTreeMap, BTreeSet};

use nftables::schema::{
    Chain, Element, FlushObject, NfCmd, NfListObject, NfObject, Rule, Set, SetType,
};

use super::{Contents, RulesTable};
use crate::rules::expr::Expr;

impl RulesTable {
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
