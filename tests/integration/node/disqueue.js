// Scenarios for disqueue-node:  node disqueue.js PORT QUEUE SCENARIO  prints what happened as one JSON object.
'use strict'

const Disqueue = require('disqueue-node')
const { run } = require('./scenario')

// One connected client whose methods answer with promises.
function connect (port) {
  return new Promise((resolve, reject) => {
    const client = new Disqueue({ host: '127.0.0.1', port: port })
    const call = (name) => (argument) => new Promise((resolve, reject) => {
      client[name](argument, (error, answer) => error ? reject(error) : resolve(answer))
    })
    const calls = { end: () => client.redisClient.end(false) }
    for (const name of ['addJob', 'getJob', 'ackJob', 'nack', 'fastAck', 'delJob', 'dequeue', 'enqueue', 'working', 'show', 'qlen', 'qscan', 'info', 'hello']) {
      calls[name] = call(name)
    }
    client.on('ready', () => resolve(calls))
    client.on('error', reject)
  })
}

const scenarios = {
  async session (client, queue) {
    const job = await client.addJob({ queue: queue, job: 'to: ann' })
    const waiting = await client.qlen(queue)
    const taken = await client.getJob({ queue: queue, count: 1 })
    const acknowledged = await client.ackJob([job])
    return { job, waiting, taken, acknowledged, shown: await client.show(job) }
  },

  async options (client, queue) {
    const job = await client.addJob({ queue: queue, job: 'body', timeout: 500, replicate: 1, delay: 30, retry: 20, ttl: 3600, maxlen: 10, async: true })
    return { shown: await client.show(job) }
  },

  // The producer acts only once the consumer is seen to wait.
  async blocking (client, queue, port) {
    const consumer = await connect(port)
    const taking = consumer.getJob({ queue: queue, count: 1 })
    while ((await client.info({})).clients.blocked_clients !== '1') await new Promise((resolve) => setTimeout(resolve, 10))
    const job = await client.addJob({ queue: queue, job: 'at last' })
    const taken = await taking
    consumer.end()
    return { job, taken }
  },

  async failure (client, queue) {
    const job = await client.addJob({ queue: queue, job: 'body', retry: 20 })
    await client.getJob({ queue: queue, count: 1 })
    const nacked = await client.nack([job])
    const again = await client.getJob({ queue: queue, count: 1, withcounters: true })
    const postponed = await client.working(job)
    const enqueued = await client.enqueue([job])
    const dequeued = await client.dequeue([job])
    const deleted = await client.delJob([job])
    const error = await client.ackJob('nonsense').then(() => null, (error) => error.code || error.message)
    const empty = await client.getJob({ queue: queue, nohang: true })
    const other = await client.addJob({ queue: queue, job: 'other' })
    return { job, nacked, again, postponed, enqueued, dequeued, deleted, error, empty, forgotten: await client.fastAck([other]) }
  },

  async looking (client, queue) {
    await client.addJob({ queue: queue, job: 'body' })
    const scanned = await client.qscan({ busyloop: true, minlen: 1 })
    return { scanned, info: await client.info({}), hello: await client.hello({}) }
  }
}

run(async (port, queue, scenario) => {
  const client = await connect(port)
  try {
    return await scenarios[scenario](client, queue, port)
  } finally {
    client.end()
  }
})
