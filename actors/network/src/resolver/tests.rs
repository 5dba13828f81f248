//! Tests of queries and answers, without a kernel.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, CNAME};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::query::{Decision, accept, decide};
use super::*;
use crate::Error;
use crate::plan::{Egress, Subnet};

const PUBLIC: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

fn permit(any: bool, names: &[&str]) -> Permit {
    let named = names.iter().map(|text| match text.parse::<Egress>().unwrap().to {
        Destination::Name(name) => (name, format!("set of {text}")),
        Destination::Block(_) => panic!("{text} is a block"),
    });
    Permit { any, names: named.collect() }
}

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn question(text: &str, kind: RecordType) -> Message {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name(text), kind));
    message
}

fn a(owner: &str, ttl: u32, address: Ipv4Addr) -> Record {
    Record::from_rdata(name(owner), ttl, RData::A(A(address)))
}

#[test]
fn without_the_internet_only_listed_names_are_asked_for() {
    let listed = permit(false, &["good.example", "*.wild.example"]);
    for (text, asked) in [
        ("good.example.", true),
        ("GOOD.Example.", true),
        ("a.wild.example.", true),
        ("wild.example.", false),
        ("sub.good.example.", false),
        ("other.example.", false),
        (".", false),
    ] {
        let decision = decide(&listed, &question(text, RecordType::A)).unwrap();
        let expected = matches!(decision, Decision::Ask(_));
        assert_eq!(expected, asked, "{text}: {decision:?}");
        assert!(asked || decision == Decision::Say(ResponseCode::Refused));
        let free = decide(&permit(true, &[]), &question(text, RecordType::A)).unwrap();
        assert!(matches!(free, Decision::Ask(_)), "{text}");
    }
}

#[test]
fn odd_queries_are_answered_as_what_they_are() {
    let free = permit(true, &[]);
    for kind in [RecordType::AAAA, RecordType::HTTPS] {
        let said = decide(&free, &question("a.example.", kind));
        assert_eq!(said, Some(Decision::Say(ResponseCode::NoError)));
    }
    let said = decide(&free, &question("a.example.", RecordType::AXFR));
    assert_eq!(said, Some(Decision::Say(ResponseCode::NotImp)));
    let mut two = question("a.example.", RecordType::A);
    two.add_query(Query::query(name("b.example."), RecordType::A));
    assert_eq!(decide(&free, &two), Some(Decision::Say(ResponseCode::FormErr)));
    let mut answer = question("a.example.", RecordType::A);
    answer.metadata.message_type = MessageType::Response;
    assert_eq!(decide(&free, &answer), None);
}

#[test]
fn aliases_are_followed_and_strangers_in_an_answer_open_nothing() {
    let listed = permit(false, &["good.example"]);
    let query = Query::query(name("good.example."), RecordType::A);
    let alias =
        |from: &str, to: &str| Record::from_rdata(name(from), 600, RData::CNAME(CNAME(name(to))));
    let stranger = Ipv4Addr::new(203, 0, 113, 66);
    let answers = vec![
        a("end.example.", 30, PUBLIC),
        alias("middle.example.", "end.example."),
        alias("good.example.", "middle.example."),
        alias("loop.example.", "loop.example."),
        a("stranger.example.", 3, stranger),
    ];
    let (openings, answers) = accept(&listed, Subnet::default(), &query, answers);
    assert_eq!(openings.len(), 1);
    assert_eq!(openings[0].set, "set of good.example");
    assert_eq!(openings[0].addresses, [PUBLIC]);
    // The shortest life, but no shorter than a guest needs, and open for longer than believed.
    assert!(answers.iter().all(|record| record.ttl == 5), "{answers:?}");
    assert!(openings[0].secs > 5);
}

#[test]
fn no_name_leads_to_the_host_to_guests_or_to_metadata() {
    let subnet = Subnet::default();
    let opened = |text: &str, address: [u8; 4]| {
        let listed = permit(true, &["good.example", "*.wild.example"]);
        let query = Query::query(name(text), RecordType::A);
        let (openings, _) = accept(&listed, subnet, &query, vec![a(text, 60, address.into())]);
        !openings.is_empty()
    };
    let guest = subnet.gateway().octets();
    for never in
        [[127, 0, 0, 1], [169, 254, 169, 254], [0, 0, 0, 0], [224, 0, 0, 1], [255; 4], guest]
    {
        assert!(!opened("good.example.", never), "{never:?}");
    }
    for private in [[10, 9, 8, 7], [192, 168, 1, 1], [172, 20, 0, 1], [100, 64, 0, 1]] {
        assert!(opened("good.example.", private), "{private:?}");
        assert!(!opened("a.wild.example.", private), "{private:?}");
    }
    assert!(opened("a.wild.example.", PUBLIC.octets()));
}

#[test]
fn upstreams_are_read_as_the_c_library_reads_them() {
    let text =
        "# nameserver 9.9.9.9\nnameserver 192.0.2.1\n\nsearch example\nnameserver\tfd00::1\n";
    let expected: [SocketAddr; 2] =
        ["192.0.2.1:53".parse().unwrap(), "[fd00::1]:53".parse().unwrap()];
    assert_eq!(from_resolv_conf(text), expected);
    assert_eq!(from_resolv_conf(""), ["127.0.0.1:53".parse().unwrap()]);
    let many = "nameserver 192.0.2.1\n".repeat(9);
    assert_eq!(from_resolv_conf(&many).len(), 3);
}

proptest! {
    #[test]
    fn no_bytes_of_a_guest_break_it(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(message) = Message::from_vec(&bytes) {
            let _ = decide(&permit(true, &["good.example"]), &message);
        }
    }
}

/// Notes what is opened; refuses on demand.
#[derive(Default)]
struct Notes {
    opened: Mutex<Vec<ResolvedAddresses>>,
    broken: bool,
}

#[async_trait]
impl AddressOpener for Notes {
    async fn open(&self, openings: Vec<ResolvedAddresses>) -> Result<(), Error> {
        if self.broken {
            return Err(Error::NftBroken("asked to".into()));
        }
        self.opened.lock().unwrap().extend(openings);
        Ok(())
    }
}

/// An upstream that answers each query with so many addresses, truncated over UDP if asked to.
async fn upstream(addresses: u8, truncates: bool) -> SocketAddr {
    let tcp = TcpListener::bind((HERE, 0)).await.unwrap();
    let at = tcp.local_addr().unwrap();
    let udp = UdpSocket::bind(at).await.unwrap();
    let answer = move |bytes: &[u8], truncated| {
        let question = Message::from_vec(bytes).unwrap();
        let query = question.queries[0].clone();
        let mut answer = Message::new(question.metadata.id, MessageType::Response, OpCode::Query);
        answer.metadata.truncation = truncated;
        for last in (1..=addresses).filter(|_| !truncated) {
            let address = A(Ipv4Addr::new(203, 0, 113, last));
            answer.add_answer(Record::from_rdata(query.name().clone(), 60, RData::A(address)));
        }
        answer.add_query(query);
        answer.to_vec().unwrap()
    };
    tokio::spawn(async move {
        let mut buffer = [0; 2048];
        loop {
            tokio::select! {
                received = udp.recv_from(&mut buffer) => {
                    let (len, from) = received.unwrap();
                    udp.send_to(&answer(&buffer[..len], truncates), from).await.unwrap();
                }
                accepted = tcp.accept() => {
                    let (mut stream, _) = accepted.unwrap();
                    let mut bytes = vec![0; stream.read_u16().await.unwrap().into()];
                    stream.read_exact(&mut bytes).await.unwrap();
                    let bytes = answer(&bytes, false);
                    stream.write_u16(bytes.len() as u16).await.unwrap();
                    stream.write_all(&bytes).await.unwrap();
                }
            }
        }
    });
    at
}

/// A resolver at a free port of loopback, for a guest that is loopback.
async fn resolver(
    permit: Permit,
    upstreams: Vec<SocketAddr>,
    opens: Arc<Notes>,
) -> (SocketAddr, ResolverControl) {
    let free = std::net::UdpSocket::bind((HERE, 0)).unwrap().local_addr().unwrap().port();
    let listen = SocketAddrV4::new(HERE, free);
    let permits = Permits { subnet: Subnet::default(), guests: [(HERE, permit)].into() };
    let limits = ResolverLimits { burst: 20, per_guest_per_sec: 1, ..ResolverLimits::default() };
    let settings = ResolverSettings { listen, upstreams, limits, permits, opens, mark: None };
    let resolver = Resolver::bind(settings).await.unwrap();
    let control = resolver.control();
    tokio::spawn(resolver.run());
    (listen.into(), control)
}

async fn ask(at: SocketAddr, message: &Message) -> Option<Message> {
    let socket = UdpSocket::bind((HERE, 0)).await.unwrap();
    socket.send_to(&message.to_vec().unwrap(), at).await.unwrap();
    let mut buffer = [0; 2048];
    let received = tokio::time::timeout(Duration::from_secs(2), socket.recv(&mut buffer)).await;
    received.ok().map(|len| Message::from_vec(&buffer[..len.unwrap()]).unwrap())
}

#[tokio::test]
async fn an_answer_comes_after_its_addresses_are_open() {
    let notes = Arc::new(Notes::default());
    let upstreams = vec![upstream(2, false).await];
    let (at, control) = resolver(permit(false, &["good.example"]), upstreams, notes.clone()).await;
    let answer = ask(at, &question("good.example.", RecordType::A)).await.unwrap();
    assert_eq!((answer.metadata.id, answer.answers.len()), (7, 2));
    assert_eq!(notes.opened.lock().unwrap()[0].addresses.len(), 2);
    let refused = ask(at, &question("other.example.", RecordType::A)).await.unwrap();
    assert_eq!(refused.metadata.response_code, ResponseCode::Refused);
    // Permits change while it runs; who is no member gets no answer.
    control.permit(Permits { subnet: Subnet::default(), guests: HashMap::new() });
    assert!(ask(at, &question("good.example.", RecordType::A)).await.is_none());
}

#[tokio::test]
async fn what_cannot_be_opened_is_not_answered_as_if_it_were() {
    let notes = Arc::new(Notes { broken: true, ..Notes::default() });
    let upstreams = vec![upstream(1, false).await];
    let (at, _) = resolver(permit(false, &["good.example"]), upstreams, notes).await;
    let answer = ask(at, &question("good.example.", RecordType::A)).await.unwrap();
    assert_eq!(answer.metadata.response_code, ResponseCode::ServFail);
    assert!(answer.answers.is_empty());
}

#[tokio::test]
async fn long_answers_are_cut_over_udp_and_whole_over_tcp() {
    let upstreams = vec![upstream(60, true).await];
    let (at, _) = resolver(permit(true, &[]), upstreams, Arc::default()).await;
    let query = question("good.example.", RecordType::A);
    let cut = ask(at, &query).await.unwrap();
    assert!(cut.metadata.truncation && cut.answers.is_empty());
    let mut stream = TcpStream::connect(at).await.unwrap();
    let bytes = query.to_vec().unwrap();
    stream.write_u16(bytes.len() as u16).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    let mut answer = vec![0; stream.read_u16().await.unwrap().into()];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(Message::from_vec(&answer).unwrap().answers.len(), 60);
}

#[tokio::test]
async fn a_guest_that_asks_too_often_is_not_answered() {
    let upstreams = vec![upstream(1, false).await];
    let (at, _) = resolver(permit(true, &[]), upstreams, Arc::default()).await;
    let socket = UdpSocket::bind((HERE, 0)).await.unwrap();
    let bytes = question("good.example.", RecordType::A).to_vec().unwrap();
    for _ in 0..200 {
        socket.send_to(&bytes, at).await.unwrap();
    }
    let mut answered = 0;
    let mut buffer = [0; 2048];
    while tokio::time::timeout(Duration::from_millis(500), socket.recv(&mut buffer)).await.is_ok() {
        answered += 1;
    }
    assert!((1..100).contains(&answered), "{answered} answers");
}

#[test]
fn one_guest_uses_up_its_own_bucket_only_and_it_fills_again() {
    let limits = ResolverLimits { per_guest_per_sec: 2, burst: 3, ..ResolverLimits::default() };
    let buckets = Buckets::new(limits);
    let [one, other] = [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 3)];
    let start = Instant::now();
    let taken = (0..10).filter(|_| buckets.admit(one, start).is_some()).count();
    assert_eq!(taken, 3);
    assert!(buckets.admit(other, start).is_some());
    let later = start + Duration::from_secs(1);
    let taken = (0..10).filter(|_| buckets.admit(one, later).is_some()).count();
    assert_eq!(taken, 2);
}

#[test]
fn open_questions_are_bounded_for_each_guest_and_for_all() {
    let limits =
        ResolverLimits { in_flight_per_guest: 2, in_flight: 3, ..ResolverLimits::default() };
    let buckets = Buckets::new(limits);
    let [one, other] = [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 3)];
    let now = Instant::now();
    let first = buckets.admit(one, now).unwrap();
    let _second = buckets.admit(one, now).unwrap();
    assert!(buckets.admit(one, now).is_none());
    let _third = buckets.admit(other, now).unwrap();
    assert!(buckets.admit(other, now).is_none());
    drop(first);
    assert!(buckets.admit(other, now).is_some());
    buckets.retain(|guest| *guest == other);
    assert_eq!(buckets.guests.lock().unwrap().len(), 1);
}
