//! Actor of one source: takes calls, and keeps the loop that connects it.

use std::sync::Arc;

use hivekeep_kernel::{Context, Entity, Fault, ToolCall};

use crate::{
    call, connect,
    link::{SourceLink, SourceShared},
    list::ListedTools,
};

/// Message to a source.
#[derive(Debug)]
pub(crate) enum Msg {
    Call(Box<ToolCall>),
    /// The loop ended, which it never does by itself.
    LoopEnded,
}

impl From<ToolCall> for Msg {
    fn from(call: ToolCall) -> Self {
        Self::Call(Box::new(call))
    }
}

/// The actor.
pub(crate) struct Source {
    me: Context<Msg>,
    shared: Arc<SourceShared>,
}

impl Entity for Source {
    type Msg = Msg;
    type Seed = Arc<SourceShared>;

    async fn start(shared: Arc<SourceShared>, me: Context<Msg>) -> Result<Self, Fault> {
        // Tools that were listed last can be found and described before the server is there.
        let tools = shared.log.state().unwrap_or_default().0;
        shared.offer(ListedTools { tools, ..ListedTools::default() });
        let seen = shared.clone();
        me.address.probe().set_detail(move || Some(detail(&seen)));
        let (kept, address) = (tokio::spawn(connect::keep(shared.clone())), me.address.clone());
        let kept = AbortOnDrop(kept);
        let _detached = me.workers.spawn(async move {
            let mut kept = kept;
            let _panicked = (&mut kept.0).await;
            // Nobody there: the actor has ended already.
            let _ = address.send(Msg::LoopEnded);
        });
        Ok(Self { me, shared })
    }

    fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            Msg::Call(call) => {
                let _detached = self.me.workers.spawn(call::run(self.shared.clone(), *call));
                Ok(())
            }
            Msg::LoopEnded => Err(Fault::new("its loop panicked")),
        }
    }
}

/// Loop that ends with whoever watches it.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn detail(shared: &SourceShared) -> String {
    let state = match &*shared.link.borrow() {
        SourceLink::Connecting => "connecting".to_owned(),
        SourceLink::Up(_) => "ready".to_owned(),
        SourceLink::Down(state) => state.to_string(),
    };
    format!("{} tools, {state}", shared.published().by_name.len())
}
