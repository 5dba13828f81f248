//! The few expressions and statements that our rules are made of, short enough to read.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Display;

use nftables::expr::{
    BinaryOperation, CT, CTDir, Expression, Fib, FibFlag, FibResult, Meta, MetaKey,
    NamedExpression, Payload, PayloadField, Prefix, Range, SetItem, Socket, SocketAttr, Verdict,
};
use nftables::stmt::{
    CTCount, JumpTarget, Mangle, Match, NAT, NATFamily, Operator, Reject, RejectType, Statement,
    VerdictMap,
};
use nftables::types::RejectCode;

use crate::plan::AddressBlock;

pub(super) type Expr = Expression<'static>;
pub(super) type Stmt = Statement<'static>;

pub(super) fn text(value: impl Display) -> Expr {
    Expression::String(value.to_string().into())
}

pub(super) fn number(value: impl Into<u32>) -> Expr {
    Expression::Number(value.into())
}

pub(super) fn range(first: u16, last: u16) -> Expr {
    match first == last {
        true => number(first),
        false => Expression::Range(Box::new(Range { range: [number(first), number(last)] })),
    }
}

pub(super) fn block(block: AddressBlock) -> Expr {
    match block.prefix_len() {
        32 => text(block.base()),
        len => {
            let addr = Box::new(text(block.base()));
            Expression::Named(NamedExpression::Prefix(Prefix { addr, len: len.into() }))
        }
    }
}

pub(super) fn set(items: impl IntoIterator<Item = Expr>) -> Expr {
    let items = items.into_iter().map(SetItem::Element).collect();
    Expression::Named(NamedExpression::Set(items))
}

pub(super) fn concat(parts: impl IntoIterator<Item = Expr>) -> Expr {
    Expression::Named(NamedExpression::Concat(parts.into_iter().collect()))
}

pub(super) fn meta(key: MetaKey) -> Expr {
    Expression::Named(NamedExpression::Meta(Meta { key }))
}

pub(super) fn payload(protocol: &'static str, field: &'static str) -> Expr {
    let field = PayloadField { protocol: protocol.into(), field: field.into() };
    Expression::Named(NamedExpression::Payload(Payload::PayloadField(field)))
}

/// Property of the connection as a whole.
pub(super) fn ct(key: &'static str) -> Expr {
    Expression::Named(NamedExpression::CT(CT { key: key.into(), family: None, dir: None }))
}

/// Property of the direction in which the connection was opened.
pub(super) fn opened(key: &'static str) -> Expr {
    let dir = Some(CTDir::Original);
    Expression::Named(NamedExpression::CT(CT { key: key.into(), family: None, dir }))
}

/// Property of the direction in which the connection is answered, after address translation.
pub(super) fn answered(key: &'static str) -> Expr {
    let dir = Some(CTDir::Reply);
    Expression::Named(NamedExpression::CT(CT { key: key.into(), family: None, dir }))
}

/// Kind of address that the packet goes to, such as `local`.
pub(super) fn destination_kind() -> Expr {
    let flags = HashSet::from([FibFlag::Daddr]);
    Expression::Named(NamedExpression::Fib(Fib { result: FibResult::Type, flags }))
}

/// The mark of the host's socket that the packet would come to. It is none, and equal to
/// nothing, where no socket would take the packet.
pub(super) fn socket_mark() -> Expr {
    let key = Cow::Owned(SocketAttr::Mark);
    Expression::Named(NamedExpression::Socket(Socket { key }))
}

pub(super) fn is(left: Expr, right: Expr) -> Stmt {
    Statement::Match(Match { left, right, op: Operator::EQ })
}

pub(super) fn is_not(left: Expr, right: Expr) -> Stmt {
    Statement::Match(Match { left, right, op: Operator::NEQ })
}

/// For fields that are bits.
pub(super) fn has(left: Expr, bit: &'static str) -> Stmt {
    Statement::Match(Match { left, right: text(bit), op: Operator::IN })
}

pub(super) fn jump(chain: impl Display) -> Stmt {
    Statement::Jump(JumpTarget { target: chain.to_string().into() })
}

pub(super) fn goto(chain: impl Display) -> Stmt {
    Statement::Goto(JumpTarget { target: chain.to_string().into() })
}

/// Goes on in the chain that belongs to the key's value; falls through where there is none.
pub(super) fn dispatch(key: Expr, to: impl IntoIterator<Item = (Expr, String)>) -> Option<Stmt> {
    let goto = |chain: String| Verdict::Goto(JumpTarget { target: chain.into() });
    let items: Vec<_> = to
        .into_iter()
        .map(|(value, chain)| SetItem::Mapping(value, Expression::Verdict(goto(chain))))
        .collect();
    if items.is_empty() {
        return None;
    }
    let data = Expression::Named(NamedExpression::Set(items));
    Some(Statement::VerdictMap(VerdictMap { key, data }))
}

pub(super) fn accept() -> Stmt {
    Statement::Accept(None)
}

pub(super) fn drop() -> Stmt {
    Statement::Drop(None)
}

/// Refuses so that the sender learns of it at once. A reset for TCP, since the kernel limits how
/// many ICMP errors it sends, and programs wait where one is missing.
pub(super) fn refuse() -> [Vec<Stmt>; 2] {
    let code = RejectCode::AdminProhibited;
    let reset = Statement::Reject(Some(Reject::new(Some(RejectType::TCPReset), None)));
    let error = Statement::Reject(Some(Reject::new(Some(RejectType::ICMPX), Some(code))));
    [vec![is(meta(MetaKey::L4proto), text("tcp")), reset], vec![error]]
}

/// More connections than this came to the rule and are still open.
pub(super) fn more_than(connections: u32) -> Stmt {
    Statement::CTCount(CTCount { val: number(connections), inv: Some(true) })
}

pub(super) fn set_mark(mark: u32) -> Stmt {
    Statement::Mangle(Mangle { key: ct("mark"), value: number(mark) })
}

/// Adds a bit to the mark of the packet, not of its connection; the mark's other bits stay.
pub(super) fn add_to_mark(bit: u32) -> Stmt {
    let both = BinaryOperation::OR(vec![meta(MetaKey::Mark), number(bit)]);
    let value = Expression::BinaryOperation(Box::new(both));
    Statement::Mangle(Mangle { key: meta(MetaKey::Mark), value })
}

/// Matches a packet whose mark lacks the bit.
pub(super) fn lacks(bit: u32) -> Stmt {
    let both = BinaryOperation::AND(meta(MetaKey::Mark), number(bit));
    is(Expression::BinaryOperation(Box::new(both)), number(0u32))
}

pub(super) fn masquerade() -> Stmt {
    Statement::Masquerade(None)
}

pub(super) fn dnat(address: impl Display, port: u16) -> Stmt {
    Statement::DNAT(Some(NAT {
        addr: Some(text(address)),
        family: Some(NATFamily::IP),
        port: Some(number(port)),
        flags: None,
    }))
}
