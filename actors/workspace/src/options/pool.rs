//! Options of the pool.

use hivekeep_image::ImageName;
use hivekeep_machine::Isolation;
use hivekeep_oci::RegistryRef;
use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Options;
use crate::records::WorkspaceSpec;

/// Most machines of one class.
const MAX_READY: u32 = 100;

/// Section `[workspace.pool]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PoolOptions {
    /// Most memory in MiB that the machines of all classes may be given together. A configuration
    /// that wants more is refused. The machine of which copies are made is gone when the first
    /// copy is begun.
    pub max_memory_mb: u64,
    /// The classes of machines that are kept ready, none by default. Each is a table:
    /// `[[workspace.pool.classes]]` with `ready = 2` and what of `image`, `isolation`, `vcpus`,
    /// `memory_mb` and `disk_gb` differs from a workspace's defaults. A creation that asks for
    /// exactly that is given one of them.
    pub classes: Vec<ClassOptions>,
}

/// One class of machines that are kept ready.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassOptions {
    /// How many.
    pub ready: u32,
    /// Their image; as a workspace's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// How they are isolated, as a workspace's default: only `vm` can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// Their virtual CPUs; as a workspace's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<u32>,
    /// Their memory in MiB; as a workspace's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    /// Their disk in GiB; as a workspace's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_gb: Option<u64>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self { max_memory_mb: 8192, classes: Vec::new() }
    }
}

impl ClassOptions {
    /// What a machine of this class has.
    pub(crate) fn spec(&self, options: &Options) -> WorkspaceSpec {
        WorkspaceSpec {
            image: self.image.clone().unwrap_or_else(|| options.default_image.clone()),
            isolation: self.isolation.unwrap_or(options.isolation),
            vcpus: self.vcpus.unwrap_or(options.default_vcpus),
            memory_mb: self.memory_mb.unwrap_or(options.default_memory_mb),
            disk_gb: self.disk_gb.unwrap_or(options.default_disk_gb),
        }
    }
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        let mut specs = Vec::new();
        for (nth, class) in (1..).zip(&self.pool.classes) {
            let spec = class.spec(self);
            let mut add = |why: String| {
                wrong.push(("pool.classes", format!("class {nth}: {why}")));
            };
            if !(1..=MAX_READY).contains(&class.ready) {
                add(format!("ready must be 1 to {MAX_READY}, not {}", class.ready));
            }
            let known = spec.image.parse::<ImageName>().is_ok();
            if !known && RegistryRef::parse(&spec.image).is_err() {
                add(format!("there is no image `{}`", spec.image));
            }
            if spec.isolation == Isolation::Sandbox {
                add("a sandbox keeps the host name that it was started with, and starts at once \
                     without a pool: isolation must be vm"
                    .to_owned());
            }
            let sizes = [
                ("vcpus", u64::from(spec.vcpus), 1, u64::from(self.max_vcpus)),
                ("memory_mb", spec.memory_mb, 64, self.max_memory_mb),
                ("disk_gb", spec.disk_gb, 1, self.max_disk_gb),
            ];
            for (what, value, least, most) in sizes {
                if !(least..=most).contains(&value) {
                    add(format!("{what} must be {least} to {most}, not {value}"));
                }
            }
            if specs.contains(&spec) {
                add("it is the same as one before it".to_owned());
            }
            specs.push(spec);
        }
        let counts = || self.pool.classes.iter().map(|class| u64::from(class.ready)).zip(&specs);
        let memory_mb: u64 =
            counts().map(|(ready, spec)| ready.saturating_mul(spec.memory_mb)).sum();
        if memory_mb > self.pool.max_memory_mb {
            let most = self.pool.max_memory_mb;
            wrong.push((
                "pool.max_memory_mb",
                format!("{most} MiB are too few for the classes, which want {memory_mb} MiB"),
            ));
        }
        // Each class that is copied from a template has that one too.
        let slots: u64 = counts().map(|(ready, _)| ready + 1).sum();
        if !specs.is_empty() && slots >= self.max_workspaces as u64 {
            let most = self.max_workspaces;
            wrong.push((
                "pool.classes",
                format!("they want {slots} of the {most} places that max_workspaces gives"),
            ));
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(toml_like: serde_json::Value) -> Options {
        serde_json::from_value(serde_json::json!({ "pool": toml_like })).expect("options")
    }

    #[test]
    fn a_class_takes_what_it_leaves_out_from_the_defaults() {
        let options = options(serde_json::json!({ "classes": [{ "ready": 2, "memory_mb": 256 }] }));
        assert_eq!(options.problems(), []);
        let spec = options.pool.classes[0].spec(&options);
        assert_eq!((spec.image.as_str(), spec.memory_mb, spec.vcpus), ("base", 256, 2));
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        let class = serde_json::json!({ "ready": 3, "memory_mb": 4096 });
        let bad = serde_json::json!({
            "ready": 0, "image": "nope", "isolation": "sandbox", "vcpus": 99, "disk_gb": 0,
        });
        let problems = options(serde_json::json!({ "classes": [class, class, bad] })).problems();
        let told: Vec<_> = problems.iter().map(|(key, why)| format!("{key}: {why}")).collect();
        assert_eq!(
            told,
            [
                "pool.classes: class 2: it is the same as one before it",
                "pool.classes: class 3: ready must be 1 to 100, not 0",
                "pool.classes: class 3: there is no image `nope`",
                "pool.classes: class 3: a sandbox keeps the host name that it was started with, and \
                 starts at once without a pool: isolation must be vm",
                "pool.classes: class 3: vcpus must be 1 to 8, not 99",
                "pool.classes: class 3: disk_gb must be 1 to 100, not 0",
                "pool.max_memory_mb: 8192 MiB are too few for the classes, which want 24576 MiB",
            ]
        );
        let many = serde_json::json!({ "classes": [{ "ready": 60 }], "max_memory_mb": 100_000 });
        assert!(options(many).problems()[0].1.contains("61 of the 50 places"));
        let unknown: Result<Options, _> =
            serde_json::from_value(serde_json::json!({ "pool": { "classes": [{ "redy": 1 }] } }));
        assert!(unknown.is_err());
    }
}
