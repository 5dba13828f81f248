//! The first byte of an answer that a program in a sandbox has through its gateway, beside the provider itself.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::figure::{Figure, Target, median, round};
use super::{
    agents::{self, PYTHON},
    kit, model,
};
use super::{house::BenchDaemon, kit::BenchPrograms};

/// Executions, each with so many requests of its program.
const ROUNDS: usize = 5;
const REQUESTS: usize = 20;

/// Asks so many times, each time something else, and prints for each the microseconds until the first line of the
/// answer is there. Arguments: port, number of requests, number of the round.
const PROGRAM: &str = r#"
for i in $(seq "$2"); do
  body='{"model":"m","stream":true,"max_tokens":16,"messages":[{"role":"user","content":"'"$3 $i"'"}]}'
  began=${EPOCHREALTIME/[.,]/}
  exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 9
  printf 'POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %s\r\n\r\n%s' "${#body}" "$body" >&3
  read -r first <&3
  ended=${EPOCHREALTIME/[.,]/}
  exec 3>&-
  case $first in *' 200 '*) printf '%s ' $((ended - began));; *) printf '%s\n' "$first" >&2; exit 8;; esac
done
"#;
/// Port of the gateway in a machine.
const PORT: &str = "8790";

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let address = model::provide()?;
    let config = format!("isolation = \"sandbox\"\n{}", model::configured(&address));
    let house = BenchDaemon::open(kit, &config)?;
    let mut client = house.attach()?;
    let (_, port) = address.rsplit_once(':').context("an address has a port")?;
    let (mut through, mut beside) = (Vec::new(), Vec::new());
    for round in 0..kit.rounds(ROUNDS) {
        let [count, round] = [REQUESTS, round].map(|number| number.to_string());
        let argv = json!(["bash", "-c", PROGRAM, "asker", PORT, count, round]);
        let command = format!("{PYTHON}, command: {{ argv: {argv}, wire: chat, protocol: exit }}");
        let name = format!("asker-{round}");
        agents::deploy(&house, &name, &command, "tools: []")?;
        let id = agents::execute(&mut client, &name, false)?;
        let output = agents::ended(&mut client, &id)?;
        through.extend(times_ms(output.as_str().context("a program writes")?)?);

        let mut direct = Command::new("bash");
        direct.args(["-c", PROGRAM, "asker", port, &count, &round]);
        beside.extend(times_ms(&kit::output(direct)?)?);
    }
    let (through, beside) = (median(through), median(beside));
    Ok(vec![Figure {
        name: "gateway_first_byte",
        unit: "ms",
        value: through,
        baseline: Some(beside),
        target: Target::AtMost(round(beside * 1.3 + 2.0)),
        remark: "until a program in a sandbox has the first line of an answer, by a connection of its own, reserved and \
                 recorded; the baseline is the same program on the host, at the provider, which takes 50 ms"
            .to_owned(),
    }])
}

fn times_ms(written: &str) -> Result<Vec<f64>> {
    let times = written.split_whitespace().map(|us| Ok(us.parse::<f64>()? / 1e3));
    let times: Vec<_> = times.collect::<Result<_>>().with_context(|| written.to_owned())?;
    ensure!(times.len() == REQUESTS, "{} of {REQUESTS} were answered", times.len());
    Ok(times)
}
