//! Schema migrations, run once each, in order, at start-up.

use crate::changes::KeyChanges;
use crate::commit::Committer;
use crate::{Error, keys};

/// Migration from one schema to a later one.
///
/// `run` reads the database and gathers changes; they commit together with the new schema number,
/// so a crash leaves the old schema or the new one.
pub(crate) struct Migration {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) name: &'static str,
    pub(crate) run: fn(&sled::Db, &mut KeyChanges) -> Result<(), Error>,
}

/// Chain of migrations and the schema it leads to.
#[derive(Clone, Copy)]
pub(crate) struct MigrationPlan {
    pub(crate) schema: u32,
    pub(crate) migrations: &'static [Migration],
}

/// Shipped plan. Schema 1 is the first; a change of `keys.rs` or `frame.rs` adds a migration here
/// and raises the number.
pub(crate) const SHIPPED: MigrationPlan = MigrationPlan { schema: 1, migrations: &[] };

impl MigrationPlan {
    /// Refuses a database with a newer schema.
    pub(crate) fn accepts(&self, schema: u32) -> Result<(), Error> {
        if schema > self.schema {
            return Err(Error::TooNew { found: schema, known: self.schema });
        }
        Ok(())
    }

    /// Migrates the database from `schema` to the plan's; returns the names of the steps that ran.
    pub(crate) fn run(
        &self,
        committer: &mut Committer,
        mut schema: u32,
    ) -> Result<Vec<&'static str>, Error> {
        self.accepts(schema)?;
        let mut names = Vec::new();
        while schema < self.schema {
            let step =
                self.migrations.iter().find(|step| step.from == schema).ok_or_else(|| {
                    Error::unreadable(format!("no migration leads on from schema {schema}"))
                })?;
            let mut changes = KeyChanges::default();
            (step.run)(&committer.db, &mut changes)?;
            changes.put(keys::SCHEMA_KEY.to_vec(), step.to.to_be_bytes().to_vec());
            committer.commit(changes)?;
            committer.settle()?;
            tracing::info!(step = step.name, from = step.from, to = step.to, "state migrated");
            names.push(step.name);
            schema = step.to;
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests;
