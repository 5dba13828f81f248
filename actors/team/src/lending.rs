//! Handing out what a book holds to whoever asks, first come, first served, one loan at a time.

use std::{collections::VecDeque, sync::Arc};

use hivekeep_kernel::ToolError;
use tokio::sync::oneshot;

use crate::{
    mailbox::book::{Book, Lent, Letter},
    refuse,
};

/// A wish for what is in a book.
pub(crate) struct Ask<T> {
    pub(crate) limit: usize,
    pub(crate) answer_bytes: usize,
    /// Wait for something, instead of being told that there is nothing.
    pub(crate) wait: bool,
    /// Closed by whoever does not wait any more.
    pub(crate) reply: oneshot::Sender<Result<Loan<T>, ToolError>>,
}

/// Tells the book's keeper the number of a loan that is over, and whether it was taken.
pub(crate) type Settle = Arc<dyn Fn(u64, bool) + Send + Sync>;

/// What was handed out. Dropped, it is handed out again, unless it was taken.
pub(crate) struct Loan<T> {
    pub(crate) items: Vec<Lent<T>>,
    /// Left in the book.
    pub(crate) left: usize,
    /// What is still to come into the book, as far as its keeper knows.
    pub(crate) pending: usize,
    /// In the book; none when there was nothing to hand out.
    number: Option<u64>,
    settle: Settle,
    taken: bool,
}

impl<T> Loan<T> {
    /// It reached the receiver.
    pub(crate) fn taken(mut self) {
        self.taken = true;
    }
}

impl<T> Drop for Loan<T> {
    fn drop(&mut self) {
        if let Some(loan) = self.number {
            (self.settle)(loan, self.taken);
        }
    }
}

/// Those who ask.
pub(crate) struct Queue<T> {
    asks: VecDeque<Ask<T>>,
    settle: Settle,
}

impl<T: Letter> Queue<T> {
    pub(crate) fn new(settle: Settle) -> Self {
        Self { asks: VecDeque::new(), settle }
    }

    /// Takes in one more, if there are fewer than `most`; otherwise refuses it.
    pub(crate) fn join(&mut self, ask: Ask<T>, most: usize, member: &str) {
        self.asks.retain(|ask| !ask.reply.is_closed());
        if self.asks.len() >= most {
            let error = refuse::too_many_receivers(member, self.asks.len());
            return drop(ask.reply.send(Err(error)));
        }
        self.asks.push_back(ask);
    }

    /// Hands out what there is to whoever asked first.
    pub(crate) fn serve(&mut self, book: &mut Book<T>, pending: usize) {
        while !book.on_loan()
            && let Some(ask) = self.next(!book.is_empty())
        {
            let lent = book.lend(ask.limit, ask.answer_bytes);
            let (number, items) = lent.map_or((None, Vec::new()), |(n, lent)| (Some(n), lent));
            let left = book.len() - items.len();
            let settle = self.settle.clone();
            let loan = Loan { items, number, left, pending, settle, taken: false };
            // Not taken: it comes back by being dropped.
            drop(ask.reply.send(Ok(loan)));
        }
    }

    /// The first that can be answered now.
    fn next(&mut self, any: bool) -> Option<Ask<T>> {
        self.asks.retain(|ask| !ask.reply.is_closed());
        let at = self.asks.iter().position(|ask| any || !ask.wait)?;
        self.asks.remove(at)
    }
}
