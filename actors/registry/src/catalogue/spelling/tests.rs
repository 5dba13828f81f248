use hivekeep_kernel::Effect;
use proptest::prelude::*;
use schemars::{Schema, json_schema};
use serde_json::json;

use super::*;
use crate::catalogue::tests::catalogue_of;

fn every_form() -> Schema {
    json_schema!({
        "type": "object", "description": "x", "additionalProperties": false, "required": ["must"],
        "properties": {
            "must": { "description": "x", "type": "integer" },
            "secs": { "description": "x", "type": "integer", "minimum": 0, "default": 7 },
            "ratio": { "description": "x", "type": "number" },
            "maybe": { "description": "x", "type": ["integer", "null"] },
            "free": { "description": "x" },
            "env": { "description": "x", "type": "object", "additionalProperties": { "type": "integer" } },
            "pair": { "description": "x", "type": "array",
                "prefixItems": [{ "type": "string" }, { "type": "integer" }], "items": { "type": "number" } },
            "tree": { "description": "x", "anyOf": [{ "$ref": "#/$defs/Tree" }, { "type": "null" }] },
            "size": { "description": "x", "allOf": [{ "$ref": "#/$defs/Size" }], "default": 1 },
            "either": { "description": "x", "anyOf": [{ "type": "integer" }, { "type": "string" }] },
            "both": { "description": "x", "anyOf": [{ "type": "integer" }, { "type": "number" }] },
            "tagged": { "description": "x", "oneOf": [{ "$ref": "#/$defs/A" }, { "$ref": "#/$defs/B" }] },
            "loop": { "description": "x", "$ref": "#/$defs/Loop" },
        },
        "$defs": {
            "Size": { "type": "integer" },
            "Loop": { "$ref": "#/$defs/Loop" },
            "Tree": { "type": "object", "properties": {
                "n": { "description": "x", "type": "integer" },
                "below": { "description": "x", "type": "array", "items": { "$ref": "#/$defs/Tree" } },
            } },
            "A": { "type": "object", "required": ["kind"], "properties": {
                "kind": { "description": "x", "const": "a" }, "n": { "description": "x", "type": "integer" } } },
            "B": { "type": "object", "required": ["kind"], "properties": {
                "kind": { "description": "x", "const": "b" }, "n": { "description": "x", "type": "number" } } },
        },
    })
}

fn respelled(schema: fn() -> Schema, args: Value) -> Value {
    let catalogue = catalogue_of(Effect::Read, schema);
    let mut args = args.as_object().expect("an object").clone();
    catalogue.entries().next().expect("one").respell(&mut args);
    Value::Object(args)
}

#[test]
fn whole_floats_are_integers_where_the_schema_says_so() {
    let tree = |n: Value, m: Value| json!({ "n": n, "below": [{ "n": m }] });
    for (args, is) in [
        (json!({ "must": 5.0 }), json!({ "must": 5 })),
        (json!({ "must": -0.0, "secs": -3.0 }), json!({ "must": 0, "secs": -3 })),
        (json!({ "must": 9007199254740992.0 }), json!({ "must": 9_007_199_254_740_992_u64 })),
        (json!({ "maybe": 2.0, "size": 3.0 }), json!({ "maybe": 2, "size": 3 })),
        (json!({ "env": { "a": 1.0 } }), json!({ "env": { "a": 1 } })),
        (json!({ "pair": ["x", 1.0, 2.0] }), json!({ "pair": ["x", 1, 2.0] })),
        (
            json!({ "tree": tree(json!(1.0), json!(2.0)) }),
            json!({ "tree": tree(json!(1), json!(2)) }),
        ),
        (json!({ "either": 4.0 }), json!({ "either": 4 })),
        (
            json!({ "tagged": { "kind": "a", "n": 1.0 } }),
            json!({ "tagged": { "kind": "a", "n": 1 } }),
        ),
    ] {
        assert_eq!(respelled(every_form, args), is);
    }
    for stays in [
        json!({ "must": 5.5 }),
        json!({ "must": 1e300 }),
        json!({ "must": 18446744073709551616.0 }),
        json!({ "ratio": 5.0, "free": 5.0, "both": 5.0, "loop": 5.0, "other": 5.0 }),
        json!({ "tagged": { "kind": "b", "n": 1.0 } }),
        json!({ "tagged": { "kind": "c", "n": 1.0 } }),
    ] {
        assert_eq!(respelled(every_form, stays.clone()), stays);
    }
}

#[test]
fn null_is_left_out_where_it_is_no_value_and_nothing_has_to_be() {
    let nulls = json!({ "secs": null, "ratio": null, "env": null, "pair": null, "size": null,
        "either": null, "tagged": null });
    assert_eq!(respelled(every_form, nulls), json!({}));
    let below = json!({ "tree": { "n": null, "below": [{ "below": null }] } });
    assert_eq!(respelled(every_form, below), json!({ "tree": { "below": [{}] } }));
    for stays in [
        json!({ "must": null }),
        json!({ "maybe": null, "free": null, "tree": null }),
        json!({ "env": { "a": null }, "pair": [null] }),
        json!({ "unknown": null }),
    ] {
        assert_eq!(respelled(every_form, stays.clone()), stays);
    }
}

#[test]
fn null_is_absent_for_the_properties_of_actions() {
    let actions = || {
        json_schema!({ "description": "x", "oneOf": [
            { "type": "object", "required": ["action", "name"], "properties": {
                "action": { "type": "string", "const": "a" }, "name": { "description": "x", "type": "string" },
                "secs": { "description": "x", "type": "integer", "default": 1 },
                "content": { "description": "x" } } },
            { "type": "object", "required": ["action"], "properties": {
                "action": { "type": "string", "const": "b" } } },
        ] })
    };
    let args = json!({ "action": "a", "name": null, "secs": null, "content": null });
    let is = json!({ "action": "a", "content": null });
    assert_eq!(respelled(actions, args), is);
    let catalogue = catalogue_of(Effect::Read, actions);
    let lacks = catalogue.entries().next().expect("one").check(&is).expect_err("no name");
    assert!(lacks.message.contains("needs `name`"), "{lacks}");
}

proptest! {
    /// Digests and keys are over the one spelling.
    #[test]
    fn a_second_time_changes_nothing(
        n in prop_oneof![any::<f64>(), (-9e15..9e15_f64).prop_map(f64::trunc)], text in "[ab]", null: bool,
    ) {
        let value = || if null { Value::Null } else { json!(n) };
        let args = json!({ "must": value(), "secs": value(), "maybe": value(), "either": value(),
            "env": { "a": value() }, "pair": [value(), value()], "tree": { "n": value() },
            "tagged": { "kind": text, "n": value() } });
        let once = respelled(every_form, args);
        prop_assert_eq!(respelled(every_form, once.clone()), once);
    }
}
