// Runs code in sandboxes by E2B's own JavaScript SDK for code interpreters, as its users do: what a version has, it must
// do.
//
// Usage: drive_code.mjs PACKAGE ISOLATION. Address and key come from the variables that the SDK itself reads; the
// template is the SDK's own. Prints a line of JSON: the version, and for each feature whether it was there.
//
// Versions before 2.7 ask for code at a name below the daemon's domain. Not every C library knows names below
// `localhost`: the process answers for them itself.

import assert from 'node:assert/strict'
import dns from 'node:dns'
import { readFileSync } from 'node:fs'

const [pack, isolation] = process.argv.slice(2)
const { lookup } = dns
dns.lookup = (host, ...rest) => lookup(host.endsWith('.localhost') ? '127.0.0.1' : host, ...rest)
const { Sandbox } = await import(pack)
const features = {}

/** Notes a feature as one that was driven. */
function feature(name) {
  features[name] = true
}

async function refused(call) {
  try {
    await call()
  } catch (error) {
    return error
  }
  assert.fail('it was not refused')
}

async function runs(sandbox) {
  feature('run_code')
  const first = await sandbox.runCode('x = 20\nx + 1')
  assert.equal(first.text, '21')
  assert.equal(first.error, undefined)
  const again = await sandbox.runCode("print(x); 'a text'")
  assert.equal(again.text, 'a text')
  assert.deepEqual(again.logs.stdout, ['20\n'])
  assert.equal(again.executionCount, first.executionCount + 1)
  await refused(() => sandbox.runCode('1', { language: 'ruby' }))
}

async function streams(sandbox) {
  feature('streams')
  const out = []
  const err = []
  const code = "import sys\nfor i in range(3): print(i, flush=True)\nprint('no', file=sys.stderr)"
  await sandbox.runCode(code, { onStdout: (it) => out.push(it.line), onStderr: (it) => err.push(it.line) })
  assert.equal(out.join(''), '0\n1\n2\n')
  assert.deepEqual(err, ['no\n'])
}

async function errors(sandbox) {
  feature('errors')
  const failed = await sandbox.runCode("def f():\n    raise ValueError('why')\nf()")
  assert.equal(failed.error.name, 'ValueError')
  assert.equal(failed.error.value, 'why')
  assert.match(failed.error.traceback, /in f\(\)/)
}

async function results(sandbox) {
  feature('results')
  const code = `from IPython.display import HTML, JSON, Markdown, display
display(HTML("<b>h</b>"), Markdown("*m*"), JSON({"j": [1]}))
display({"image/png": "aGk=", "application/x-own": "o"}, raw=True)`
  const { results: shown } = await sandbox.runCode(code)
  assert.equal(shown[0].html, '<b>h</b>')
  assert.equal(shown[1].markdown, '*m*')
  assert.deepEqual(shown[2].json, { j: [1] })
  assert.equal(shown[3].png, 'aGk=')
  assert.equal(shown[3].raw.extra['application/x-own'], 'o')
}

async function variables(sandbox) {
  feature('envs')
  const read = "import os; (os.environ.get('OF_SANDBOX'), os.environ.get('OF_RUN'))"
  assert.equal((await sandbox.runCode(read, { envs: { OF_RUN: '2' } })).text, "('1', '2')")
  assert.equal((await sandbox.runCode(read)).text, "('1', None)")
}

async function contexts(sandbox) {
  feature('contexts')
  const made = await sandbox.createCodeContext({ cwd: '/tmp', language: 'python' })
  assert.equal(made.cwd, '/tmp')
  assert.equal((await sandbox.runCode('z = 5\nimport os; os.getcwd()', { context: made })).text, '/tmp')
  assert.equal((await sandbox.runCode('z')).error.name, 'NameError')
  assert((await sandbox.listCodeContexts()).some((it) => it.id === made.id))
  await sandbox.restartCodeContext(made)
  assert.equal((await sandbox.runCode('z', { context: made })).error.name, 'NameError')
  await sandbox.removeCodeContext(made)
  assert(!(await sandbox.listCodeContexts()).some((it) => it.id === made.id))
  await refused(() => sandbox.runCode('1', { context: made }))
}

async function timeouts(sandbox) {
  feature('timeout')
  await sandbox.runCode('kept = 7')
  await refused(() => sandbox.runCode('import time\ntime.sleep(60)\nkept = 8', { timeoutMs: 1000 }))
  assert.equal((await sandbox.runCode('kept')).text, '7')
}

// An emulated machine on a busy host needs longer than the SDK waits by itself, which is a minute.
const sandbox = await Sandbox.create({ timeoutMs: 900_000, requestTimeoutMs: 300_000, envs: { OF_SANDBOX: '1' } })
try {
  await runs(sandbox)
  await streams(sandbox)
  await errors(sandbox)
  await results(sandbox)
  await variables(sandbox)
  await contexts(sandbox)
  await timeouts(sandbox)
} finally {
  await sandbox.kill()
}
const manifest = new URL(`./node_modules/${pack}/package.json`, import.meta.url)
const { version } = JSON.parse(readFileSync(manifest, 'utf8'))
console.log(JSON.stringify({ version, isolation, features }))
// The SDK leaves a timer behind a request that was refused.
process.exit(0)
