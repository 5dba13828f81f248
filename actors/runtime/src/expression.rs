//! Expressions of the Common Expression Language (CEL) that are true or false, bounded in what they cost.
//!
//! Strangers write some of them, and loops over lists stand within loops. So the text is bounded, and its nesting; what
//! it is evaluated over, which is of a variable those members alone that the expression names; and the product of
//! both. In a loop texts and lists are not put together, for each such loop might double them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, LazyLock},
};

use cel::{
    Context, Env,
    common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators},
    objects::{Key, Map},
    parser::PrattParser,
};
use serde_json::Value;

use cel::Value as CelValue;

/// Longest expression in bytes.
const MAX_BYTES: usize = 4_096;
/// Most nodes of an expression, and levels of them, as each is evaluated on the stack.
const MAX_NODES: usize = 500;
const MAX_DEPTH: usize = 32;
/// Most values of a variable, and bytes of its texts.
const MAX_VALUES: usize = 1_000;
const MAX_TEXT_BYTES: usize = 256 * 1024;
/// Most known names that a message lists.
const MAX_TOLD: usize = 24;
/// Most steps of an evaluation, by an estimate; bytes of texts that add one to the weight of a step.
const MAX_STEPS: usize = 1_000_000;
const BYTES_PER_STEP: usize = 16 * 1024;
/// Standard functions and types. Made once: that takes longer than most expressions.
static STANDARD: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// Members on the way from a variable to what an expression names; none for the variable as a whole.
type Members = Vec<String>;

/// Expression that is compiled.
#[derive(Debug)]
pub struct Expression {
    tree: IdedExpr,
    variables: BTreeMap<String, Vec<Members>>,
    /// Numbers of nodes by the loops around them, and of additions.
    nodes: Vec<usize>,
    additions: usize,
}

/// Value of a variable of expressions.
#[derive(Debug, Clone)]
pub struct ExpressionValue {
    value: CelValue,
    size: ExpressionSize,
}

impl ExpressionValue {
    /// Value with all of its members.
    ///
    /// # Errors
    /// When they are too many or too large.
    pub fn whole(value: &Value) -> Result<Self, String> {
        Self::with(value, &[&[]], ExpressionSize { is_bounded: true, ..Default::default() })
    }

    /// Value whose size is bounded elsewhere.
    ///
    /// # Errors
    /// As [`Self::whole`], though not for its size.
    pub fn unbounded(value: &Value) -> Result<Self, String> {
        Self::with(value, &[&[]], ExpressionSize::default())
    }

    fn with(
        value: &Value,
        members: &[&[String]],
        mut size: ExpressionSize,
    ) -> Result<Self, String> {
        Ok(Self { value: seen(value, members, &mut size)?, size })
    }
}

impl Expression {
    /// Compiles an expression over variables of these names.
    ///
    /// # Errors
    /// Why it is none.
    pub fn new(text: &str, known: &BTreeSet<&str>) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("is longer than {MAX_BYTES} bytes"));
        }
        let tree = PrattParser::new()
            .parse(text)
            .map_err(|error| format!("is not a valid expression: {error}"))?;
        let Walked { variables, nodes, additions } = walk(&tree, known)?;
        if let Some(name) = variables.keys().find(|name| !known.contains(name.as_str())) {
            let known: Vec<_> = known.iter().copied().take(MAX_TOLD).collect();
            return Err(format!("`{name:.80}` is not one of {}", known.join(", ")));
        }
        Ok(Self { tree, variables, nodes, additions })
    }

    /// Whether the expression names a variable.
    pub fn names(&self, variable: &str) -> bool {
        self.variables.contains_key(variable)
    }

    /// Value of a variable, with the members that the expression names.
    ///
    /// # Errors
    /// When they are too many or too large.
    pub fn variable(&self, name: &str, value: &Value) -> Result<ExpressionValue, String> {
        let members = self.variables.get(name).map(Vec::as_slice).unwrap_or_default();
        let members: Vec<_> = members.iter().map(Vec::as_slice).collect();
        let size = ExpressionSize { is_bounded: true, ..Default::default() };
        ExpressionValue::with(value, &members, size)
    }

    /// Whether the expression is true over variables, which have to be those that it names.
    ///
    /// # Errors
    /// Why neither can be said, as for a member that is not there.
    pub fn holds<'v>(
        &self,
        variables: impl IntoIterator<Item = (&'v str, ExpressionValue)>,
    ) -> Result<bool, String> {
        let mut context = Context::with_env(STANDARD.clone());
        let (mut values, mut bytes) = (self.nodes.iter().sum::<usize>(), 0);
        for (name, ExpressionValue { value, size }) in variables {
            values += size.values;
            bytes += size.bytes;
            context.add_variable_from_value(name, value);
        }
        let turns = values.saturating_mul(1 + self.additions);
        let steps = self
            .nodes
            .iter()
            .rev()
            .fold(0_usize, |inner, nodes| inner.saturating_mul(turns).saturating_add(*nodes));
        if steps.saturating_mul(1 + bytes / BYTES_PER_STEP) > MAX_STEPS {
            return Err("would take too many steps over an input of this size".to_owned());
        }
        match CelValue::resolve(&self.tree, &context) {
            Ok(CelValue::Bool(holds)) => Ok(holds),
            Ok(other) => Err(format!("is {:?}, not true or false", other.type_of())),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Values and bytes of texts that a variable has so far.
#[derive(Debug, Clone, Default)]
struct ExpressionSize {
    values: usize,
    bytes: usize,
    is_bounded: bool,
}

fn seen(
    value: &Value,
    members: &[&[String]],
    size: &mut ExpressionSize,
) -> Result<CelValue, String> {
    size.values += 1;
    size.bytes += value.as_str().map_or(0, str::len);
    if size.is_bounded && (size.values > MAX_VALUES || size.bytes > MAX_TEXT_BYTES) {
        return Err("the input is too large to judge".to_owned());
    }
    Ok(match value {
        Value::Null => CelValue::Null,
        Value::Bool(it) => CelValue::Bool(*it),
        // JSON knows no unsigned numbers, which CEL does not add to others.
        Value::Number(it) => match (it.as_i64(), it.as_u64()) {
            (Some(it), _) => CelValue::Int(it),
            (None, Some(it)) => CelValue::UInt(it),
            (None, None) => CelValue::Float(it.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => CelValue::String(Arc::new(text.clone())),
        Value::Array(list) => {
            let list = list.iter().map(|item| seen(item, &[&[]], size));
            CelValue::List(Arc::new(list.collect::<Result<_, _>>()?))
        }
        Value::Object(object) => {
            let mut below: BTreeMap<&str, Vec<&[String]>> = BTreeMap::new();
            for members in members {
                match members.split_first() {
                    Some((first, rest)) => below.entry(first).or_default().push(rest),
                    None => {
                        below = object.keys().map(|key| (key.as_str(), vec![&[][..]])).collect();
                        break;
                    }
                }
            }
            let mut map = HashMap::new();
            for (key, members) in below {
                if let Some(value) = object.get(key) {
                    map.insert(Key::from(key), seen(value, &members, size)?);
                }
            }
            CelValue::Map(Map { map: Arc::new(map) })
        }
    })
}

/// Facts of an expression.
struct Walked {
    variables: BTreeMap<String, Vec<Members>>,
    nodes: Vec<usize>,
    additions: usize,
}

/// Walks an expression. A loop over the items of a loop around it counts as one with it, as both together walk no more
/// than there is. Unknown names that some comprehension binds, as `x` in `list.exists(x, x > 1)`, are no
/// variables.
fn walk(expression: &IdedExpr, known: &BTreeSet<&str>) -> Result<Walked, String> {
    let (mut found, mut bound) = (BTreeMap::<_, Vec<_>>::new(), BTreeSet::new());
    let (mut nodes, mut additions) = (Vec::new(), 0);
    let mut open = vec![(expression, 0, 0, Vec::new())];
    while let Some((one, depth, loops, items)) = open.pop() {
        if depth > MAX_DEPTH {
            return Err(format!("nests more than {MAX_DEPTH} levels deep"));
        }
        nodes.resize(nodes.len().max(loops + 1), 0);
        nodes[loops] += 1;
        if let Some((name, members)) = path(one) {
            if members.len() > MAX_DEPTH {
                return Err(format!("nests more than {MAX_DEPTH} levels deep"));
            }
            found.entry(name).or_default().push(members);
            continue;
        }
        let (mut below, mut looped) = (Vec::new(), Vec::new());
        let (mut loops_within, mut items_within) = (loops + 1, items.clone());
        match &one.expr {
            Expr::Call(call) => {
                below.extend(call.target.as_deref());
                below.extend(&call.args);
                if call.func_name == operators::ADD {
                    additions += 1;
                    if loops > 0 && !call.args.iter().any(is_number_or_result) {
                        return Err("adds in a loop what may grow: compare instead".to_owned());
                    }
                }
            }
            Expr::Comprehension(it) => {
                bound.insert(it.iter_var.as_str());
                bound.extend(it.iter_var2.as_deref());
                below.extend([&it.iter_range, &it.accu_init, &it.result]);
                looped.extend([&it.loop_cond, &it.loop_step]);
                let walked = path(&it.iter_range).map(|(name, _)| name);
                if let Some(at) = items.iter().position(|name| Some(*name) == walked) {
                    items_within.remove(at);
                    loops_within = loops;
                }
                items_within.push(it.iter_var.as_str());
            }
            Expr::List(list) => below.extend(&list.elements),
            Expr::Map(map) => {
                map.entries.iter().for_each(|entry| below.extend(values_of(&entry.expr)))
            }
            Expr::Struct(it) => {
                it.entries.iter().for_each(|entry| below.extend(values_of(&entry.expr)))
            }
            Expr::Select(select) => below.push(&select.operand),
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        }
        open.extend(below.into_iter().map(|one| (one, depth + 1, loops, items.clone())));
        let within = |one| (one, depth + 1, loops_within, items_within.clone());
        open.extend(looped.into_iter().map(within));
    }
    if nodes.iter().sum::<usize>() > MAX_NODES {
        return Err(format!("has more than {MAX_NODES} parts"));
    }
    // The library's own have an `@`.
    let is_variable = |name: &str| known.contains(name) || !bound.contains(name);
    found.retain(|name, _| !name.starts_with('@') && is_variable(name));
    let variables = found.into_iter().map(|(name, members)| (name.to_owned(), members)).collect();
    Ok(Walked { variables, nodes, additions })
}

/// Operand of an addition that makes nothing larger: a number; and the result of `map` or `filter`, to which the
/// library adds an item at a time.
fn is_number_or_result(operand: &IdedExpr) -> bool {
    match &operand.expr {
        Expr::Ident(name) => name.starts_with('@'),
        Expr::Literal(LiteralValue::Int(_) | LiteralValue::UInt(_) | LiteralValue::Double(_)) => {
            true
        }
        _ => false,
    }
}

/// Variable and members of `variable.member["member"]`.
fn path(expression: &IdedExpr) -> Option<(&str, Members)> {
    let (mut members, mut at) = (Vec::new(), expression);
    loop {
        at = match &at.expr {
            Expr::Ident(name) => {
                members.reverse();
                return Some((name, members));
            }
            Expr::Select(select) => {
                members.push(select.field.clone());
                &select.operand
            }
            Expr::Call(CallExpr { func_name, args, .. }) if func_name == operators::INDEX => {
                let [of, key] = args.as_slice() else { return None };
                let Expr::Literal(LiteralValue::String(key)) = &key.expr else { return None };
                members.push(key.inner().to_owned());
                of
            }
            _ => return None,
        };
    }
}

fn values_of(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn judged(text: &str, value: &Value) -> Result<bool, String> {
        let expression = Expression::new(text, &BTreeSet::from(["v", "w"]))?;
        let seen = expression.variable("v", value)?;
        expression.holds(expression.names("v").then_some(("v", seen)))
    }

    #[test]
    fn expressions_are_true_or_false_or_an_error() {
        let value = json!({ "n": 2, "f": 0.5, "t": "x", "list": [1, 2], "a-b": { "c": true }, "none": null });
        for (text, holds) in [
            ("v.n + 1 == 3 && v.n < 2.5 && v.f >= 0.5", Ok(true)),
            ("v.t == 'x' && v['a-b'].c && v.none == null", Ok(true)),
            ("v.list.exists(x, x > 1)", Ok(true)),
            ("v.list.all(v, v > 1)", Ok(false)),
            ("has(v.absent) || v.absent == 1", Err("No such key")),
            ("has(v.n) && !has(v.absent)", Ok(true)),
            ("v.list.exists(x, v.list.exists(y, x + 1 == y))", Ok(true)),
            ("v.list.map(x, x * 2).filter(x, x > 2).size() == 1", Ok(true)),
            ("v.list.exists(x, v.t + v.t == 'xx')", Err("adds in a loop")),
            ("[v.t].map(x, x + x).map(x, x + x) == []", Err("adds in a loop")),
            ("v[v.t] == 1", Err("No such key")),
            ("v.size() == 6 && size(v.list) == 2", Ok(true)),
            ("v.n", Err("not true or false")),
            ("v.t > 1", Err("no matching overload")),
            ("x == 1", Err("`x` is not one of v, w")),
            ("w == 1", Err("Undeclared")),
            ("v.n ==", Err("not a valid expression")),
            ("", Err("not a valid expression")),
        ] {
            let judged = judged(text, &value);
            match (&judged, holds) {
                (Err(why), Err(said)) => assert!(why.contains(said), "{text}: {why}"),
                _ => assert_eq!(judged.as_ref().ok(), holds.ok().as_ref(), "{text}: {judged:?}"),
            }
        }
    }

    #[test]
    fn members_that_are_not_named_do_not_count() {
        let large =
            json!({ "text": "x".repeat(MAX_TEXT_BYTES + 1), "list": vec![1; MAX_VALUES], "n": 1 });
        assert_eq!(judged("v.n == 1", &large), Ok(true));
        assert_eq!(judged("v['n'] == 1", &large), Ok(true));
        for text in ["v.text != ''", "size(v.list) > 1", "v == 1", "v.exists(x, x == 'n')"] {
            assert!(judged(text, &large).expect_err(text).contains("too large"), "{text}");
        }
    }

    #[test]
    fn loops_within_loops_are_bounded_by_what_they_walk() {
        let loops = |levels: usize| {
            let name = |level| format!("x{level}");
            let begun: String = (0..levels).map(|at| format!("v.all({}, ", name(at))).collect();
            format!("{begun}true{}", ")".repeat(levels))
        };
        for (levels, items, taken) in
            [(1, 900, true), (2, 100, true), (2, 900, false), (3, 20, true), (4, 30, false)]
        {
            let judged = judged(&loops(levels), &json!(vec![1; items]));
            assert_eq!(judged.is_ok(), taken, "{levels} {items}: {judged:?}");
        }
        let lists = json!(vec![vec![1; 30]; 30]);
        for (text, taken) in [
            ("v.all(x, x.all(y, y == 1))", true),
            ("v.all(x, x.all(x, x == 1))", true),
            ("v.all(x, x.all(y, x.all(z, y == z)))", false),
            ("v.all(x, v.all(y, y.all(z, z == 1)))", false),
        ] {
            let judged = judged(text, &lists);
            assert_eq!(judged.is_ok(), taken, "{text}: {judged:?}");
        }
    }

    /// On a thread with the stack of a worker, which has 2 MiB.
    #[test]
    fn what_others_wrote_takes_neither_long_nor_much() {
        let within = |part: &str, end: &str| {
            let times = MAX_BYTES / (part.len() + end.len()).max(1) - 2;
            format!("{}v{}", part.repeat(times), end.repeat(times))
        };
        let texts = [
            within("(", ")"),
            within("(", ""),
            within("[", "]"),
            within("{1:", "}"),
            within("!", ""),
            within("-", ""),
            within("", "+v"),
            within("", ".a"),
            within("", "[0]"),
            within("", " && v"),
            within("", " == v"),
            within("v?", ":v"),
            within("v?v:", ""),
            within("v.exists(x,", ")"),
            within("has(", ")"),
            within("", "\u{e4}"),
            within("'", ""),
            "x".repeat(MAX_BYTES + 1),
        ];
        for text in texts {
            let short: String = text.chars().take(20).collect();
            let begun = std::time::Instant::now();
            let worker = std::thread::Builder::new().stack_size(2 * 1024 * 1024);
            let judge = move || drop(judged(&text, &json!("x".repeat(1000))));
            worker.spawn(judge).expect("a thread").join().expect("it does not panic");
            eprintln!("{short}: {:?}", begun.elapsed());
        }
    }
}
