//! Images of people's software, made of Debian's packages: python, and node with npm, which works
//! offline into a volume that outlives the workspace.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::json;

use super::stage::{image, run, with_images};
use crate::house::House;

const MORE: &str = "[workspace.images]\nmin_free_mb = 0\n";

pub fn python_and_node_work_and_what_npm_installs_outlives_the_workspace(mut house: House) {
    with_images(&mut house, MORE);
    pull(&house, "python", "python3,dash,coreutils");
    pull(&house, "node", "npm,nodejs,dash,coreutils");
    let make = |name: &str, base: &str, volumes: serde_json::Value| {
        let size =
            json!({ "name": name, "base_image": base, "memory_mb": 1024, "volumes": volumes });
        house.call("workspace_create", size);
    };
    make("p", "python", json!([]));
    let program = "import os, json, zlib; print(json.dumps([os.getcwd(), os.environ['SOFTWARE'], zlib.crc32(b'x')]))";
    let said = house.exec("p", &format!("python3 -c \"{program}\""));
    assert_eq!(said.trim(), r#"["/srv/app", "python", 2363233923]"#);
    house.call("workspace_destroy", json!({ "workspace_id": "p" }));

    let size = json!({ "label": "work", "size_limit_bytes": 64 << 20 });
    house.call("aegis.volume.create", size);
    let mounted = json!([{ "volume": "work", "path": "/data" }]);
    make("first", "node", mounted.clone());
    house.exec("first", PACKAGES);
    let install = "cd /data/app && npm install --offline --no-audit --no-fund --loglevel=error \
                   /tmp/p/shout-1.0.0.tgz /tmp/p/greeter-1.2.3.tgz 2>&1 && npm ls --offline";
    let said = house.exec("first", install);
    assert!(said.contains("greeter@1.2.3") && said.contains("shout@1.0.0"), "{said}");
    house.call("workspace_destroy", json!({ "workspace_id": "first" }));

    make("second", "node", mounted);
    let call = "cd /data/app && node -e \"console.log(require('greeter')('again'))\"";
    assert_eq!(house.exec("second", call).trim(), "HELLO AGAIN");
    // It is the volume's: the machine itself has nothing of it.
    assert_eq!(
        house.exec("second", "ls /tmp/p 2>&1 || true; npm --version | wc -l").lines().count(),
        2
    );
    house.call("workspace_destroy", json!({ "workspace_id": "second" }));
    house.call("aegis.volume.delete", json!({ "volume_id": "work" }));
}

/// Two packages of npm, of which one needs the other.
const PACKAGES: &str = r#"set -e
mkdir -p /tmp/p/shout /tmp/p/greeter /data/app && cd /tmp/p
echo '{"name":"shout","version":"1.0.0"}' > shout/package.json
echo 'module.exports = text => text.toUpperCase()' > shout/index.js
echo '{"name":"greeter","version":"1.2.3","dependencies":{"shout":"^1.0.0"}}' > greeter/package.json
echo "module.exports = name => require('shout')('hello ' + name)" > greeter/index.js
npm pack --offline --loglevel=error ./shout ./greeter
echo '{"name":"app","version":"0.1.0","private":true}' > /data/app/package.json"#;

/// Pulls an image of packages of Debian, from a layout that umoci makes of them.
fn pull(house: &House, name: &str, packages: &str) {
    let (layers, layout) = (tree_of(name, packages), house.path().join(format!("layout-{name}")));
    let layout = layout.to_str().expect("text");
    let image_name = format!("{layout}:{name}");
    run("umoci", &["init", "--layout", layout]);
    run("umoci", &["new", "--image", &image_name]);
    let layers = layers.to_str().expect("text");
    run("umoci", &["raw", "add-layer", "--image", &image_name, layers]);
    let variable = format!("SOFTWARE={name}");
    let config = ["config", "--image", &image_name, "--config.workingdir", "/srv/app"];
    run("umoci", &[config.as_slice(), &["--config.env", &variable]].concat());
    let (pulled, said) = image(house, &["pull", &format!("oci:{image_name}"), "--name", name]);
    assert!(pulled, "{said}");
}

/// Archive with the files of packages and of all that they need, none of them configured. Kept in
/// the target folder.
fn tree_of(name: &str, packages: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("software");
    let archive = folder.join(format!("{name}.tar"));
    if archive.exists() {
        return archive;
    }
    fs::create_dir_all(&folder).expect("made");
    let made = folder.join(format!("{name}-{}.tar", std::process::id()));
    // As the host fetches packages, by its proxies.
    let settings = Command::new("apt-config").args(["dump", "Acquire"]).output().expect("apt");
    let options = folder.join("apt.conf");
    fs::write(&options, settings.stdout).expect("written");
    let args = ["--quiet", "--mode=root", "--variant=extract", "--format=tar"];
    let (include, options) =
        (format!("--include={packages}"), format!("--aptopt={}", options.display()));
    let last = [include.as_str(), &options, "bookworm", made.to_str().expect("text")];
    run("mmdebstrap", &[args.as_slice(), &last].concat());
    fs::rename(&made, &archive).expect("renamed");
    archive
}
