//! Delivery acknowledgement: which answers were written to their connection.
//!
//! ```text
//! request ─► expected ── answered ─► its receipt waits here ── written ─► signed
//!               └────── cancelled ──────────┴─► forgotten, and its receipt unsigned
//! ```
//! rmcp takes an answer from the handler, and drops it without a word when its request was
//! cancelled meanwhile. Only the transport sees both what comes and what is really sent.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use hivekeep_kernel::{ReceiptPad, lock};
use rmcp::{
    RoleServer,
    model::{ClientNotification, ClientRequest, JsonRpcMessage, RequestId},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};

/// The receipts of one connection's calls, by request. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Receipts(Arc<Mutex<HashMap<RequestId, Option<ReceiptPad>>>>);

impl Receipts {
    /// The call was answered. A receipt that nobody expects any more stays unsigned.
    pub(super) fn keep(&self, id: &RequestId, receipt: ReceiptPad) {
        if let Some(place) = self.all().get_mut(id) {
            *place = Some(receipt);
        }
    }

    fn observe(&self, message: &RxJsonRpcMessage<RoleServer>) {
        match message {
            JsonRpcMessage::Request(call) => {
                if let ClientRequest::CallToolRequest(_) = &call.request {
                    self.all().insert(call.id.clone(), None);
                }
            }
            JsonRpcMessage::Notification(told) => {
                if let ClientNotification::CancelledNotification(cancelled) = &told.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.all().remove(id);
                }
            }
            _ => {}
        }
    }

    /// The receipt for what is about to be sent.
    fn of(&self, message: &TxJsonRpcMessage<RoleServer>) -> Option<ReceiptPad> {
        let id = match message {
            JsonRpcMessage::Response(answer) => &answer.id,
            JsonRpcMessage::Error(error) => error.id.as_ref()?,
            _ => return None,
        };
        self.all().remove(id)?
    }

    fn all(&self) -> MutexGuard<'_, HashMap<RequestId, Option<ReceiptPad>>> {
        // Nothing between lock and unlock panics; were it so, the map still holds.
        lock(&self.0)
    }
}

/// A transport that signs for what it has written.
#[derive(Debug)]
pub struct ReceiptTransport<T> {
    transport: T,
    receipts: Receipts,
}

impl<T> ReceiptTransport<T> {
    pub(super) fn new(transport: T, receipts: Receipts) -> Self {
        Self { transport, receipts }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for ReceiptTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let receipt = self.receipts.of(&message);
        let sending = self.transport.send(message);
        async move {
            sending.await?;
            receipt.into_iter().for_each(ReceiptPad::sign);
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let message = self.transport.receive().await?;
        self.receipts.observe(&message);
        Some(message)
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.transport.close().await
    }
}

#[cfg(test)]
mod tests {
    use hivekeep_kernel::Receipt;
    use rmcp::{
        ErrorData, ServerHandler,
        model::{CallToolRequestParams, CallToolResponse, CallToolResult},
        service::{RequestContext, serve_directly},
        transport::async_rw::AsyncRwTransport,
    };
    use tokio::{
        io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf, split},
        sync::{Mutex, mpsc},
    };

    use super::*;

    /// Answers each call when it is told to, with a receipt, whatever became of its request.
    struct Patient {
        receipts: Receipts,
        called: mpsc::Sender<()>,
        pads: Mutex<mpsc::Receiver<ReceiptPad>>,
    }

    impl ServerHandler for Patient {
        async fn call_tool(
            &self,
            _: CallToolRequestParams,
            context: RequestContext<RoleServer>,
        ) -> Result<CallToolResponse, ErrorData> {
            self.called.send(()).await.expect("the test listens");
            let pad = self.pads.lock().await.recv().await.expect("told to answer");
            self.receipts.keep(&context.id, pad);
            Ok(CallToolResponse::Complete(CallToolResult::structured(1.into())))
        }
    }

    struct Client {
        reads: BufReader<ReadHalf<DuplexStream>>,
        writes: WriteHalf<DuplexStream>,
        called: mpsc::Receiver<()>,
        answer: mpsc::Sender<ReceiptPad>,
    }

    impl Client {
        async fn new(buffer: usize) -> Self {
            let (ours, theirs) = tokio::io::duplex(buffer);
            let (called, calls) = mpsc::channel(8);
            let (answer, pads) = mpsc::channel(8);
            let receipts = Receipts::default();
            let (reader, writer) = split(theirs);
            let transport = AsyncRwTransport::new_server(reader, writer);
            let transport = ReceiptTransport::new(transport, receipts.clone());
            let handler = Patient { receipts, called, pads: Mutex::new(pads) };
            let running = serve_directly::<RoleServer, _, _, _, _>(handler, transport, None);
            tokio::spawn(running.waiting());
            let (reads, writes) = split(ours);
            Self { reads: BufReader::new(reads), writes, called: calls, answer }
        }

        async fn say(&mut self, line: &str) {
            self.writes.write_all(format!("{line}\n").as_bytes()).await.expect("written");
        }

        async fn call(&mut self, id: u32) {
            let call = r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"t"}}"#;
            self.say(&call.replace("ID", &id.to_string())).await;
            self.called.recv().await.expect("called");
        }

        fn answer(&self) -> Receipt {
            let (pad, receipt) = Receipt::pair();
            self.answer.try_send(pad).expect("it waits");
            receipt
        }

        async fn read(&mut self) -> String {
            let mut line = String::new();
            self.reads.read_line(&mut line).await.expect("read");
            line
        }
    }

    #[tokio::test]
    async fn an_answer_is_received_when_it_is_written() {
        let mut client = Client::new(1 << 16).await;
        client.call(1).await;
        let receipt = client.answer();
        assert!(receipt.taken().await);
        assert!(client.read().await.contains(r#""id":1"#));
    }

    #[tokio::test]
    async fn the_answer_to_a_call_that_was_cancelled_is_not() {
        let mut client = Client::new(1 << 16).await;
        client.call(1).await;
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        client.say(cancel).await;
        // Behind the cancellation.
        client.call(2).await;
        let (first, second) = (client.answer(), client.answer());
        assert!(!first.taken().await, "rmcp drops it");
        assert!(second.taken().await);
        assert!(client.read().await.contains(r#""id":2"#));
    }

    #[tokio::test]
    async fn what_a_client_that_leaves_did_not_read_is_not() {
        // An answer does not fit: it is being written until the client reads.
        let mut client = Client::new(16).await;
        client.call(1).await;
        let receipt = client.answer();
        assert_eq!(client.reads.fill_buf().await.expect("begun").len(), 16);
        drop(client);
        assert!(!receipt.taken().await);
    }
}
