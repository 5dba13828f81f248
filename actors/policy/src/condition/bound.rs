//! Variables that an expression binds itself, as `x` in `list.exists(x, x > 1)`.

use std::collections::BTreeSet;

use cel::common::ast::{EntryExpr, Expr, IdedExpr};

/// Names that some comprehension of an expression binds.
pub(super) fn names(expression: &IdedExpr) -> BTreeSet<&str> {
    let (mut bound, mut open) = (BTreeSet::new(), vec![expression]);
    while let Some(one) = open.pop() {
        match &one.expr {
            Expr::Call(call) => {
                open.extend(call.target.as_deref());
                open.extend(&call.args);
            }
            Expr::Comprehension(it) => {
                bound.insert(it.iter_var.as_str());
                bound.extend(it.iter_var2.as_deref());
                open.extend([
                    &it.iter_range,
                    &it.accu_init,
                    &it.loop_cond,
                    &it.loop_step,
                    &it.result,
                ]);
            }
            Expr::List(list) => open.extend(&list.elements),
            Expr::Map(map) => {
                map.entries.iter().for_each(|entry| open.extend(of_entry(&entry.expr)))
            }
            Expr::Struct(it) => {
                it.entries.iter().for_each(|entry| open.extend(of_entry(&entry.expr)))
            }
            Expr::Select(select) => open.push(&select.operand),
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        }
    }
    bound
}

fn of_entry(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}
