// Drives sandboxes by E2B's own JavaScript SDK, as its users do: what a version has, it must do.
//
// Usage: drive_e2b.mjs PACKAGE TEMPLATE ISOLATION [life]. With `life` it asks only for what depends on the isolation: how
// sandboxes begin, stand still, are copied and end. Address and key come from the variables that the SDK itself
// reads. Prints a line of JSON: the version, and for each feature whether it was there.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

const [pack, template, isolation, only] = process.argv.slice(2)
const { Sandbox, CommandExitError, NotFoundError } = await import(pack)
const features = {}
// An emulated machine on a busy host needs longer than the SDK waits by itself, which is a minute.
const patient = { timeoutMs: 900_000, requestTimeoutMs: 300_000 }

/** Notes a feature as one that was driven, or as one that this version does not have. */
function feature(name, ...there) {
  features[name] = there.every(Boolean)
  return features[name]
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
  if (feature('close_stdin', sandbox.commands.closeStdin)) {
    const counter = await sandbox.commands.run('wc -c', { background: true, stdin: true })
    await sandbox.commands.sendStdin(counter.pid, '12345')
    await sandbox.commands.closeStdin(counter.pid)
    assert.equal((await counter.wait()).stdout.trim(), '5')
  }
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
  if (feature('get_info', sandbox.files.getInfo)) {
    const { size, mode, owner } = await sandbox.files.getInfo('blob')
    assert.deepEqual({ size, mode, owner }, { size: 3_000_000, mode: 0o644, owner: 'user' })
  }
  // What an older version does not know it leaves out.
  const metadata = { author: 'ann' }
  const marked = await sandbox.files.write('m.txt', 'm', { metadata })
  if (feature('metadata', marked.metadata)) {
    assert.deepEqual(marked.metadata, metadata)
    assert.deepEqual((await sandbox.files.getInfo('m.txt')).metadata, metadata)
  }
  feature('signed URLs')
  await sandbox.files.write('signed.txt', 'signed')
  const url = await sandbox.downloadUrl('signed.txt', { user: 'user' })
  assert.equal(await (await fetch(url)).text(), 'signed')
  assert.equal((await fetch(url.replace('signed.txt', 'blob'))).status, 401)
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
    timeoutMs: 300_000,
  })
  await sandbox.pty.resize(terminal.pid, { cols: 100, rows: 40 })
  await sandbox.pty.sendInput(terminal.pid, Buffer.from('stty size; exit 0\n'))
  await terminal.wait()
  assert(heard.includes('40 100'), heard)
}

async function pauses(sandbox) {
  const pause = sandbox.pause ?? sandbox.betaPause
  if (!feature('pause and connect', isolation === 'vm' && pause)) return
  const script = 'i=0; while true; do i=$((i+1)); echo $i > count; sleep 0.1; done'
  const counter = await sandbox.commands.run(script, { background: true })
  const count = async (one) => Number(await one.files.read('count'))
  await sleep(300)
  await pause.call(sandbox)
  assert.equal(await sandbox.isRunning(), false)
  const again = await Sandbox.connect(sandbox.sandboxId, patient)
  assert.equal(await again.isRunning(), true)
  const first = await count(again)
  for (let tries = 0; (await count(again)) <= first; tries += 1) {
    assert(tries < 400, 'its program stands still')
    await sleep(50)
  }
  await again.commands.kill(counter.pid)
}

async function copies(sandbox) {
  const [fork, snapshot] = [sandbox.fork, sandbox.createSnapshot].map((it) => isolation === 'vm' && it)
  if (feature('fork', fork)) {
    await sandbox.files.write('state.txt', 'before')
    const made = await fork.call(sandbox, { count: 2 })
    assert(made.length === 2 && made.every((one) => one instanceof Sandbox), `${made}`)
    await made[0].files.write('state.txt', 'after')
    assert.equal(await made[1].files.read('state.txt'), 'before')
    assert.equal(await sandbox.files.read('state.txt'), 'before')
    for (const one of made) await one.kill()
  }
  if (feature('snapshots', snapshot)) {
    await sandbox.files.write('state.txt', 'kept')
    const { snapshotId } = await snapshot.call(sandbox)
    const copy = await Sandbox.create(snapshotId, patient)
    assert.equal(await copy.files.read('state.txt'), 'kept')
    await copy.kill()
    const listed = await Sandbox.listSnapshots({ sandboxId: sandbox.sandboxId }).nextItems()
    assert.deepEqual(listed.map((one) => one.snapshotId), [snapshotId])
    assert.equal(await Sandbox.deleteSnapshot(snapshotId), true)
    assert.equal(await Sandbox.deleteSnapshot(snapshotId), false)
  }
}

async function lives(sandbox, mark) {
  if (feature('list', Sandbox.list)) {
    const pages = Sandbox.list({ query: { metadata: { mark } } })
    const ids = (await pages.nextItems()).map((one) => one.sandboxId)
    assert.deepEqual(ids, [sandbox.sandboxId])
  }
  feature('timeout')
  await sandbox.setTimeout(1_200_000)
  await pauses(sandbox)
  await copies(sandbox)
  feature('kill')
  // Older versions say nothing.
  assert.notEqual(await sandbox.kill(), false)
  assert.equal(await Sandbox.kill(sandbox.sandboxId), false)
  assert.equal(await sandbox.isRunning(), false)
}

const mark = `märk ${process.hrtime.bigint()} a@b/c 100%+1`
const sandbox = await Sandbox.create(template, { ...patient, metadata: { mark }, envs: { A: '1' } })
feature('create')
if (only !== 'life') {
  await commands(sandbox)
  await background(sandbox)
  await files(sandbox)
  await watch(sandbox)
  await pty(sandbox)
}
await lives(sandbox, mark)
const manifest = new URL(`./node_modules/${pack}/package.json`, import.meta.url)
const { version } = JSON.parse(readFileSync(manifest, 'utf8'))
console.log(JSON.stringify({ version, isolation, features }))
