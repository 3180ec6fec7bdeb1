// Runs one version of the official TypeScript client against the fake, step by
// step, and prints a line of JSON for each. It is given the client's package name;
// the address and the key come in the environment, as the client documents.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'

const name = process.argv[2]
const require = createRequire(process.env.CHECK_MODULES + '/')
const { Daytona } = require(name)

const step = async (what, f) => {
  const began = Date.now()
  const result = await f()
  console.log(JSON.stringify({ step: what, ms: Date.now() - began }))
  return result
}

const daytona = new Daytona()
const env = { CHECK_ENV: `a "quoted" $value\nsecond line` }

const sandbox = await step('create', () =>
  daytona.create({ language: 'python', envVars: env, labels: { check: name }, autoStopInterval: 5 }, { timeout: 30 }))
await step('wait', () => sandbox.waitUntilStarted(30))
assert.equal(sandbox.state, 'started')

await step('execute', async () => {
  const r = await sandbox.process.executeCommand('printf %s "$MORE-$PWD"; exit 3', '/tmp', { MORE: 'x y' }, 10)
  assert.equal(r.exitCode, 3)
  assert.equal(r.result, 'x y-/tmp')
  const e = await sandbox.process.executeCommand('printf %s "$CHECK_ENV"')
  assert.equal(e.exitCode, 0)
  assert.equal(e.result, env.CHECK_ENV)
})

const data = Buffer.alloc(300_000)
for (let i = 0; i < data.length; i++) data[i] = (i * 7919) % 256
await step('upload', () => sandbox.fs.uploadFile(data, 'dir/check.bin'))
await step('download', async () => {
  const got = await sandbox.fs.downloadFile('dir/check.bin')
  assert.ok(Buffer.compare(data, got) === 0, 'the bytes that came back differ')
  await assert.rejects(() => sandbox.fs.downloadFile('dir/absent.bin'))
})
await step('files', async () => {
  const list = await sandbox.fs.listFiles('dir')
  assert.deepEqual(list.map(f => f.name), ['check.bin'])
  const info = await sandbox.fs.getFileDetails('dir/check.bin')
  assert.equal(info.size, data.length)
  await sandbox.fs.createFolder('made', '755')
  await sandbox.fs.moveFiles('dir/check.bin', 'made/moved.bin')
  const found = await sandbox.fs.searchFiles('made', '*.bin')
  assert.equal(found.files.length, 1)
  await sandbox.fs.deleteFile('made/moved.bin')
})

await step('session', async () => {
  await sandbox.process.createSession('s1')
  const r = await sandbox.process.executeSessionCommand('s1', { command: 'cd /tmp; echo out; echo err >&2; (exit 4)' })
  assert.equal(r.exitCode, 4)
  const again = await sandbox.process.executeSessionCommand('s1', { command: 'pwd' })
  assert.equal(again.stdout, '/tmp\n')
  const logs = await sandbox.process.getSessionCommandLogs('s1', r.cmdId)
  assert.equal(logs.stdout, 'out\n')
  assert.equal(logs.stderr, 'err\n')
  const a = await sandbox.process.executeSessionCommand('s1', { command: 'read x; echo "got $x"', runAsync: true })
  await sandbox.process.sendSessionCommandInput('s1', a.cmdId, 'hello\n')
  let text = ''
  await sandbox.process.getSessionCommandLogs('s1', a.cmdId, s => { text += s }, () => {})
  assert.match(text, /got hello/)
  await sandbox.process.deleteSession('s1')
})

// The newer client uses one websocket for both steps, which v0.190 does not have.
if (process.env.CHECK_PTY === 'true') await step('pty', async () => {
  const chunks = []
  const pty = await sandbox.process.createPty({ id: 'p1', cols: 100, rows: 30, cwd: '/tmp', envs: { PTY_ENV: 'seen' }, onData: d => { chunks.push(Buffer.from(d)) } })
  await pty.waitForConnection()
  await pty.sendInput('echo "$PTY_ENV-$(stty size)"; exit 5\n')
  const end = await pty.wait()
  const text = Buffer.concat(chunks).toString()
  assert.match(text, /seen-30 100/)
  assert.equal(end.exitCode, 5)
})

await step('list', async () => {
  let n = 0
  const page = await daytona.list({ check: name })
  if (page && Array.isArray(page.items)) n = page.items.length
  else for await (const s of daytona.list({ labels: { check: name } })) if (s.id) n++
  assert.equal(n, 1)
})
await step('labels', async () => {
  await sandbox.setLabels({ check: name, more: '1' })
  await sandbox.refreshData()
  assert.equal(sandbox.labels.more, '1')
})
await step('preview', async () => {
  const p = await sandbox.getPreviewLink(8080)
  assert.ok(p.url && p.token)
})
await step('stop', () => sandbox.stop(30))
await step('start', () => sandbox.start(30))
await step('delete', () => sandbox.delete(30))
for (let i = 0; ; i++) {
  try { await daytona.get(sandbox.id) } catch (e) { assert.match(String(e), /not found/i); break }
  assert.ok(i < 100, 'the sandbox is still there')
  await new Promise(r => setTimeout(r, 50))
}
console.log(JSON.stringify({ step: 'done' }))
process.exit(0)
