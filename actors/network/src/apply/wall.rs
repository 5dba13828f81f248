//! The second wall: a traffic filter on the bridge that does not live in nftables.
//!
//! Whoever empties the packet filter (`nft flush ruleset`, with which a restart of Debian's
//! nftables begins) leaves a host that routes whatever guests send. So a classifier stands at the
//! bridge's own interface, where everything passes that guests say to anybody but one another's
//! ports, and everything that is said to them. What our rules have not marked as [`JUDGED`], it
//! drops: where they are gone nothing passes, whether a daemon runs or not. ARP is let by, which
//! leads to the gateway only.
//!
//! It is a program of classic BPF for `cls_bpf`, which the kernel takes over rtnetlink into a
//! `clsact` queueing discipline. Both go with the bridge.

use futures::StreamExt;
use rtnetlink::packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::tc::{
    TcAttribute, TcBpfFlags, TcFilterBpf, TcFilterBpfOption, TcHandle, TcHeader, TcMessage,
    TcOption,
};
use rtnetlink::{Error as Refusal, Handle};

use crate::Error;
use crate::error::code;
use crate::rules::JUDGED;

/// Instructions of classic BPF: code, jumps if true and if false, operand.
type Instruction = (u16, u8, u8, u32);

const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const JUMP_IF_SET: u16 = 0x45;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
/// Offsets of data that is not in the packet itself: `SKF_AD_OFF` and `SKF_AD_MARK`,
/// `SKF_AD_PROTOCOL`.
const MARK: u32 = 0xffff_f000 + 20;
const PROTOCOL: u32 = 0xffff_f000;
const ARP: u32 = 0x0806;
/// `TC_ACT_SHOT`: the packet is dropped.
const DROP: u32 = 2;
/// `TC_ACT_UNSPEC`: others that look at packets here go on.
const PASS: u32 = u32::MAX;

const PROGRAM: [Instruction; 6] = [
    (LOAD_WORD, 0, 0, MARK),
    (JUMP_IF_SET, 3, 0, JUDGED),
    (LOAD_HALF, 0, 0, PROTOCOL),
    (JUMP_IF_EQUAL, 1, 0, ARP),
    (RETURN, 0, 0, DROP),
    (RETURN, 0, 0, PASS),
];

/// `TCA_BPF_OPS_LEN`, `TCA_BPF_OPS`: rtnetlink has no words for classic programs.
const LENGTH_OF_PROGRAM: u16 = 4;
const INSTRUCTIONS: u16 = 5;
const ETH_P_ALL: u16 = 3;

/// Puts the wall up, or anew. A kernel that has no such filters goes without, which the self-test
/// finds and says.
pub(super) async fn stand(netlink: &Handle, bridge: u32) -> Result<(), Error> {
    let index = bridge.cast_signed();
    let place = TcHeader {
        index,
        handle: TcHandle { major: u16::MAX, minor: 0 },
        parent: TcHandle::CLSACT,
        ..TcHeader::default()
    };
    let discipline = TcMessage::from_parts(place, vec![TcAttribute::Kind("clsact".to_owned())]);
    let made = RouteNetlinkMessage::NewQueueDiscipline(discipline);
    let mut outcome = ask(netlink, made, NLM_F_CREATE | NLM_F_EXCL).await;
    if matches!(&outcome, Err(refusal) if code(refusal) == Some(libc::EEXIST)) {
        outcome = Ok(());
    }
    for minor in [TcHandle::MIN_INGRESS, TcHandle::MIN_EGRESS] {
        if outcome.is_ok() {
            let filter = RouteNetlinkMessage::NewTrafficFilter(filter(index, minor));
            outcome = ask(netlink, filter, NLM_F_CREATE | NLM_F_REPLACE).await;
        }
    }
    match outcome {
        Err(refusal) if matches!(code(&refusal), Some(libc::ENOENT | libc::EOPNOTSUPP)) => {
            tracing::debug!(%refusal, "this kernel has no filter for a second wall");
            Ok(())
        }
        outcome => outcome.map_err(Error::netlink("put up the bridge's second wall")),
    }
}

/// The program for one direction.
fn filter(index: i32, minor: u16) -> TcMessage {
    let header = TcHeader {
        index,
        handle: TcHandle { major: 0, minor: 1 },
        parent: TcHandle { major: u16::MAX, minor },
        // Its priority, the first; and packets of every protocol.
        info: 1 << 16 | u32::from(ETH_P_ALL.to_be()),
        ..TcHeader::default()
    };
    let other = |kind, bytes| TcFilterBpfOption::Other(DefaultNla::new(kind, bytes));
    let length = u16::try_from(PROGRAM.len()).expect("a short program");
    let instructions = PROGRAM.map(|(code, yes, no, operand)| {
        [&code.to_ne_bytes()[..], &[yes, no], &operand.to_ne_bytes()].concat()
    });
    let options = [
        other(LENGTH_OF_PROGRAM, length.to_ne_bytes().to_vec()),
        other(INSTRUCTIONS, instructions.concat()),
        TcFilterBpfOption::Flags(TcBpfFlags::DirectAction),
    ];
    let kind = TcAttribute::Kind(TcFilterBpf::KIND.to_owned());
    let options = TcAttribute::Options(options.map(TcOption::Bpf).into());
    TcMessage::from_parts(header, vec![kind, options])
}

async fn ask(netlink: &Handle, what: RouteNetlinkMessage, flags: u16) -> Result<(), Refusal> {
    let mut question = NetlinkMessage::from(what);
    question.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    let mut answers = netlink.clone().request(question)?;
    while let Some(answer) = answers.next().await {
        if let NetlinkPayload::Error(error) = answer.payload
            && error.code.is_some()
        {
            return Err(Refusal::NetlinkError(error));
        }
    }
    Ok(())
}
