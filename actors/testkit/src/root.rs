//! A root supervisor of the actors that a family brings.

use std::sync::Arc;

use hivekeep_kernel::{Census, ChildEnd, Children, Context, Entity, Fault};
use hivekeep_runtime::Child;
use tokio::sync::Notify;

#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) census: Census,
    pub(crate) children: Vec<Child>,
    /// Told when they are at their addresses.
    pub(crate) started: Arc<Notify>,
}

pub(crate) struct Root(Children);

impl Entity for Root {
    type Msg = ();
    type Seed = Seed;

    async fn start(seed: Seed, me: Context<()>) -> Result<Self, Fault> {
        let mut children = Children::new("root", seed.census, me.cell);
        seed.children.iter().try_for_each(|child| child.start(&mut children))?;
        seed.started.notify_one();
        Ok(Self(children))
    }

    fn handle(&mut self, (): ()) -> Result<(), Fault> {
        Ok(())
    }

    fn child(&mut self, end: ChildEnd) -> Result<(), Fault> {
        self.0.handle_end(end).map(drop)
    }
}
