//! Exchange: one request to a provider and its answer, read by the program that asked for as long as it stays, and by
//! those that ask the same meanwhile. What shows that the answer is whole is shown once that is recorded.

use std::{io, sync::Arc};

use bytes::Bytes;
use hivekeep_ports::{GuestHttpAnswer, ModelApi, RelayPiece};
use tokio::sync::{mpsc, watch};

use super::request::GatewayRefusal;

/// Pieces that wait for a client that reads slowly.
const PIECES_AHEAD: usize = 16;

/// End of an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ExchangeEnd {
    /// All of the answer is there, and is recorded if it is to be repeated.
    Whole,
    /// The answer ended in the middle.
    Cut,
    /// There is no answer.
    Refused(GatewayRefusal),
}

/// Status and type of an answer, with the pause that it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnswerHead {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) retry_after: Option<u64>,
}

#[derive(Debug, Default)]
struct ExchangeView {
    head: Option<AnswerHead>,
    pieces: Vec<Bytes>,
    /// Pieces that readers may have.
    shown: usize,
    end: Option<ExchangeEnd>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ModelExchange {
    view: watch::Sender<ExchangeView>,
}

impl ModelExchange {
    pub(crate) fn begin() -> Arc<Self> {
        Arc::new(Self { view: watch::channel(ExchangeView::default()).0 })
    }

    /// An exchange that ended before.
    pub(crate) fn ended(head: AnswerHead, body: Bytes) -> Arc<Self> {
        let (pieces, end) = (vec![body], Some(ExchangeEnd::Whole));
        let view = ExchangeView { head: Some(head), pieces, shown: 1, end };
        Arc::new(Self { view: watch::channel(view).0 })
    }

    /// Takes what the provider sends.
    pub(crate) fn take(&self, piece: RelayPiece) {
        self.view.send_modify(|view| match piece {
            RelayPiece::Head { status, content_type, retry_after } => {
                view.head = Some(AnswerHead { status, content_type, retry_after });
            }
            RelayPiece::Body { bytes, ends } => {
                let shown = !ends && view.shown == view.pieces.len();
                view.pieces.push(bytes);
                view.shown += usize::from(shown);
            }
        });
    }

    /// Head and body, as far as they came.
    pub(crate) fn answer(&self) -> Option<(AnswerHead, Vec<u8>)> {
        let view = self.view.borrow();
        Some((view.head.clone()?, view.pieces.concat()))
    }

    /// Ends it: all that came is shown.
    pub(crate) fn end(&self, end: ExchangeEnd) {
        self.view.send_modify(|view| {
            view.shown = view.pieces.len();
            view.end = Some(end);
        });
    }

    /// Gives the answer to a client, from its beginning on; to one that takes it `whole` or not at all once it ended.
    pub(crate) async fn read(self: Arc<Self>, api: ModelApi, whole: bool) -> GuestHttpAnswer {
        let mut news = self.view.subscribe();
        let told = |view: &ExchangeView| view.end.is_some() || !whole && view.head.is_some();
        let told = news.wait_for(told).await.map(|view| (view.head.clone(), view.end.clone()));
        let Ok((head, end)) = told else {
            return GatewayRefusal::new(503, "cut", "the request was cut").answer(api);
        };
        let head = match (head, end) {
            (Some(head), end) if !whole || end == Some(ExchangeEnd::Whole) => head,
            (_, Some(ExchangeEnd::Refused(refusal))) => return refusal.answer(api),
            _ => return GatewayRefusal::new(503, "cut", "the answer was cut").answer(api),
        };
        let (piece, body) = mpsc::channel(PIECES_AHEAD);
        // Ends with its reader, or with the exchange, which has a deadline.
        tokio::spawn(hand_on(news, piece));
        let AnswerHead { status, content_type, retry_after } = head;
        GuestHttpAnswer { status, content_type, retry_after, body }
    }
}

async fn hand_on(mut news: watch::Receiver<ExchangeView>, to: mpsc::Sender<io::Result<Bytes>>) {
    let mut next = 0;
    loop {
        let more = |view: &ExchangeView| view.shown > next || view.end.is_some();
        let new = |view: &ExchangeView| (view.pieces[next..view.shown].to_vec(), view.end.clone());
        let waited = tokio::select! {
            waited = news.wait_for(more) => waited.map(|view| new(&view)),
            () = to.closed() => return,
        };
        // Without a sender whoever asked the provider is gone.
        let (pieces, end) = waited.unwrap_or((Vec::new(), Some(ExchangeEnd::Cut)));
        next += pieces.len();
        for piece in pieces {
            if to.send(Ok(piece)).await.is_err() {
                return;
            }
        }
        match end {
            None => {}
            Some(ExchangeEnd::Whole) => return,
            Some(ExchangeEnd::Cut | ExchangeEnd::Refused(_)) => {
                let _gone = to.send(Err(io::Error::other("the answer was cut"))).await;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &'static str, ends: bool) -> RelayPiece {
        RelayPiece::Body { bytes: text.into(), ends }
    }

    #[tokio::test]
    async fn the_end_of_an_answer_is_shown_when_it_is_recorded_and_to_every_reader() {
        let exchange = ModelExchange::begin();
        let content_type = "text/event-stream".to_owned();
        exchange.take(RelayPiece::Head { status: 200, content_type, retry_after: None });
        exchange.take(body("a", false));
        let mut first = exchange.clone().read(ModelApi::Chat, false).await;
        assert_eq!(first.body.recv().await.expect("one").expect("good"), "a");
        exchange.take(body("b", true));
        exchange.take(body("c", false));
        tokio::task::yield_now().await;
        assert!(first.body.try_recv().is_err(), "held back");
        let mut second = exchange.clone().read(ModelApi::Chat, false).await;
        assert_eq!(exchange.answer().expect("a head").1, b"abc");
        exchange.end(ExchangeEnd::Whole);
        for (reader, mut wanted) in
            [(&mut first, vec!["c", "b"]), (&mut second, vec!["c", "b", "a"])]
        {
            while let Some(piece) = reader.body.recv().await {
                assert_eq!(Some(&*piece.expect("good")), wanted.pop().map(str::as_bytes));
            }
            assert!(wanted.is_empty());
        }
    }

    #[tokio::test]
    async fn a_cut_answer_is_no_end_and_one_that_never_began_is_a_refusal() {
        let exchange = ModelExchange::begin();
        let content_type = "text/event-stream".to_owned();
        exchange.take(RelayPiece::Head { status: 200, content_type, retry_after: None });
        exchange.take(body("a", false));
        exchange.end(ExchangeEnd::Cut);
        assert_eq!(exchange.clone().read(ModelApi::Chat, true).await.status, 503, "whole or none");
        let mut read = exchange.read(ModelApi::Chat, false).await;
        assert!(read.body.recv().await.expect("one").is_ok());
        assert!(read.body.recv().await.expect("the cut").is_err());

        let exchange = ModelExchange::begin();
        exchange.end(ExchangeEnd::Refused(GatewayRefusal::new(402, "llm_budget_exceeded", "x")));
        assert_eq!(exchange.read(ModelApi::Gemini, false).await.status, 402);
        let dropped = ModelExchange::begin();
        let mut news = dropped.view.subscribe();
        drop(dropped);
        assert!(news.changed().await.is_err());
    }
}
