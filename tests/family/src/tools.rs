//! The tools: what goes in, what comes out, and who handles it.

use hivekeep_kernel::tools;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::counters::Counters;

/// Make a counter that outlives the daemon.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Create {
    /// Its name: letters, digits, `_`, `-` and `.`.
    pub(crate) name: String,
}

/// Add to a counter.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Add {
    /// Its name.
    pub(crate) name: String,
    /// How much; less than nothing takes away.
    pub(crate) amount: i64,
}

/// Read a counter.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Get {
    /// Its name.
    pub(crate) name: String,
}

/// List your counters.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {}

/// Remove a counter.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Remove {
    /// Its name.
    pub(crate) name: String,
}

/// A counter.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Value {
    /// Its name.
    pub(crate) name: String,
    /// Its value now.
    pub(crate) value: i64,
}

/// Counters.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Listed {
    /// Their names, sorted.
    pub(crate) names: Vec<String>,
}

/// A counter that is gone.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Removed {
    /// Its name.
    pub(crate) name: String,
}

tools! { pub(crate) FAMILY: "counters" for service Counters, singleton counters;
    counter_create: Create => Value = Counters::create { title: "Make a counter" };
    counter_add: Add => Value = Counters::add { title: "Add to a counter" };
    counter_get: Get => Value = Counters::get { title: "Read a counter", effect: Read };
    counter_list: List => Listed = Counters::list { title: "List counters", effect: Read };
    counter_remove: Remove => Removed = Counters::remove {
        title: "Remove a counter", effect: Destroy,
    };
}
