// Drives sandboxes by E2B's own JavaScript SDK, as its users do: what a version has, it must do.
//
// Usage: drive_e2b.mjs PACKAGE TEMPLATE ISOLATION. Address and key come from the variables that the SDK itself
// reads. Prints a line of JSON: the version, and for each feature whether it was there.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

const [pack, template, isolation] = process.argv.slice(2)
const { Sandbox, CommandExitError, NotFoundError } = await import(pack)
const features = {}

/** Notes a feature as one that was driven, or as one that this version does not have. */
function feature(name, there = true) {
  features[name] = Boolean(there)
  return there
}

async function refused(call, kind = Error) {
  try {
    await call()
  } catch (error) {
    assert(error instanceof kind, `${error?.stack ?? error}`)
    return error
  }
  assert.fail('it was not refused')
}

async function commands(sandbox) {
  feature('run')
  const done = await sandbox.commands.run('echo out; echo err >&2; whoami')
  assert.equal(done.stdout, 'out\nuser\n')
  assert.equal(done.stderr, 'err\n')
  const both = await sandbox.commands.run('echo $A-$B', { envs: { B: '2' } })
  assert.equal(both.stdout, '1-2\n')
  const failed = await refused(() => sandbox.commands.run('exit 3'), CommandExitError)
  assert.equal(failed.exitCode, 3)
  const large = await sandbox.commands.run("head -c 300000 /dev/zero | tr '\\0' x")
  assert.equal(large.stdout.length, 300_000)
}

async function background(sandbox) {
  feature('background')
  let heard = ''
  const onStdout = (text) => (heard += text)
  const counting = await sandbox.commands.run('for i in 1 2 3; do echo $i; sleep 0.2; done', {
    background: true,
    onStdout,
  })
  await counting.wait()
  assert.equal(heard, '1\n2\n3\n')
  const sleeper = await sandbox.commands.run('sleep 60', { background: true })
  assert((await sandbox.commands.list()).some((one) => one.pid === sleeper.pid))
  assert.equal((await sandbox.commands.connect(sleeper.pid)).pid, sleeper.pid)
  assert.equal(await sandbox.commands.kill(sleeper.pid), true)
  assert.equal(await sandbox.commands.kill(4_000_000), false)
  feature('stdin')
  const reader = await sandbox.commands.run('head -n 1', { background: true, stdin: true })
  await sandbox.commands.sendStdin(reader.pid, 'grün\n')
  assert.equal((await reader.wait()).stdout, 'grün\n')
}

async function files(sandbox) {
  feature('files')
  const told = await sandbox.files.write('dir/a.txt', 'hello')
  assert(told.path.endsWith('/user/dir/a.txt'), told.path)
  assert.equal(await sandbox.files.read('dir/a.txt'), 'hello')
  const blob = Buffer.alloc(3_000_000, 'hivekeep')
  await sandbox.files.write('blob', blob.buffer.slice(blob.byteOffset, blob.byteOffset + blob.length))
  assert(Buffer.from(await sandbox.files.read('blob', { format: 'bytes' })).equals(blob))
  assert.deepEqual((await sandbox.files.list('dir')).map((one) => one.name), ['a.txt'])
  await sandbox.files.rename('dir/a.txt', 'dir/b.txt')
  assert.equal(await sandbox.files.exists('dir/b.txt'), true)
  assert.equal(await sandbox.files.makeDir('dir'), false)
  await refused(() => sandbox.files.read('nothing'), NotFoundError)
  await sandbox.files.remove('dir')
  assert.equal(await sandbox.files.exists('dir'), false)
}

async function watch(sandbox) {
  feature('watch')
  await sandbox.files.makeDir('watched')
  const seen = []
  const handle = await sandbox.files.watchDir('watched', (event) => seen.push(`${event.type} ${event.name}`), {
    recursive: true,
  })
  await sandbox.files.write('watched/a.txt', 'one')
  for (let tries = 0; !seen.includes('write a.txt'); tries += 1) {
    assert(tries < 400, `not told: ${seen}`)
    await sleep(50)
  }
  await handle.stop()
}

async function pty(sandbox) {
  if (!feature('pty', sandbox.pty)) return
  let heard = ''
  const terminal = await sandbox.pty.create({
    cols: 90,
    rows: 30,
    onData: (piece) => (heard += Buffer.from(piece).toString()),
    timeoutMs: 30_000,
  })
  await sandbox.pty.resize(terminal.pid, { cols: 100, rows: 40 })
  await sandbox.pty.sendInput(terminal.pid, Buffer.from('stty size; exit 0\n'))
  await terminal.wait()
  assert(heard.includes('40 100'), heard)
}

async function lives(sandbox, mark) {
  if (feature('list', Sandbox.list)) {
    const pages = Sandbox.list({ query: { metadata: { mark } } })
    const ids = (await pages.nextItems()).map((one) => one.sandboxId)
    assert.deepEqual(ids, [sandbox.sandboxId])
  }
  feature('timeout')
  await sandbox.setTimeout(600_000)
  const pause = sandbox.pause ?? sandbox.betaPause
  if (feature('pause and connect', isolation === 'vm' && pause)) {
    await pause.call(sandbox)
    assert.equal(await sandbox.isRunning(), false)
    const again = await Sandbox.connect(sandbox.sandboxId)
    assert.equal(await again.isRunning(), true)
  }
  feature('kill')
  // Older versions say nothing.
  assert.notEqual(await sandbox.kill(), false)
  assert.equal(await Sandbox.kill(sandbox.sandboxId), false)
  assert.equal(await sandbox.isRunning(), false)
}

const mark = `mark-${process.hrtime.bigint()}`
const sandbox = await Sandbox.create(template, { timeoutMs: 300_000, metadata: { mark }, envs: { A: '1' } })
feature('create')
await commands(sandbox)
await background(sandbox)
await files(sandbox)
await watch(sandbox)
await pty(sandbox)
await lives(sandbox, mark)
const manifest = new URL(`./node_modules/${pack}/package.json`, import.meta.url)
const { version } = JSON.parse(readFileSync(manifest, 'utf8'))
console.log(JSON.stringify({ version, isolation, features }))
