//! A manager of counters that fail as they are told to.

use hivekeep_kernel::{Backoff, GiveUp, Restart, TeamId, entity::spawn_root};
use hivekeep_store::{Options, StreamId};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::*;
use crate::log::{Decision, Log, LogError};

type Id = TeamId;

/// The record, and the state: a name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Named(String);

impl Sourced for Named {
    const KIND: &'static str = "counter";
    type Record = Named;
    fn begin(record: Named) -> Result<Self, Named> {
        if record.0.is_empty() { Err(record) } else { Ok(record) }
    }
    fn apply(&mut self, record: Named) -> Result<(), Named> {
        Err(record)
    }
}

enum Order {
    Stop,
    Fail,
}

struct Counter(Context<Order>);

impl Entity for Counter {
    type Msg = Order;
    type Args = ();
    async fn start((): (), me: Context<Order>) -> Result<Self, Fault> {
        Ok(Self(me))
    }
    fn handle(&mut self, order: Order) -> Result<(), Fault> {
        match order {
            Order::Stop => self.0.stop("told to"),
            Order::Fail => return Err(Fault::new("told to fail")),
        }
        Ok(())
    }
}

struct Card {
    name: Option<String>,
    counts: bool,
}

impl CollectionMember for Card {
    type Id = Id;
    type Actor = Counter;
    const KIND: &'static str = "counter";
    const RESTART: RestartPolicy = RestartPolicy {
        restart: Restart::OnFailure,
        max_restarts: 1,
        window_secs: 60,
        backoff: Backoff { initial_ms: 1, max_ms: 1 },
        give_up: GiveUp::StayDown,
    };
    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
    fn takes_place(&self) -> bool {
        self.counts
    }
}

fn card(name: &str) -> Card {
    Card { name: Some(name.to_owned()), counts: true }
}

type Look = Box<dyn FnOnce(&mut Collection<Card>) + Send>;

struct Manager(Collection<Card>, mpsc::Sender<(Id, MemberEnd)>);

impl Entity for Manager {
    type Msg = Look;
    type Args = (Census, mpsc::Sender<(Id, MemberEnd)>);
    async fn start((census, news): Self::Args, me: Context<Look>) -> Result<Self, Fault> {
        Ok(Self(Collection::new(&me, census), news))
    }
    fn handle(&mut self, look: Look) -> Result<(), Fault> {
        look(&mut self.0);
        Ok(())
    }
    fn child(&mut self, end: ChildEnd) -> Result<(), Fault> {
        if let Some(ended) = self.0.handle_end(end)? {
            self.1.try_send(ended).map_err(|_| Fault::new("nobody listens"))?;
        }
        Ok(())
    }
}

struct Stage {
    manager: Address<Look>,
    census: Census,
    news: mpsc::Receiver<(Id, MemberEnd)>,
}

impl Stage {
    async fn new() -> Self {
        let (census, (tell, news)) = (Census::default(), mpsc::channel(8));
        let manager = Address::vacant(census.probe("counters", "m", RestartPolicy::ESSENTIAL));
        spawn_root::<Manager>(&manager, (census.clone(), tell)).await.expect("it spawns");
        Self { manager, census, news }
    }

    async fn with<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Collection<Card>) -> T + Send + 'static,
    ) -> T {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let look: Look = Box::new(move |all| drop(answer.send(look(all))));
        self.manager.send(look).expect("it is there");
        answered.await.expect("it answers")
    }
}

#[tokio::test]
async fn members_are_found_by_id_and_name_and_bounded_in_number() {
    let stage = Stage::new().await;
    let (one, two, three) = (Id::new(), Id::new(), Id::new());
    stage
        .with(move |all| {
            assert_eq!(all.admit(one, card("a"), 2), Ok(()));
            assert_eq!(all.admit(two, card("a"), 2), Err(NotAdmitted::NameTaken(one)));
            assert_eq!(all.admit(two, Card { name: None, counts: true }, 2), Ok(()));
            assert_eq!(all.admit(three, card("b"), 2), Err(NotAdmitted::Full(2)));
            let uncounted = Card { counts: false, ..card("b") };
            assert_eq!(all.admit(three, uncounted, 2), Ok(()), "it takes no place");
            assert_eq!(all.find("a").map(|(id, _)| id), Some(one));
            assert_eq!(all.find(&two.to_string()).map(|(id, _)| id), Some(two));
            assert!(all.find("c").is_none() && all.address(one).is_none());
            assert_eq!(all.iter().map(|(id, _)| id).collect::<Vec<_>>(), [one, two, three]);
            assert!(all.remove(one).is_some() && all.remove(one).is_none());
            assert_eq!(all.admit(Id::new(), card("a"), 2), Ok(()), "its name is free again");
        })
        .await;
}

#[tokio::test]
async fn a_member_that_takes_another_name_leaves_its_old_one_to_others() {
    let stage = Stage::new().await;
    stage
        .with(|all| {
            let (one, two) = (Id::new(), Id::new());
            assert_eq!(all.insert(one, card("a")), Ok(()));
            assert_eq!(all.insert(one, card("b")), Ok(()));
            assert!(all.find("a").is_none());
            assert_eq!(all.insert(two, card("a")), Ok(()));
            assert_eq!(all.insert(one, card("a")), Err(NotAdmitted::NameTaken(two)));
            assert_eq!(all.find("b").map(|(id, _)| id), Some(one));
        })
        .await;
}

#[tokio::test]
async fn a_name_that_looks_like_an_id_is_found_and_takes_no_ones_place() {
    let stage = Stage::new().await;
    stage
        .with(|all| {
            let (one, two, nobody) = (Id::new(), Id::new(), Id::new().to_string());
            assert_eq!(all.insert(one, card(&nobody)), Ok(()));
            assert_eq!(all.insert(two, card(&one.to_string())), Ok(()));
            let found = |text: &str| all.find(text).map(|(id, _)| id);
            assert_eq!((found(&nobody), found(&one.to_string())), (Some(one), Some(one)));
            let named = |text: &str| all.find_name(text).map(|(id, _)| id);
            assert_eq!((named(&one.to_string()), named(&two.to_string())), (Some(two), None));
        })
        .await;
}

#[tokio::test]
async fn an_actor_starts_where_others_wait_for_it() {
    let mut stage = Stage::new().await;
    let id = Id::new();
    let known = stage.with(move |all| all.vacant(id)).await;
    let address = known.clone();
    stage
        .with(move |all| {
            assert!(all.start_at(id, &address, ()).is_err(), "there is no such member");
            all.admit(id, card("a"), 1).expect("there is room");
            all.start_at(id, &address, ()).expect("it starts");
            assert!(all.address(id).is_some());
            all.get_mut(id).expect("it is there").counts = false;
            assert_eq!(all.admit(Id::new(), card("b"), 1), Ok(()), "it takes no place any more");
        })
        .await;
    known.send(Order::Stop).expect("it is there");
    assert_eq!(stage.news.recv().await, Some((id, MemberEnd::InOrder)));
}

#[tokio::test]
async fn an_actor_ends_in_order_or_is_given_up_and_takes_no_place_then() {
    let mut stage = Stage::new().await;
    let (stops, fails) = (Id::new(), Id::new());
    let (stop, fail) = stage
        .with(move |all| {
            all.admit(stops, card("s"), 2).expect("there is room");
            all.admit(fails, card("f"), 2).expect("there is room");
            (all.start(stops, ()).expect("it starts"), all.start(fails, ()).expect("it starts"))
        })
        .await;
    let shown = stage.census.rows().into_iter().find(|row| row.path.ends_with(&fails.to_string()));
    let shown = shown.expect("it is shown");
    assert_eq!(
        (shown.path.as_str(), shown.kind.as_str()),
        (&*format!("counters/{fails}"), "counter")
    );
    stop.send(Order::Stop).expect("it is there");
    assert_eq!(stage.news.recv().await, Some((stops, MemberEnd::InOrder)));
    let given_up = loop {
        // It is down for a moment between two incarnations.
        let _between = fail.send(Order::Fail);
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        if let Ok(ended) = stage.news.try_recv() {
            break ended;
        }
    };
    assert!(matches!(given_up, (id, MemberEnd::GivenUp(_)) if id == fails), "{given_up:?}");
    stage
        .with(move |all| {
            assert!(all.address(stops).is_none() && all.given_up(stops).is_none());
            assert!(all.given_up(fails).is_some_and(|why| why.contains("told to fail")));
            assert_eq!(all.admit(Id::new(), card("n"), 2), Ok(()));
            assert!(all.start(Id::new(), ()).is_err(), "there is no such member");
        })
        .await;
}

#[tokio::test]
async fn what_is_recorded_is_loaded_with_its_ids_and_strays_are_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = Journal::open(Options::at(folder.path())).expect("it opens").0;
    let id = Id::new();
    let log = Log::<Named>::open(journal.clone(), log::stream::<Named>(id).expect("a name")).await;
    let named = Named("n".to_owned());
    let write = |_: Option<&Named>| Ok::<_, LogError>(Decision::record(named.clone()));
    log.expect("it opens").decide(write).expect("it is open").await.expect("it is written");
    let stray = log::stream::<Named>(Id::new()).expect("a name");
    journal.append(&stray, vec![b"\"\"".to_vec()]).await.expect("written");
    let all = load::<Named, Id>(&journal).await.expect("it is readable");
    assert_eq!(all.into_iter().map(|(id, it)| (id, it.state)).collect::<Vec<_>>(), [(id, named)]);
    let left = journal.streams("counter/").expect("readable");
    assert_eq!(left.len(), 1, "the stray is gone");
    let odd = StreamId::new("counter", "odd").expect("a name");
    journal.append(&odd, vec![b"\"x\"".to_vec()]).await.expect("written");
    load::<Named, Id>(&journal).await.expect_err("it is not an id");
}
