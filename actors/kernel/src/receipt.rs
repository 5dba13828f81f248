//! Delivery receipt: tells an actor whether its answer reached the caller.
//!
//! Most tools do not care. A tool that gives something away does: what was handed out and did not
//! arrive has to be handed out again. The dispatcher keeps the [`ReceiptPad`] of a call and passes
//! it to the front door with the answer; the door signs it once the answer is written. A pad
//! dropped unsigned (the caller has gone, was too late or cancelled, the connection broke, or the
//! answer was refused as too large) reports no delivery.

use tokio::sync::watch;

/// Receiving end, for the actor. Cheap to clone. The default one is never signed.
#[derive(Debug, Clone, Default)]
pub struct Receipt(Option<watch::Receiver<bool>>);

/// Signing end, for the dispatcher and then the door.
#[derive(Debug)]
pub struct ReceiptPad(watch::Sender<bool>);

impl Receipt {
    /// Makes a receipt and its pad.
    pub fn pair() -> (ReceiptPad, Self) {
        let (sender, receiver) = watch::channel(false);
        (ReceiptPad(sender), Self(Some(receiver)))
    }

    /// Waits until it is known whether the answer was delivered. A client that does not read can
    /// delay this, so the caller sets a limit.
    pub async fn taken(self) -> bool {
        let Some(mut receiver) = self.0 else { return false };
        receiver.wait_for(|taken| *taken).await.is_ok_and(|taken| *taken)
    }
}

impl ReceiptPad {
    /// Confirms that the answer is written.
    pub fn sign(self) {
        self.0.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_a_signed_receipt_says_yes() {
        let (pad, receipt) = Receipt::pair();
        pad.sign();
        assert!(receipt.clone().taken().await);
        assert!(receipt.taken().await, "asked twice");
        let (pad, receipt) = Receipt::pair();
        drop(pad);
        assert!(!receipt.taken().await);
        assert!(!Receipt::default().taken().await);
    }
}
