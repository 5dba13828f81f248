use std::time::Duration;

use ractor::ActorRef;
use tokio::time::sleep;

use super::{LinkSupervisorMsg, Msg};
use crate::{Link, call::CallTerms, error::LinkDown, options::LinkSupervisorOptions};

/// Watches one link to its end and pings the guest when it is silent.
pub(super) struct Watch {
    pub(super) link: Link,
    pub(super) options: LinkSupervisorOptions,
    pub(super) has_connections: bool,
    pub(super) round: u64,
    pub(super) supervisor: ActorRef<LinkSupervisorMsg>,
}

impl Watch {
    pub(super) async fn run(self) -> Msg {
        let round = self.round;
        let reason = tokio::select! {
            biased;
            reason = self.link.closed() => reason,
            _ = self.ping_while_up() => self.link.closed().await,
        };
        Msg::Lost { round, reason }
    }

    async fn ping_while_up(&self) {
        let mut missed = 0;
        while self.link.is_up() {
            let silent_ms = self.link.silent_ms();
            if silent_ms < self.options.ping_idle_ms {
                self.answered(&mut missed);
                sleep(Duration::from_millis(self.options.ping_idle_ms - silent_ms)).await;
                continue;
            }
            let time = Duration::from_millis(self.options.ping_timeout_ms.max(1));
            let pong = self.link.ping(CallTerms::at_most(time)).await;
            // Any frame received meanwhile is as good as the pong.
            if pong.is_ok() || self.link.silent_ms() < self.options.ping_timeout_ms {
                self.answered(&mut missed);
                continue;
            }
            missed += 1;
            if missed == 1 {
                self.post(Msg::Silent { round: self.round });
            }
            if !self.has_connections && missed >= self.options.resync_after_pings {
                self.link.close(LinkDown::Unresponsive);
            }
        }
    }

    fn answered(&self, missed: &mut u32) {
        if std::mem::take(missed) > 0 {
            self.post(Msg::Answers { round: self.round });
        }
    }

    fn post(&self, message: Msg) {
        // An error says that the actor has gone; then this task ends too.
        let _ = self.supervisor.cast(LinkSupervisorMsg(message));
    }
}
