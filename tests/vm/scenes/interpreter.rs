//! Code in an interpreter that remembers, of the image `code-interpreter`.

use std::thread;

use serde_json::{Value, json};

use crate::house::House;

/// A place, and what code says there.
struct Interpreter<'h>(&'h House);

impl Interpreter<'_> {
    fn run(&self, more: Value) -> Value {
        let mut args = json!({ "place": "code" });
        args.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
        self.0.call("run_code", args)
    }

    fn text(&self, code: &str) -> Value {
        let run = self.run(json!({ "code": code }));
        assert_eq!(run["error"], Value::Null, "{run}");
        run["results"][0]["text"].clone()
    }
}

pub fn code_runs_where_it_ran_before(house: House) {
    house.create("plain");
    let refused = house.refused("run_code", json!({ "code": "1", "place": "plain" }));
    assert_eq!(refused.code, "no_interpreter");
    assert!(refused.text.contains("`base`"), "{}", refused.text);

    let made = json!({ "name": "code", "base_image": "code-interpreter", "memory_mb": 1024 });
    house.call("workspace_create", made);
    let code = Interpreter(&house);
    // Two at once start one interpreter.
    thread::scope(|scope| {
        let first = scope.spawn(|| code.text("1 + 1"));
        assert_eq!(code.text("2 + 2"), "4");
        assert_eq!(first.join().expect("ran"), "2");
    });
    let listening = house.exec("code", "pgrep -fc '^/usr/bin/python3 /usr/lib/code-interpreter'");
    assert_eq!(listening.trim(), "1", "one server");

    let run =
        code.run(json!({ "code": "x = 5\nprint('out')\nimport sys\nsys.stderr.write('err')\nx" }));
    assert_eq!((&run["stdout"], &run["stderr"]), (&json!("out\n"), &json!("err")));
    let results: Vec<&Value> = run["results"].as_array().expect("some").iter().collect();
    assert_eq!(results.last(), Some(&&json!({ "text": "5", "is_main_result": true })));
    assert_eq!(code.text("x"), "5");
    assert_eq!(code.text("import os; os.getcwd()"), "/workspace");
    assert_eq!(code.text("import getpass; getpass.getuser()"), "user");
    assert_eq!(code.text("open('made', 'w').write('ab')"), "2", "the folder is the user's");
    assert_eq!(house.exec("code", "cat /workspace/made"), "ab");

    let run = code.run(json!({ "code": "import os; os.environ['V']", "env": { "V": "v" } }));
    assert_eq!(run["results"][0]["text"], "v");
    assert_eq!(code.run(json!({ "code": "os.environ['V']" }))["error"]["name"], "KeyError");
    let other = code.run(json!({ "code": "x", "context": "other" }));
    assert_eq!(
        (&other["error"]["name"], &other["context"]),
        (&json!("NameError"), &json!("other"))
    );

    let late = json!({ "code": "print('begun', flush=True)\nimport time\ntime.sleep(60)", "timeout_secs": 1, "place": "code" });
    let refused = house.refused("run_code", late);
    assert_eq!(
        (&*refused.code, &refused.details["stdout"]),
        ("command_timed_out", &json!("begun\n"))
    );
    assert_eq!(code.text("x"), "5", "it was interrupted");
    let died = code.run(json!({ "code": "os._exit(1)" }));
    assert_eq!(died["error"]["name"], "KernelDied");
    assert_eq!(code.run(json!({ "code": "x" }))["error"]["name"], "NameError");
    code.text("x = 6; x");
    code.run(json!({ "code": "", "restart": true }));
    assert_eq!(code.run(json!({ "code": "x" }))["error"]["name"], "NameError");
    let ruby =
        house.refused("run_code", json!({ "code": "1", "language": "ruby", "place": "code" }));
    assert_eq!(ruby.code, "invalid_input");

    // Memory goes with a stop; the interpreter comes again.
    house.call("workspace_stop", json!({ "workspace_id": "code" }));
    house.call("workspace_start", json!({ "workspace_id": "code" }));
    assert_eq!(code.run(json!({ "code": "x" }))["error"]["name"], "NameError");
}
