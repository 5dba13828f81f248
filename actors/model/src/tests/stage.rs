//! Options and rigs that the tests share.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{SessionId, ToolError};
use hivekeep_ports::{LateTools, ModelAnswer, ModelRequest, Models};
use hivekeep_testkit::{FakeUsers, Rig, RigServices, eventually};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::fake::Fake;
use crate::{ModelFamily, ModelProviderKind, Options};

/// A family that runs, with its port.
pub(super) struct Stage {
    pub(super) rig: Rig<ModelFamily>,
    pub(super) models: Arc<dyn Models>,
}

pub(super) async fn stage(options: Value) -> Stage {
    let options: Options = serde_json::from_value(options).expect("options");
    let wrong = hivekeep_runtime::FamilyOptions::problems(&options);
    assert!(wrong.is_empty(), "{wrong:?}");
    let services = RigServices {
        sessions: Arc::new(FakeUsers::default()),
        tools: Arc::new(LateTools::default()),
        offer: Arc::new(|_| ()),
    };
    Stage::of(Rig::new(options, services).await).await
}

impl Stage {
    async fn of(rig: Rig<ModelFamily>) -> Self {
        eventually("all providers run", async || {
            let rows = rig.daemon.census.rows();
            rows.iter()
                .filter(|row| row.kind == "model-provider")
                .all(|row| row.state.starts_with("running"))
        })
        .await;
        let models = rig.daemon.ports.need::<dyn Models>().expect("offered");
        Self { rig, models }
    }

    pub(super) async fn crashed(self) -> Self {
        drop(self.models);
        Self::of(self.rig.crashed().await).await
    }

    /// Asks a model a question.
    pub(super) async fn ask(&self, model: &str, text: &str) -> Result<ModelAnswer, ToolError> {
        self.models.generate(question(self.rig.session, model, text)).await
    }
}

pub(super) fn question(session: SessionId, model: &str, text: &str) -> ModelRequest {
    let deadline = Instant::now() + Duration::from_secs(60);
    ModelRequest::question(session, model, text, deadline)
}

/// A provider of a kind at a fake, with a model `m`, no repetitions, and more keys.
pub(super) fn provider(kind: ModelProviderKind, fake: &Fake, more: Value) -> Value {
    let mut options = json!({
        "kind": kind, "endpoint": fake.root(), "models": { "m": {} }, "retries": 0,
    });
    let (all, more) = (options.as_object_mut().expect("one"), more.as_object().expect("one"));
    all.extend(more.clone());
    options
}

/// Options with one provider `p` that speaks as OpenAI's server does.
pub(super) fn one(fake: &Fake, more: Value) -> Value {
    json!({ "provider": { "p": provider(ModelProviderKind::OpenaiCompatible, fake, more) } })
}

/// Code of an error.
pub(super) fn code<T: std::fmt::Debug>(outcome: Result<T, ToolError>) -> String {
    outcome.expect_err("it fails").code.into_owned()
}
